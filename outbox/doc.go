// Package outbox is the table event_queue: an event as one row, written in the transaction of whoever commits the data that
// caused it. A relay takes the rows from there: it turns them into deliveries in the same database, or hands them to a sink
// outside it.
//
// # Guarantees
//
// An event whose row was committed is captured for its durable subscribers, once each, or its row is dead_lettered with the
// reason, whatever crashes. With deliveries in the same database, the claim, the deliveries, their wake-ups and the mark are
// one transaction. With a sink outside, a row is claimed in one transaction, sent with none open, and marked in another on
// condition that the claim is still the own one: what was sent and not marked is sent again, with the same event id. A claim
// older than Lease is taken over.
//
// A row that cannot be read as an event is dead_lettered and blocks nobody. One that fails is tried again after Backoff, and
// dead_lettered after the last attempt. A sink that cannot be reached spends no attempt: the row is deferred, and the relay
// pauses.
//
// # Tenants
//
// The relay, List and Requeue cross tenants: a row names its own.
package outbox
