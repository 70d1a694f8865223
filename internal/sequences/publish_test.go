package sequences_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/rig"
)

// The steps that publish.

// The ids that publishers give.
var givenIDs = []string{"0190b8a2-6f3e-7c41-9a55-d0f1c2b3a491", "0190b8a2-6f3e-7c41-9a55-d0f1c2b3a492"}

// journaled is a delivery that a committed publish owes.
type journaled struct{ tenant, event, key string }

// spec is what is published.
type spec struct {
	tenant, name string
	payload      int
	given        int // which id, 0 for a fresh one
	how          string
}

var specs = rapid.Custom(func(t *rapid.T) spec {
	return spec{
		tenant:  oneOf("acme", "acme", "acme", "acme", "acme", "acme", "globex", "globex", "globex", "globex", "nobody", "").Draw(t, "tenant"),
		name:    oneOf(paid, paid, placed, refund).Draw(t, "name"),
		payload: oneOf(1, 1, 1, 2).Draw(t, "payload"),
		given:   oneOf(0, 0, 0, 1, 2).Draw(t, "given id"),
		how:     oneOf(captured, captured, captured, enqueued, enqueued).Draw(t, "how"),
	}
})

func (w *world) limits() events.Limits {
	l := rig.Limits
	l.Depth = depthLimit
	return l
}

// event makes the event of a spec, and the model's.
func (w *world) event(p *process, s spec) (context.Context, events.Event, *event) {
	ctx := w.tb.ctx
	if s.tenant != "" {
		ctx = p.Ctx(s.tenant)
	}
	var opts []events.PublishOption
	label := fmt.Sprintf("given%d", s.given)
	if s.given > 0 {
		opts = append(opts, events.WithID(givenIDs[s.given-1]))
	} else {
		w.events++
		label = fmt.Sprintf("e%d", w.events)
	}
	e, err := events.New(ctx, s.name, events.Payload{"n": s.payload}, w.limits(), opts...)
	w.must(err)
	return ctx, e, &event{id: e.ID, label: label, tenant: s.tenant, name: s.name, payload: s.payload}
}

// publish captures or enqueues one event in a transaction of its own.
func (w *world) publish() {
	p, s := w.drawProc(), specs.Draw(w.t, "event")
	ctx, e, me := w.event(p, s)
	w.published(p, me, s.how, w.drawFault(), func() error { return p.putNow(ctx, e, s.how) })
}

// published compares a publish with the model's, and returns whether the publisher heard that it succeeded.
func (w *world) published(p *process, e *event, how string, f fault, publish func() error) bool {
	var err error
	eff := w.under(p, f, func() { err = publish() })
	var done effects
	if !eff.fired || eff.commits > 0 {
		var want error
		done.woken, want = w.accept(p, e, how)
		if !eff.fired && !errors.Is(err, want) || !eff.fired && want == nil && err != nil {
			w.t.Fatalf("publishing %s: %v, want %v", e.label, err, want)
		}
	}
	if eff.fired && err == nil && !eff.crashed { // D-05
		w.t.Fatalf("publishing %s failed, and the publisher does not hear it", e.label)
	}
	if eff.crashed {
		w.replace(p)
	}
	w.check(done)
	return err == nil
}

var errRollback = errors.New("rolled back by its owner")

// publishTx captures or enqueues some events in a transaction of the caller's, some of them behind savepoints.
func (w *world) publishTx() {
	type part struct {
		spec
		savepoint string
	}
	p := w.drawProc()
	parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) part {
		return part{specs.Draw(t, "event"), oneOf("none", "released", "rolled back").Draw(t, "savepoint")}
	}), 1, 3).Draw(w.t, "events")
	commit := oneOf(true, true, false).Draw(w.t, "commit")
	f := w.drawFault()
	// The model first: what is behind a savepoint that is rolled back leaves nothing.
	before := w.mark()
	var want error
	var done effects
	var pubs []func(ctx context.Context, tx *sql.Tx) error
	for _, s := range parts {
		_, e, me := w.event(p, s.spec)
		pubs = append(pubs, func(ctx context.Context, tx *sql.Tx) error {
			return behind(ctx, tx, s.savepoint, func() error { return p.put(ctx, tx, e, s.how) })
		})
		if want != nil {
			continue
		}
		before := w.mark()
		woken, err := w.accept(p, me, s.how)
		if want = err; s.savepoint == "rolled back" {
			w.backTo(before)
			continue
		}
		done.woken = append(done.woken, woken...)
	}
	if want == nil && !commit {
		want = errRollback
	}
	var err error
	eff := w.under(p, f, func() {
		err = p.DB.InTx(w.tb.ctx, func(ctx context.Context, tx *sql.Tx) error {
			for _, pub := range pubs {
				if err := pub(ctx, tx); err != nil {
					return err
				}
			}
			if !commit {
				return errRollback
			}
			return nil
		})
	})
	if want != nil || eff.fired && eff.commits == 0 {
		w.backTo(before)
		done = effects{}
	}
	if !eff.fired && (!errors.Is(err, want) || want == nil && err != nil) || eff.fired && err == nil {
		w.t.Fatalf("the transaction: %v, want %v", err, want)
	}
	if eff.crashed {
		w.replace(p)
	}
	w.check(done)
}

