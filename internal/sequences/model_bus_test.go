package sequences_test

import (
	"slices"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

// store is N-01: the bus has an event once, however often it is sent.
func (m *model) store(e events.Event) {
	if slices.ContainsFunc(m.stream, func(o *message) bool { return o.said.TenantID == e.TenantID && o.said.ID == e.ID }) {
		m.saw["N-01 sent again"]++
		return
	}
	i := slices.IndexFunc(m.queue, func(q *queued) bool { return q.event.tenant == e.TenantID && q.event.id == e.ID })
	m.stream = append(m.stream, &message{event: m.queue[i].event, said: e, seq: len(m.stream) + 1})
}

// sent is O-03, O-04, O-06: what became of rows that were claimed and sent.
func (m *model) sent(rows []*queued, is string) {
	for i, q := range rows {
		if !q.claimed.IsZero() {
			m.saw["O-03 taken over"]++
		}
		switch {
		case is == killedBefore, is == killedBetween:
			m.saw["O-03 a relay dies with its claim"]++
			q.status, q.claimed = outbox.Processing, m.now
		case is == sinkAway, is == sinkUnheard:
			m.saw["O-06 deferred"]++
			q.lastError, q.status, q.claimed = errInjected.Error(), outbox.Pending, time.Time{}
			q.deferrals++
			q.next = m.now.Add(outbox.Backoff(q.deferrals))
		case is == sinkRefuses && i == 0:
			m.fail(q, false)
		default:
			m.saw["O-05 sent"]++
			q.status, q.lastError, q.next, q.claimed = outbox.Done, "", time.Time{}, time.Time{}
		}
	}
}

// receive is N-06: the deliveries for this service's subscribers, once. What nobody wants is received all the same.
func (m *model) receive(p *proc, e *event) ([]wake, error) {
	if len(m.targets(p, e.name)) > 0 && !m.tenants[e.tenant] {
		return nil, outbox.Permanent(durable.ErrUnknownTenant)
	}
	woken, err := m.capture(p, e)
	if err != nil {
		err = outbox.Permanent(err)
	}
	return woken, err
}

// bury is N-03: the message's letter is its event's row, and there is one, however often it is stored; not again once it was
// requeued.
func (m *model) bury(msg *message, why error) {
	i := slices.IndexFunc(m.queue, func(q *queued) bool { return q.event.tenant == msg.event.tenant && q.event.id == msg.event.id })
	if i < 0 {
		m.saw["N-03 a letter of another service's"]++
		i = len(m.queue)
		m.queue = append(m.queue, &queued{event: msg.event, created: m.now})
	}
	q := m.queue[i]
	if q.origin == msg.origin() {
		m.saw["N-03 a letter again"]++
		return
	}
	q.status, q.origin, q.attempts, q.lastError, q.next, q.claimed = outbox.DeadLettered, msg.origin(), msg.delivered, why.Error(), time.Time{}, time.Time{}
}
