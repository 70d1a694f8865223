// Package natsjs has NATS as the bus of events between services: the relay of one service's event_queue sends its events to a
// JetStream stream, and each service's consumer of that stream writes the deliveries for its own subscribers.
//
//	bus, err := natsjs.New(natsjs.Config{Service: "billing", URL: "nats://nats.internal:4222"})
//	engine, err := loam.New(loam.Config{DB: db, Capture: loam.Outbox, Bus: bus})
//
// # Delivery guarantees
//
// In mode jetstream a row of event_queue is done when the broker has acknowledged the event, and a message is acknowledged when
// its deliveries are committed, so an event is sent at least once and received at least once, whatever crashes. Repeats add
// nothing: the broker drops those that it sees within an hour, by an id made of tenant and event id, and the receiving
// database has one delivery for each subscriber of an event. An outage, of the broker or of either database, spends no
// attempt. What is given up is a dead_lettered row, of the sender or of the receiver.
//
// In mode core nothing is stored on the way: who does not listen at that moment never gets the event.
//
// # Messages
//
// A message is a CloudEvent 1.0 in binary mode: attributes are headers (ce-id, ce-source, ce-type, ce-time, and ce-tenantid,
// ce-traceparent, ce-tracestate, ce-loamdepth), percent-encoded as CloudEvents demands, the data is the payload's JSON. Its
// subject is the event's name after the prefix. Other programs may read and write them: ce-id must be a UUID, the data a JSON
// object of scalars, and a tenant must be named, by ce-tenantid or by tenant_id in the data.
//
// # Stream and consumer
//
// Both are made when they are not there. When they are, they are their operator's, but for duplicate_window of the stream and
// max_deliver and ack_wait of the consumer, which are updated, with a warning.
//
// # Connections
//
// New does no I/O. A Bus connects when a started engine sends or consumes first, so a process that only publishes never does.
// From then on it connects again for ever.
package natsjs
