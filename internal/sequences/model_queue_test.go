package sequences_test

import (
	"errors"
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
	claimed       time.Time // by a relay that sends
	lastError     string    // what it contains
	origin        string    // of a letter
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

// takeable is what a relay takes (O-03), in its order: what was tried before and is due again, what a relay has claimed that has
// died, and then all that is new, whatever the clock said when it was enqueued.
func (m *model) takeable() []*queued {
	var again, over, fresh []*queued
	for _, q := range m.queue {
		switch {
		case q.status == outbox.Processing && !q.claimed.Add(outbox.Lease).After(m.now):
			over = append(over, q)
		case q.status != outbox.Pending || q.next.After(m.now):
		case q.next.IsZero():
			fresh = append(fresh, q)
		default:
			again = append(again, q)
		}
	}
	slices.SortStableFunc(again, func(a, b *queued) int { return a.next.Compare(b.next) })
	slices.SortStableFunc(over, func(a, b *queued) int { return a.claimed.Compare(b.claimed) })
	return slices.Concat(again, over, fresh)
}

// relay is O-05: the rows become deliveries for the subscribers of now (D-04, D-24), and are done. Of a tenant that is gone, and
// under an id that the tenant has for another event, there are none, and it is of no use to try again; what nobody wants is done.
func (m *model) relay(p *proc, rows []*queued) (woken []wake) {
	for _, q := range rows {
		q.next, q.claimed = time.Time{}, time.Time{}
		w, err := m.receive(p, q.event)
		if err != nil {
			rule := "E-10 another payload at the relay"
			if errors.Is(err, durable.ErrUnknownTenant) {
				rule = "T-02 the tenant is gone at the relay"
			}
			m.saw[rule]++
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
	q.lastError, q.status, q.claimed = errInjected.Error(), outbox.Pending, time.Time{}
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

// requeue is an operator's: the row begins anew. A letter is captured there and then, or stays one.
func (m *model) requeue(p *proc, q *queued) (woken []wake, err error) {
	if q.status != outbox.DeadLettered {
		return nil, outbox.ErrNotDeadLettered
	}
	status := outbox.Pending
	if q.origin != "" {
		if woken, err = m.receive(p, q.event); err != nil {
			m.saw["N-03 a letter that cannot be requeued"]++
			return nil, err
		}
		status = outbox.Done
		m.saw["N-03 a letter is requeued"]++
	}
	m.saw["O-04 requeued"]++
	q.status, q.attempts, q.deferrals, q.next = status, 0, 0, time.Time{}
	return woken, nil
}
