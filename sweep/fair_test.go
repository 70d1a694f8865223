package sweep_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/sweep"
	"github.com/openloam/loam/tenant"
)

// directory is a tenant.Directory that the test answers for.
type directory struct {
	list func(after string, limit int) ([]string, error)
}

func (directory) Exists(context.Context, tenant.Querier, string) (bool, error) { return true, nil }

func (d directory) List(_ context.Context, after string, limit int) ([]string, error) {
	return d.list(after, limit)
}

// sweeper makes a Sweeper over r with a directory of the test's.
func sweeper(r *rig.Rig, timeout time.Duration, list func(after string, limit int) ([]string, error)) *sweep.Sweeper {
	return sweep.New(sweep.Config{
		DB: r.DB, Deliveries: r.Deliveries, Ledger: r.Ledger, Tenants: directory{list}, Now: r.Clock.Now, Logger: slog.New(r.Logs),
		Limit: sweep.Limit, Timeout: timeout,
	})
}

// contract: S-04, S-05. A row that cannot be woken does not keep the others asleep; it is reported.
// scenario: B062
func TestARowThatCannotBeWoken(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		mailer(r)
		fill(t, r, "acme", 100, durable.Pending, "mailer", r.Clock.Now())
		poison, conflict := r.Rows("acme")[37].ID, errors.New("unique violation")
		r.Wakeups.Fail = func(w durable.Wakeup) error {
			if slices.Contains(w.IDs, poison) {
				return fmt.Errorf("%w: %s", conflict, poison)
			}
			return nil
		}
		n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), r.Clock.Now(), 500)
		ids := woken(r)
		if n != 99 || len(ids) != 99 || slices.Contains(ids, poison) {
			t.Errorf("woke %d, by wake-ups of %d rows", n, len(ids))
		}
		if !errors.Is(err, conflict) || strings.Count(err.Error(), poison) != 1 {
			t.Errorf("the report: %v", err)
		}
	})
}

// contract: S-05, S-01. A tenant whose sweep fails does not keep the others from theirs; the error names it.
func TestAFailingTenant(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		mailer(r)
		for _, id := range []string{"acme", "globex", "initech"} {
			fill(t, r, id, 500, durable.Pending, "mailer", r.Clock.Now())
		}
		rig.Exec(t, db, `INSERT INTO loam_tenants VALUES ('initech', '2026-01-01')`)
		full := errors.New("the queue is full")
		r.Wakeups.Fail = func(w durable.Wakeup) error {
			if w.Tenant == "globex" {
				return full
			}
			return nil
		}
		more, err := r.Sweeper.All(t.Context(), "")
		ids := woken(r)
		if !errors.Is(err, full) || !strings.Contains(err.Error(), `"globex"`) || strings.Contains(err.Error(), "acme") {
			t.Errorf("the error is %.200v", err)
		}
		if len(ids) != 1000 || !strings.HasPrefix(ids[0], "acme") || !strings.HasPrefix(ids[999], "initech") {
			t.Errorf("%d rows were woken", len(ids))
		}
		if len(more.Full) != 3 { // its rows have their turn too, later
			t.Errorf("full were %v", more)
		}
	})
}

// contract: S-05, S-01. A tenant whose sweep hangs takes its own time limit, and no more.
// scenario: B066
func TestABlockedTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, _ := dbtest.Open(t)
		var hang blocking
		r := rig.New(t, db, func(c *durable.Config) {
			hang.Enqueuer = c.Enqueuer
			c.Enqueuer = &hang
		})
		mailer(r)
		for _, id := range []string{"acme", "globex"} {
			fill(t, r, id, 3, durable.Pending, "mailer", r.Clock.Now())
		}
		began := time.Now()
		_, err := r.Sweeper.All(t.Context(), "")
		if took := time.Since(began); took != 30*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
		if ids := woken(r); len(ids) != 3 || !strings.HasPrefix(ids[0], "globex") {
			t.Errorf("woken %v", ids)
		}
	})
}

// blocking hangs for acme until the context ends.
type blocking struct{ durable.Enqueuer }

func (b *blocking) Enqueue(ctx context.Context, tx *sql.Tx, wakeups []durable.Wakeup) error {
	if len(wakeups) > 0 && wakeups[0].Tenant == "acme" {
		<-ctx.Done()
		return ctx.Err()
	}
	return b.Enqueuer.Enqueue(ctx, tx, wakeups)
}

