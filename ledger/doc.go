// Package ledger says which (event, handler) is being run, by whom and until when, and which is done: the table
// processed_events. It is the only package that writes there, but for retention (package sweep), which deletes old rows.
//
// A claim is a row with status in_progress, the millisecond it was taken at (started_at) and a random owner. It is
// exclusive until its lease is over; a margin later anyone may take it over. Everything an owner does with its claim
// (renew, mark done, release) is conditional on both values, so an owner whose claim was taken over changes nothing.
// Times are milliseconds of the caller's clock.
//
// Limits: a process that is suspended past its lease, a handler that ignores its cancelled context, or one whose process has
// a clock that is behind the other's by more than the lease and the margin, can still be running when another takes the
// claim over. Its outcome is then refused.
//
// Every function that takes a transaction is part of it; the caller locks in the order ledger, row, job.
package ledger
