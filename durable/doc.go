// Package durable has the durable subscribers: their registry, the delivery rows, and the state machine that takes a row
// from pending to delivered or dead.
//
// # Use
//
// A subscriber is registered at boot under a key, usually in an init function:
//
//	func init() {
//		durable.RegisterFunc("mailer.receipt", "billing.invoice.paid", sendReceipt)
//	}
//
// From then on every event that its pattern matches reaches it: one row in event_deliveries per event and subscriber, in
// the event's tenant, written in the publisher's transaction together with the job that wakes the row. The key is what a
// row stores; the handler is found in the registry of the running process by that key and by nothing else.
//
// # Delivery guarantees
//
// At least once, in no order. A handler must be idempotent: it runs again when a process dies between the handler's effect
// and the commit of its outcome. Two runs for the same event and subscriber do not overlap, within the limits that package
// ledger states. A failure is retried on the subscriber's schedule, and after its last attempt the row is dead, for an
// operator to redeliver. A crash spends no attempt, but a row that was being run in more than Config.CrashLimit crashes
// is parked. A handler sees the tenant of the row in its context, and a deadline.
//
// Exactly once, for what a handler of RegisterTx writes through the transaction that it gets: that is committed together with
// the ledger's mark and the row's state, or not at all.
//
// # Transactions
//
// What ends in Tx is part of the caller's transaction; the rest opens its own, and returns events.ErrInTransaction on a
// context that is inside one. Every transition of a row is one conditional UPDATE. Locks are taken in the order ledger,
// row, job.
//
// # Tenants
//
// Reads and writes take the tenant from the context and fail with tenant.ErrMissingTenant without one. The operations
// that cross tenants are these: renewals and outcomes, which name the tenant of each row, and ledger.Lost, which looks for
// claims whose owner is gone.
package durable