// contract: S-05. A pass that failed, or panicked, leaves nothing behind: the next one sweeps all tenants.
// scenario: B067
func TestAPassAfterOneThatFailed(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		mailer(r)
		fill(t, r, "acme", 1, durable.Pending, "mailer", r.Clock.Now())
		fill(t, r, "globex", 1, durable.Pending, "mailer", r.Clock.Now())
		broken := errors.New("the database is away")
		tick := 0
		s := sweeper(r, time.Minute, func(string, int) ([]string, error) {
			switch tick {
			case 4:
				return nil, broken
			case 5:
				panic("the directory is broken")
			}
			return []string{"acme", "globex"}, nil
		})
		for tick = 1; tick <= 6; tick++ {
			if tick == 3 {
				faults.Before(func(dbtest.Op) error { return broken })
			}
			var err error
			var panicked any
			func() {
				defer func() { panicked = recover() }()
				_, err = s.All(t.Context(), "")
			}()
			faults.Before(nil)
			want := 2
			if tick >= 3 && tick <= 5 {
				want = 0
			}
			if n := len(woken(r)); n != want || (panicked != nil) != (tick == 5) || errors.Is(err, broken) != (tick == 3 || tick == 4) {
				t.Errorf("tick %d: %d rows woken, want %d; %v, panic %v", tick, n, want, err, panicked)
			}
		}
	})
}

// contract: S-05, S-01. Tenants are read by pages; when one cannot be read, those before it have had their turn.
func TestAPageOfTenantsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		mailer(r)
		fill(t, r, "t000", 1, durable.Pending, "mailer", r.Clock.Now())
		fill(t, r, "t499", 1, durable.Pending, "mailer", r.Clock.Now())
		broken := errors.New("the directory is away")
		var asked []string
		s := sweeper(r, time.Minute, func(after string, limit int) ([]string, error) {
			if asked = append(asked, after); after != "" {
				return nil, broken
			}
			var ids []string
			for i := range limit {
				ids = append(ids, fmt.Sprintf("t%03d", i))
			}
			return ids, nil
		})
		_, err := s.All(t.Context(), "")
		if got := fmt.Sprint(woken(r)); got != "[t000mailer000001 t499mailer000001]" || !errors.Is(err, broken) {
			t.Errorf("woken %s, %v", got, err)
		}
		if !slices.Equal(asked, []string{"", "t499"}) {
			t.Errorf("the pages after %q were asked for", asked)
		}
	})
}

// contract: J-03, S-02, L-05. The sweep has found a row, and before its wake-up is written a worker delivers it: the row stays
// delivered, and the wake-up that is one too many runs nothing.
// scenario: B046
func TestASweepThatComesTooLate(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := rig.New(t, db)
		calls := mailer(r)
		e := r.Publish("acme", paid, nil)
		other, _ := process(t, r)
		w, _ := r.Wakeups.Next(r.Clock.Now())
		var once sync.Once
		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "begin" {
				once.Do(func() { other.Deliver(w) })
			}
			return nil
		})
		n, err := r.Sweeper.RedeliverStuck(r.Ctx("acme"), r.Clock.Now(), 500)
		if n != 1 || err != nil || calls[e.ID] != 1 {
			t.Fatalf("woke %d, %v; %d calls", n, err, calls[e.ID])
		}
		before := dump(t, db)
		if r.Work() != 1 || calls[e.ID] != 1 || dump(t, db) != before || len(r.Wakeups.All()) != 0 {
			t.Errorf("%d calls, wake-ups %v, %s", calls[e.ID], r.Wakeups.All(), dump(t, db))
		}
	})
}

// contract: D-09, D-10, J-03, L-02. Many processes, each working and sweeping, spend no more attempts than there are.
// scenario: B070
func TestManyWorkersAndSweepers(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		var calls atomic.Int32
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls.Add(1)
			return errors.New("no")
		})
		processes := []*rig.Rig{r}
		for range 5 {
			p, _ := process(t, r)
			processes = append(processes, p)
		}
		r.Publish("acme", paid, nil)
		all := func() {
			var wg sync.WaitGroup
			for _, p := range processes {
				wg.Go(func() {
					if _, err := p.Sweeper.All(t.Context(), ""); err != nil {
						t.Error(err)
					}
					p.Work()
				})
			}
			wg.Wait()
		}
		for n, wait := range []time.Duration{0, 60, 300, 1800, 7200, 7200} {
			if wait > 0 {
				r.Clock.Add(wait*time.Second - time.Microsecond)
				all()
				if got := calls.Load(); got != int32(min(n, 5)) {
					t.Fatalf("%d calls before retry %d was due", got, n)
				}
				r.Clock.Add(time.Millisecond)
			}
			all()
			if got := calls.Load(); got != int32(min(n+1, 5)) {
				t.Fatalf("%d calls in round %d", got, n+1)
			}
		}
		if row := r.Row("acme", "mailer"); row.Status != durable.Dead || row.Attempts != 5 || row.Runs != 5 {
			t.Errorf("in the end %+v", row)
		}
	})
}
