// Package events has names, patterns and payloads of events, and the bus that runs inline subscribers.
//
// # Names and patterns
//
// A name is three or more segments of [a-z0-9_]+ with dots between: billing.invoice.paid. A pattern that ends in a dot
// is a prefix of whole segments (billing. matches billing.invoice.paid and not billingx.a.b); any other pattern is an
// exact name. The empty pattern, for inline subscribers only, is every event. Nothing has more than MaxNameBytes bytes.
//
// # Payloads
//
// A payload is a JSON object of ids and scalars: string, integer, float, bool, null. It never has records: a subscriber
// that runs later loads what it needs by id, as it is then. Integers keep every digit over the range of int64 and
// uint64. What a handler reads has one of the types string, int64, uint64, float64, bool and nil, inline and durable
// alike; a uint64 appears only above the range of int64. The keys tenant_id and actor_id are always present, set from the
// context at publish; what a caller puts there is overwritten.
//
// # Delivery guarantees
//
// Inline subscribers run in the publisher's goroutine, in the order in which they subscribed, before Publish returns, at
// most once, each with a copy of the payload of its own. Nothing is stored and nothing is retried. One that fails or
// panics does not keep the others from running. For subscribers that must not miss an event, see package durable.
package events
