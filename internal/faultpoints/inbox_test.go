package faultpoints_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// inbox is the queue of a process that receives.
func (w *world) inbox(r *rig.Rig) *outbox.Queue {
	cfg := r.Queue.Config
	cfg.KeepReceived, cfg.MaxAttempts, cfg.Capturer = true, busAttempts, buggy{r.Deliveries, w}
	q, err := outbox.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

// prepareInbox leaves a row that this service has sent, and a tenant less.
func (w *world) prepareInbox() {
	rig.Exec(w.t, w.b.DB, `DELETE FROM loam_tenants WHERE id = 'globex'`)
	own, err := stream[slices.IndexFunc(stream, func(m message) bool { return m.id == idOwn })].event()
	if err == nil {
		err = w.b.DB.InTx(w.t.Context(), func(ctx context.Context, tx *sql.Tx) error { return w.b.Queue.Keep(ctx, tx, own) })
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// runInbox is the script in which a receives from a bus, and an operator requeues letters once their tenant has come, or the
// bug is mended.
func (w *world) runInbox() {
	for range 2 {
		w.consume("a")
		w.advance(ackWait)
	}
	w.operate(w.queueA)
	if w.hook.hasFired() { // what meets the fault may come once more
		w.consume("a")
		w.operate(w.queueA)
	}
	w.work()
}

func (w *world) consume(proc string) {
	in := w.queueA
	if proc == "b" {
		in = w.queueB
	}
	consumer{w, proc, in}.consume()
}

// operate is what an operator does with letters: what they need, and then they are requeued.
func (w *world) operate(q *outbox.Queue) {
	for _, e := range w.letters() {
		if e.EventID == idOwn {
			w.note(entry{What: "mended"})
		} else {
			rig.Exec(w.t, w.b.DB, `INSERT INTO loam_tenants (id, created_at) VALUES ('globex', $1) ON CONFLICT DO NOTHING`, database.At(w.clock.Now()))
		}
		w.retried("requeue", func() error {
			err := q.Requeue(w.t.Context(), e.ID)
			switch {
			case err == nil:
				w.note(entry{What: "requeued", Event: e.EventID})
			case errors.Is(err, outbox.ErrNotDeadLettered): // another has, or its answer was lost
				return nil
			}
			return err
		})
	}
}

// letters are those of events, that wait for the operator.
func (w *world) letters() []outbox.Entry {
	return slices.DeleteFunc(w.queue(), func(e outbox.Entry) bool {
		return e.EventID != idEarly && e.EventID != idOwn || e.Status != outbox.DeadLettered
	})
}

func (w *world) mended() bool {
	return slices.ContainsFunc(w.diary.entries(w.t), func(e entry) bool { return e.What == "mended" })
}

// busy reports whether something is to be received or requeued.
func (w *world) busy() bool {
	return w.script.bus && (len(w.letters()) > 0 || slices.ContainsFunc(w.kept(), func(k kept) bool { return !k.ended }))
}

// inbox checks, in the end, that of every message there are its deliveries, once, or its letter, once, and the right one of the two.
func (r *report) inbox() {
	have := map[string][]string{}
	for _, row := range r.w.list() {
		have[row.EventID] = append(have[row.EventID], row.SubscriberKey)
	}
	for id, keys := range have {
		if slices.Sort(keys); !slices.Equal(keys, []string{"received", "received too"}) {
			r.add(stale, "%s has deliveries for %q", id, keys)
		}
	}
	requeued := map[string]int{}
	for _, e := range r.entries {
		if e.What == "requeued" {
			requeued[e.Event]++
		}
	}
	if requeued[idEarly] > 1 || requeued[idOwn] > 1 {
		r.add(stale, "letters were requeued twice: %v", requeued)
	}
	if len(have) != 3 {
		r.add(lost, "%d events have deliveries, want 3", len(have))
	}
	type letter struct {
		id, origin string
		status     outbox.Status
		reason     string
	}
	var got []letter
	for _, e := range r.w.queue() {
		l := letter{e.EventID, e.Origin, e.Status, ""}
		if e.Status == outbox.DeadLettered {
			l.reason = e.LastError
		}
		if !e.ClaimedAt.IsZero() || !e.NextAttemptAt.IsZero() {
			r.add(stale, "%s", describeEntry(e))
		}
		if e.EventID == idEarly && !r.exact && e.Origin == "" { // its tenant was there when it came again
			l.origin = origin(3)
		}
		got = append(got, l)
	}
	_, noEvent := stream[4].event()
	_, noJSON := stream[5].event()
	want := []letter{
		{idGot, "", outbox.Done, ""},
		{idEarly, origin(3), outbox.Done, ""},
		{idOwn, origin(4), outbox.Done, ""},
		{"x", origin(5), outbox.DeadLettered, noEvent.Error()},
		{"", origin(6), outbox.DeadLettered, noJSON.Error()},
	}
	for _, l := range want {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(g letter) bool { return g != l })); n != 1 {
			r.add(lost, "%d rows are %+v, want one", n, l)
		}
	}
	if len(got) != len(want) {
		r.add(stale, "in event_queue: %+v", got)
	}
	for i, k := range r.w.kept() {
		switch _, away := r.w.hook.fault.(away); {
		case !k.ended:
			r.add(lost, "message %d was never acked", i+1)
		case k.handed > busAttempts, away && k.handed != handedOut(i):
			r.add(stale, "message %d was handed out %d times", i+1, k.handed)
		}
	}
}

// handedOut is how often a message is, unless something goes wrong.
func handedOut(i int) int {
	if stream[i].id == idOwn {
		return busAttempts
	}
	return 1
}

// away: the database is not reached, or its answer is not heard. That spends no delivery of any message.
type away struct{ at moment }

func (a away) name() string {
	if a.at == after {
		return "away after"
	}
	return "away"
}
func (a away) when() moment    { return a.at }
func (away) happen(bool) error { return fmt.Errorf("%w: %w", database.ErrUnreachable, errFault) }

// more are the faults of this script at p beside those of all.
func (s *script) more(p point) (tasks []task) {
	if !s.bus || p.part != "receive" && p.part != "letter" {
		return nil
	}
	tasks = append(tasks, task{p, away{before}})
	if p.kind == "commit" {
		tasks = append(tasks, task{p, away{after}})
	}
	return tasks
}
