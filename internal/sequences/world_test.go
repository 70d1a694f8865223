package sequences_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// stage is a database that sequences use one after the other: what is slow to make.
type stage struct {
	t      *testing.T
	seen   *rig.Rig // keeps the wake-ups
	looks  looks
	dbs    []*database.DB
	faults []*dbtest.Faults
	begun  int            // sequences
	saw    map[string]int // how often each rule of the model was met
}

var tenants = []string{"acme", "globex"}

// newStage makes a stage in a database of its own, with a handle for each process and one to look.
func newStage(t *testing.T, kind database.Dialect) *stage {
	t.Helper()
	at := dbtest.Fresh(t, kind)
	db, _ := dbtest.OpenPlace(t, at) // migrated
	rig.New(t, db)
	s := &stage{t: t, saw: map[string]int{}}
	out := newOutside(t)
	for range 3 {
		faults := &dbtest.Faults{}
		if kind == database.SQLite {
			db, faults = dbtest.OpenPlace(t, at)
		} else {
			db = out.open(t, at, faults)
		}
		s.dbs, s.faults = append(s.dbs, db), append(s.faults, faults)
	}
	s.looks = newLooks(t, db)
	s.seen = rig.Over(t, db, rig.NewClock())
	return s
}

// world is one sequence: the processes, and the model of what they do. It lives in a synctest bubble, in which the
// processes' own clock moves only when all of them wait. Everything goes on one step at a time, so that a sequence is repeated
// exactly.
type world struct {
	t     *rapid.T
	tb    *seqTB
	stage *stage
	seen  *rig.Rig
	clock *rig.Clock
	m     *model
	procs []*process
	retry *retry // at most one at a time

	last    snapshot // what the database had after the last step
	byID    map[string]*row
	table   []durable.Wakeup
	events  int
	derived map[string]string
	journal []journaled

	mu      sync.Mutex
	entered []*held // handlers that have started and were not looked at
	all     []*held // of processes that live, also those that have ended
}

// process is a process that lives.
type process struct {
	*rig.Rig
	*proc
	slot   int
	faults *dbtest.Faults
	held   []*held
	errs   chan error // what Deliver returned

	bus    *sink
	sender *outbox.Queue // relays to the bus
	away   bool          // which it has found away
}

// retry is a transaction that is still to come, because its first try failed or because its process stalls: when it comes, and
// what it does.
type retry struct {
	p       *process
	at      time.Time
	apply   func() effects
	stalled chan error // not nil: its process waits here, holding its connection, before time goes on
}

// retryAfter is how long after the first try the second comes.
const retryAfter = 100 * time.Millisecond

// effects are what must be seen of a step, beside the rows.
type effects struct {
	started []*run
	woken   []wake
	loose   bool // a wake-up may be there more than once
}

// seqTB lets rig's failures fail the sequence, so that it is shrunk.
type seqTB struct {
	testing.TB
	t        *rapid.T
	ctx      context.Context //nolint:containedctx // as in testing.T
	cleanups []func()
}

func (b *seqTB) Helper()                   {}
func (b *seqTB) Context() context.Context  { return b.ctx }
func (b *seqTB) Cleanup(f func())          { b.cleanups = append(b.cleanups, f) }
func (b *seqTB) Error(args ...any)         { b.t.Fatal(args...) }
func (b *seqTB) Errorf(f string, a ...any) { b.t.Fatalf(f, a...) }
func (b *seqTB) Fatal(args ...any)         { b.t.Fatal(args...) }
func (b *seqTB) Fatalf(f string, a ...any) { b.t.Fatalf(f, a...) }

// begin empties the database and starts two processes.
func (s *stage) begin(t *rapid.T) *world {
	s.begun++
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{
		t: t, tb: &seqTB{TB: s.t, t: t, ctx: ctx, cleanups: []func(){cancel}}, stage: s, clock: rig.NewClock(), m: newModel(s.saw),
		byID: map[string]*row{}, derived: map[string]string{},
	}
	w.empty("event_queue", "event_deliveries", "processed_events", "loam_subscribers", "loam_tenants", "loam_pauses", "test_wakeups")
	seen := *s.seen
	seen.T = w.tb
	w.seen = &seen
	fraction := oneOf(0, 457*time.Microsecond).Draw(t, "fraction") // times are cut to microseconds, wake-ups rounded up to milliseconds
	w.clock.Add(w.clock.Now().Truncate(time.Millisecond).Add(fraction).Sub(w.clock.Now()))
	w.m.now, w.m.mono = w.clock.Now(), time.Now()
	for _, t := range tenants {
		w.addTenant(t)
	}
	w.procs = make([]*process, 2)
	w.start(0, &first)
	w.start(1, w.drawRelease())
	w.check(effects{})
	return w
}

