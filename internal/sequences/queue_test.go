package sequences_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// The steps of the outbox.

// How an event is published.
const (
	captured = "captured"
	enqueued = "enqueued"
)

// put publishes e in a transaction.
func (p *process) put(ctx context.Context, tx *sql.Tx, e events.Event, how string) error {
	if how == enqueued {
		return p.Queue.Enqueue(ctx, tx, e)
	}
	return p.Deliveries.CaptureTx(ctx, tx, e)
}

// putNow publishes e in a transaction of its own.
func (p *process) putNow(ctx context.Context, e events.Event, how string) error {
	if how == captured {
		return p.Deliveries.Capture(ctx, e)
	}
	return p.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return p.put(ctx, tx, e, how) })
}

// accept is the model's, for a publish that was committed.
func (w *world) accept(p *process, e *event, how string) ([]wake, error) {
	if how == enqueued {
		return nil, w.m.enqueue(e)
	}
	woken, err := w.m.capture(p.proc, e)
	w.owe(woken)
	return woken, err
}

// owe notes deliveries that must be there in the end.
func (w *world) owe(woken []wake) {
	for _, k := range woken {
		w.journal = append(w.journal, journaled{k.row.event.tenant, k.row.event.id, k.row.key})
	}
}

// relay makes one round.
func (w *world) relay() {
	f := w.drawFault(failOnce, failOnce, failOnce, failOnce)
	if f.n > 0 { // a round has more operations than other steps
		f.n += oneOf(0, 3, 6).Draw(w.t, "further")
	}
	w.round(w.drawProc(), f)
}

func (w *world) round(p *process, f fault) {
	var n int
	var err error
	e := w.under(p, f, func() { n, err = p.Queue.Round(w.tb.ctx) })
	taken := w.m.takeable()
	if !e.fired && (err != nil || n != len(taken)) || e.fired && !e.crashed && (err == nil) != (e.commits > 0) {
		w.t.Fatalf("the round dealt with %d rows (%v), of %d", n, err, len(taken))
	}
	var done effects
	switch {
	case e.fired && e.commits == 0: // nothing has happened
	case e.fired && f.kind == failOnce && len(taken) == 1: // is it the row? Several are tried in halves, at once
		w.m.fail(taken[0], asksForTenant(e))
	default:
		done.woken = w.m.relay(p.proc, taken)
		w.owe(done.woken)
	}
	if e.crashed {
		w.replace(p)
	}
	w.check(done)
}

// drawQueued draws a row of event_queue, rather one in this state than another.
func (w *world) drawQueued(rather outbox.Status) *queued {
	some := w.queuedIn(rather)
	if len(some) == 0 || oneOf(false, false, false, true).Draw(w.t, "any row") {
		some = w.m.queue
	}
	return drawOne(w, "row of event_queue", some, (*queued).String)
}

func (w *world) queuedIn(s outbox.Status) []*queued {
	return slices.DeleteFunc(slices.Clone(w.m.queue), func(q *queued) bool { return q.status != s })
}

func (w *world) requeue() {
	p, q := w.drawProc(), w.drawQueued(outbox.DeadLettered)
	err := p.Queue.Requeue(w.tb.ctx, q.id)
	woken, want := w.m.requeue(p.proc, q)
	if (err == nil) != (want == nil) || errors.Is(err, outbox.ErrNotDeadLettered) != errors.Is(want, outbox.ErrNotDeadLettered) {
		w.t.Fatalf("requeueing %v: %v, want %v", q, err, want)
	}
	w.owe(woken)
	w.check(effects{woken: woken})
}

// prunable are the rows that retention may take, which is longer than a message comes again.
func (w *world) prunable() []*queued {
	return slices.DeleteFunc(w.queuedIn(outbox.Done), func(q *queued) bool {
		return slices.ContainsFunc(w.m.stream, func(m *message) bool {
			return !m.ended && m.event.tenant == q.event.tenant && m.event.id == q.event.id
		})
	})
}

// asksForTenant: nobody could say whether the tenant exists.
func asksForTenant(e effect) bool { return strings.Contains(e.sql, "loam_tenants") }

// pruneQueue deletes a row that is done, as retention does: its id may be enqueued again.
func (w *world) pruneQueue() {
	q := drawOne(w, "row of event_queue", w.prunable(), (*queued).String)
	rig.Exec(w.tb, w.seen.DB, `DELETE FROM event_queue WHERE id = $1`, q.id)
	w.m.queue = slices.DeleteFunc(w.m.queue, func(o *queued) bool { return o == q })
	w.check(effects{})
}

// String names a row without its ids.
func (q *queued) String() string {
	return fmt.Sprintf("%s/%s/%s %d", q.event.tenant, q.event.label, q.event.name, q.event.payload)
}

// checkQueue: event_queue has the rows of the model, in the order in which they were enqueued, and no others.
func (w *world) checkQueue(now snapshot) {
	if len(now.queue) != len(w.m.queue) {
		w.t.Fatalf("event_queue has %d rows, want %d", len(now.queue), len(w.m.queue))
	}
	for i, q := range w.m.queue {
		got := now.queue[i]
		if got.TenantID != q.event.tenant || got.EventID != q.event.id || got.EventType != q.event.name {
			w.t.Fatalf("%v: in its place in event_queue is %s/%s/%s", q, got.TenantID, w.label(got.EventID), got.EventType)
		}
		q.id = got.ID
		if diff := q.diff(got); diff != "" {
			w.t.Fatalf("%v in event_queue: %s", q, diff)
		}
	}
}

func (q *queued) diff(got outbox.Entry) string {
	var out differences
	out.compare("status", got.Status, q.status)
	out.compare("attempts", got.Attempts, q.attempts)
	out.compare("deferrals", got.Deferrals, q.deferrals)
	out.compare("claimed_at", timeText(got.ClaimedAt.Time), timeText(q.claimed))
	out.compare("next_attempt_at", timeText(got.NextAttemptAt.Time), timeText(q.next))
	out.compare("created_at", timeText(got.CreatedAt.Time), timeText(q.created))
	out.compare("origin", got.Origin, q.origin)
	out.compareError(got.LastError, q.lastError)
	return strings.Join(out, "; ")
}
