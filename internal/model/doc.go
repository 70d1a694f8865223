// Package model is an explicit-state model of how a delivery is claimed, run and repaired. It is checked by looking at every
// interleaving of its steps; nothing in the library uses it.
//
// A step is one committed transaction, or one local move of a process. Between any two of them a process can be killed, time
// can pass, another process can act, and the answer of a commit can be lost. Times are kept relative to the true time, so that
// the states are finite without a limit on time; what can go wrong only so often (crashes, lost answers, an operator's
// decisions) has a budget.
//
// Checked are the conditions in check.go, at every step, and that from every state some steps lead to all rows being settled.
// The tables in table_00.go and table_80.go have the protocol as it is, which must hold, and the protocol with one condition
// taken away, which must break, and in the way the table says: that is what shows the condition to be needed, and the model to
// see its absence. What is left out is said in docs/guarantees.md.
//
// A second kind of row, such as an outbox row that a relay turns into a delivery, would be a field of state beside row, with an
// actor in a file of its own that appends to the edges in step.go.
package model
