// Package model is an explicit-state model of the protocol, checked by looking at every interleaving of its steps. It has three
// state spaces: how a delivery is claimed, run and repaired, also with a transactional handler (state); how a row of the
// outbox becomes deliveries, with a broker in between and without (queueState); and how a message of a broker becomes deliveries
// or a dead letter (inboxState). Nothing in the library uses it.
//
// A step is one committed transaction, or one local move of a process. Between any two of them a process can be killed, time
// can pass, another process can act, and the answer of a commit can be lost. Times are kept relative to the true time, so that
// the states are finite without a limit on time. What can go wrong only so often has a budget: for a delivery crashes, lost
// answers and an operator's decisions; for an outbox row and a message only the last, the others may come without end.
//
// Checked are the conditions in check.go, queue_check.go and inbox_state.go, at every step, and that from every state some steps lead to all
// rows being settled. The tables (table_00.go and on) have the protocol as it is, which must hold, and the protocol with one
// condition taken away, which must break, and in the way the table says: that is what shows the condition to be needed, and the
// model to see its absence. What is left out is said in docs/guarantees.md.
//
// A further state space implements protocol in explore.go.
package model
