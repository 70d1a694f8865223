// Package loam delivers events to durable subscribers in multi-tenant applications on SQLite.
//
// An application publishes a named event in a tenant's context. Inline subscribers run at once. Durable subscribers,
// registered at boot with durable.Register, get it for certain: one row per event and subscriber, written in the
// publisher's own transaction if it passes one, woken by a River job, retried with backoff, repaired by a sweep, and parked
// as dead for an operator when all attempts have failed. Engine puts the parts together.
//
// # Delivery guarantees
//
// What Publish or the caller's commit has confirmed reaches every durable subscriber at least once, in no order. Handlers
// must be idempotent. Two runs for the same event and subscriber do not overlap, within the limits that package ledger
// states. Inline subscribers run at most once. See packages durable, events and ledger.
package loam