// mark is how much there is of what publishes add, and backTo takes away what came after it.
type mark struct{ rows, queue, journal int }

func (w *world) mark() mark { return mark{len(w.m.rows), len(w.m.queue), len(w.journal)} }

func (w *world) backTo(m mark) {
	w.m.rows, w.m.queue, w.journal = w.m.rows[:m.rows], w.m.queue[:m.queue], w.journal[:m.journal]
}

// behind publishes an event behind a savepoint.
func behind(ctx context.Context, tx *sql.Tx, savepoint string, put func() error) error {
	end := []string{}
	switch savepoint {
	case "released":
		end = []string{`RELEASE SAVEPOINT s`}
	case "rolled back":
		end = []string{`ROLLBACK TO SAVEPOINT s`, `RELEASE SAVEPOINT s`}
	}
	if len(end) > 0 {
		if _, err := tx.ExecContext(ctx, `SAVEPOINT s`); err != nil {
			return err
		}
	}
	if err := put(); err != nil {
		return err
	}
	for _, q := range end {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// publishInRun lets a handler publish: its event's id is derived, so that a run that is repeated does not publish twice (E-15).
func (w *world) publishInRun() {
	h := w.drawHeld()
	s := spec{name: oneOf(placed, placed, placed, paid).Draw(w.t, "name"), payload: oneOf(1, 1, 1, 2).Draw(w.t, "payload"), how: oneOf(captured, captured, enqueued).Draw(w.t, "how")}
	f := w.drawFault()
	r := h.run
	what := fmt.Sprintf("(%s:%s %s %d)", r.row.event.label, r.row.key, s.name, s.payload)
	ordinal := h.equal[what]
	var e events.Event
	var err error
	h.tell(func() (bool, error) {
		e, err = events.New(h.ctx, s.name, events.Payload{"n": s.payload}, w.limits())
		return false, nil
	})
	if deep := r.row.event.depth >= depthLimit; deep != errors.Is(err, events.ErrTooDeep) || !deep && err != nil { // E-14
		w.t.Fatalf("publishing at depth %d: %v", r.row.event.depth+1, err)
	} else if deep {
		w.m.saw["E-14 too deep"]++
		return
	}
	what2 := fmt.Sprintf("%s/%s/%d", r.row.event.tenant, what, ordinal)
	if id, made := w.derived[what2]; made && id != e.ID {
		w.t.Fatalf("%s has another id than in an earlier run", what2)
	}
	for other, id := range w.derived {
		if other != what2 && id == e.ID {
			w.t.Fatalf("%s and %s have the same id", what2, other)
		}
	}
	if w.derived[what2] != "" {
		w.m.saw["E-15 the same id in a later run"]++
	}
	w.derived[what2] = e.ID
	me := &event{
		id: e.ID, label: fmt.Sprintf("%s#%d", what, ordinal), tenant: r.row.event.tenant, name: s.name, payload: s.payload,
		depth: r.row.event.depth + 1,
	}
	if r.cause != nil { // its context has ended: nothing is published on it
		h.tell(func() (bool, error) {
			if err = h.p.putNow(h.ctx, e, s.how); err != nil {
				e.Unpublished()
			}
			return false, nil
		})
		if err == nil {
			w.t.Fatal("published on a context that has ended")
		}
		w.check(effects{})
		return
	}
	if w.published(h.p, me, s.how, f, func() error {
		h.tell(func() (bool, error) {
			if err = h.p.putNow(h.ctx, e, s.how); err != nil {
				e.Unpublished()
			}
			return false, nil
		})
		return err
	}) {
		h.equal[what]++
	}
}
