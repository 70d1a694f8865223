package sequences_test

import (
	"slices"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

// rowAttempts is how many attempts of its own a row of event_queue has.
const rowAttempts = 2

// queued is a row of event_queue.
type queued struct {
	event         *event
	id            int64 // in the database, once it was seen
	status        outbox.Status
	attempts      int
	deferrals     int
	next, created time.Time
	lastError     string // what it contains
}

// enqueue is O-01: one row for each event, whoever it is for; of no tenant, or of an unknown one, none (T-02).
func (m *model) enqueue(e *event) error {
	if !m.tenants[e.tenant] {
		return nil
	}
	for _, q := range m.queue {
		switch {
		case q.event.tenant != e.tenant || q.event.id != e.id:
		case q.event.name != e.name || q.event.payload != e.payload:
			m.saw["E-10 enqueued with another payload"]++
			return events.ErrIDReused
		default:
			m.saw["E-10 enqueued again"]++
			return nil
		}
	}
	m.queue = append(m.queue, &queued{event: e, status: outbox.Pending, created: m.now})
	return nil
}

// takeable is what a relay takes (O-03), in its order: what was tried before and is due again, and then all that is new,
// whatever the clock said when it was enqueued.
func (m *model) takeable() []*queued {
	var again, fresh []*queued
	for _, q := range m.queue {
		switch {
		case q.status != outbox.Pending || q.next.After(m.now):
		case q.next.IsZero():
			fresh = append(fresh, q)
		default:
			again = append(again, q)
		}
	}
	slices.SortStableFunc(again, func(a, b *queued) int { return a.next.Compare(b.next) })
	return append(again, fresh...)
}

// relay is O-05: the rows become deliveries for the subscribers of now (D-04, D-24), and are done. Of a tenant that is gone, and
// under an id that the tenant has for another event, there are none, and it is of no use to try again.
func (m *model) relay(p *proc, rows []*queued) (woken []wake) {
	for _, q := range rows {
		q.next = time.Time{}
		if !m.tenants[q.event.tenant] {
			m.saw["T-02 the tenant is gone at the relay"]++
			q.status, q.lastError = outbox.DeadLettered, durable.ErrUnknownTenant.Error()
			continue
		}
		w, err := m.capture(p, q.event)
		if err != nil {
			m.saw["E-10 another payload at the relay"]++
			q.status, q.lastError = outbox.DeadLettered, err.Error()
			continue
		}
		m.saw["O-05 relayed"]++
		q.status, q.lastError = outbox.Done, ""
		woken = append(woken, w...)
	}
	return woken
}

// fail is O-04: a row that failed alone waits, or has used up its attempts. When nobody could say whether its tenant exists,
// it has spent none.
func (m *model) fail(q *queued, directory bool) {
	q.lastError = errInjected.Error()
	if directory {
		m.saw["O-04 deferred"]++
		q.deferrals++
		q.next = m.now.Add(min(5*time.Second<<(q.deferrals-1), 300*time.Second))
		return
	}
	q.attempts++
	if q.attempts == rowAttempts {
		m.saw["O-04 dead_lettered"]++
		q.status, q.next = outbox.DeadLettered, time.Time{}
		return
	}
	m.saw["O-04 tried again"]++
	q.next = m.now.Add(5 * time.Second)
}

// requeue is an operator's: the row begins anew.
func (m *model) requeue(q *queued) error {
	if q.status != outbox.DeadLettered {
		return outbox.ErrNotDeadLettered
	}
	m.saw["O-04 requeued"]++
	q.status, q.attempts, q.deferrals, q.next = outbox.Pending, 0, 0, time.Time{}
	return nil
}
