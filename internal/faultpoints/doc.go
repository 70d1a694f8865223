// Package faultpoints is a test: it walks through every step between two operations of the database, and around every handler,
// and has each of four faults happen there: the process is killed, the step fails, its answer is lost, or the process stands
// still for longer than its lease, until another one has done all there is or is in the middle of it.
//
// A script (script_test.go) drives the real state machine through capture, claim, run, outcome, renewal, sweep and redelivery;
// two others (outbox_test.go) enqueue events and relay them, to deliveries and to a sink outside the database; a fourth
// (inbox_test.go) receives from a bus, whose consumer is the test's own (bus_test.go), and requeues letters. Each is run once
// without a fault, which lists the points; the list is nowhere written down. A point is named by the part that it is of, which
// the stack tells by the entry points of packages durable, outbox and sweep, by the operation, and by how many equal ones came
// before it, so that it is the same one in the next run although handlers run concurrently. Then, for every point and every
// fault, the script runs again over a clean database and the fault happens there once; who called tries again as the engine,
// River and a publisher do. Afterwards another process works on until all is settled, and the invariants of the contract are
// checked (check_test.go).
//
// No hook in the production code is needed: operations pass the driver of package dbtest, handlers are the test's own. Killed
// processes are real ones: this test's program, started again for each. What must be known of them after the kill they write to
// a file beside the database.
//
// On SQLite a process that stands still inside a write transaction holds the lock of all writers: there a stall only lets the
// time pass. Elsewhere another process tries to go on meanwhile.
package faultpoints
