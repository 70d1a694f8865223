// Package sequences is a model-based test of the state machine: random sequences of publishes, direct or through the outbox, runs, faults,
// crashes, clock steps and an operator's work on two processes over one real database, each step compared with a plain model of the
// contract. The service sends what it enqueues to a bus in memory, which it reads, as another service does; broker and database
// are away now and then, and acks are lost. It has tests only.
//
// The files model*_test.go are the model, and say which clause each rule is. The others do the same to real processes: run,
// publish, queue, bus and repair are the steps, check is the comparison. A sequence lives in a synctest bubble: deadlines, renewals and
// second tries take no real time, and handlers stand still until the sequence says how they end, so that the same draws are the
// same sequence. What rapid prints of a failure replays it: -rapid.seed or -rapid.failfile.
//
// Several databases of each kind are used at a time, for PostgreSQL waits more than it works; its connections live outside of
// the bubbles (outside_test.go).
//
// There are 500 sequences, 20 under the race detector, and 10,000 with LOAM_NIGHTLY set, which needs -timeout 120m: PostgreSQL is the slower one.
package sequences