func (w *world) empty(tables ...string) {
	w.must(w.stage.seen.DB.InTx(w.tb.ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, table := range tables {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table); err != nil {
				return err
			}
		}
		return nil
	}))
}

// end ends everything, whatever state it is in.
func (w *world) end() {
	for _, p := range w.procs {
		w.die(p)
	}
	for _, f := range slices.Backward(w.tb.cleanups) {
		f()
	}
	for _, f := range w.stage.faults {
		f.Before(nil)
		f.After(nil)
	}
}

// start makes a fresh process.
func (w *world) start(slot int, code *release) {
	base := *w.seen
	base.DB, base.Clock = w.stage.dbs[slot], w.clock
	p := &process{
		Rig: base.Second(func(c *durable.Config) {
			c.Concurrency, c.CrashLimit, c.StuckAfter = slots, crashLimit, stuckAfter
		}),
		proc: &proc{name: []string{"A", "B"}[slot], code: code},
		slot: slot, faults: w.stage.faults[slot], errs: make(chan error, 1000),
	}
	w.procs[slot] = p
	p.Queue.MaxAttempts = rowAttempts
	p.bus = &sink{w: w}
	p.sender = p.WithSink(p.bus)
	for i := range code.subs {
		w.register(p, &code.subs[i])
	}
	for _, key := range code.retired {
		p.Registry.Retire(key)
	}
	p.Registry.Seal()
	w.must(p.Deliveries.Announce(w.tb.ctx, true))
	w.m.announce(code, true)
}

// kill makes a process dead in the middle of whatever it does: it reads and writes nothing any more.
func (p *process) kill() {
	killed := errors.New("killed")
	p.faults.Before(func(dbtest.Op) error { return killed })
	p.faults.After(nil)
	p.Deliveries.Stop() // no second try
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Deliveries.Wait(now) // nor for outcomes
}

// die kills a process and lets what is left of it in this one end.
func (w *world) die(p *process) {
	if p == nil {
		return
	}
	p.kill()
	if w.retry != nil && w.retry.p == p {
		if w.retry.stalled != nil {
			w.retry.stalled <- errInjected
		}
		w.retry = nil
	}
	w.mu.Lock()
	for _, h := range w.all {
		if h.p == p {
			close(h.cmds)
		}
	}
	w.all = slices.DeleteFunc(w.all, func(h *held) bool { return h.p == p })
	w.mu.Unlock()
	synctest.Wait()
	for _, r := range p.runs {
		r.known = false
	}
	p.held, p.runs = nil, nil
	p.faults.Before(nil)
	w.procs[p.slot] = nil
}

// pass lets time go on, for all clocks.
func (w *world) pass(d time.Duration) {
	end := w.m.mono.Add(d)
	for w.retry != nil && !w.retry.at.After(end) {
		again := w.retry
		w.retry = nil
		w.tick(again.at.Sub(w.m.mono))
		if again.stalled != nil {
			again.stalled <- nil
			synctest.Wait()
		}
		w.check(again.apply())
	}
	w.tick(end.Sub(w.m.mono))
}

// again is what comes after a fault that has not killed the process.
func (w *world) again(p *process, e effect, apply func() effects) *retry {
	r := &retry{p, w.m.mono.Add(retryAfter), apply, e.stalled}
	if e.stalled != nil {
		r.at = w.m.mono
	}
	return r
}

// tick is pass, with nothing that is tried again on the way. The engine's clock goes first, so that who wakes sees it.
func (w *world) tick(d time.Duration) {
	w.clock.Add(d)
	time.Sleep(d)
	synctest.Wait()
	w.m.now, w.m.mono = w.clock.Now(), time.Now()
	for _, p := range w.procs {
		if p != nil {
			w.m.pass(p.proc)
		}
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatalf("unexpected: %v", err)
	}
}
