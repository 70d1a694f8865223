package loam_test

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/pgserver"
	"github.com/openloam/loam/internal/rig"
)

// outageWorld is an engine over a PostgreSQL of its own, with a handler that takes a while.
type outageWorld struct {
	server *pgserver.Server
	db     *database.DB
	engine *loam.Engine
	logs   *rig.Logs
	ran    sync.Map // event => *atomic.Int32: how often
	now    atomic.Int32
	hold   atomic.Int32 // so many handlers wait for each other
}

func newOutageWorld(t *testing.T) *outageWorld {
	t.Helper()
	w := &outageWorld{server: pgserver.Start(t), logs: &rig.Logs{}}
	var err error
	if w.db, err = postgres.Open(t.Context(), w.server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.db.Close() })
	reg := durable.NewRegistry()
	reg.RegisterFunc("slow", "shop.order.paid", func(ctx context.Context, e events.Event) error {
		n, _ := w.ran.LoadOrStore(e.ID, &atomic.Int32{})
		n.(*atomic.Int32).Add(1)
		w.now.Add(1)
		defer w.now.Add(-1)
		for w.now.Load() < w.hold.Load() && ctx.Err() == nil {
			<-time.After(10 * time.Millisecond)
		}
		<-time.After(200 * time.Millisecond)
		return ctx.Err()
	})
	cfg := loam.Config{DB: w.db, Registry: reg, Logger: slog.New(w.logs)}
	shortLease(&cfg)
	cfg.Lease = 5 * time.Second // longer than the server is away: no run is repeated
	cfg.TakeoverMargin, cfg.SweepEvery = time.Second, 2*time.Second
	if w.engine, err = loam.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := w.engine.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.engine.AddTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if err := w.engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopEngine(t, w.engine) })
	return w
}

// publish publishes an event with this number, and says whether it is certain to be there.
func (w *outageWorld) publish(t *testing.T, n int) error {
	t.Helper()
	return w.engine.Publish(inTenant(t), "shop.order.paid", events.Payload{"order": n}, events.WithID(killEvent(n)))
}

// settled waits until nothing is pending, and returns how many rows are delivered.
func (w *outageWorld) settled(t *testing.T, limit time.Duration) (delivered int) {
	t.Helper()
	until(t, limit, "all delivered", func() bool {
		var pending int
		err := w.db.Own().QueryRowContext(t.Context(), `SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'delivered')
			FROM event_deliveries`).Scan(&pending, &delivered)
		return err == nil && pending == 0
	})
	return delivered
}

// While the server is restarted, idle and with handlers running, published to all the while: what is published afterwards
// runs within 30 s, rows in flight end delivered, and of each outage the log says once that it began and once that it ended.
//
// contract: J-04
// scenario: B074
func TestPostgreSQLIsRestarted(t *testing.T) {
	t.Parallel()
	w := newOutageWorld(t)
	n, sure := 0, 0
	for range 20 { // idle afterwards
		if err := w.publish(t, n); err != nil {
			t.Fatal(err)
		}
		n, sure = n+1, sure+1
	}
	w.settled(t, 30*time.Second)
	for round, busy := range []bool{false, true, true} {
		if busy {
			w.hold.Store(10)
			for range 10 {
				if err := w.publish(t, n); err != nil {
					t.Fatal(err)
				}
				n, sure = n+1, sure+1
			}
			until(t, 30*time.Second, "ten handlers run", func() bool { return w.now.Load() == 10 })
			w.hold.Store(0)
		}
		w.server.Down()
		if err := w.publish(t, n); err == nil || !strings.Contains(err.Error(), database.ErrUnreachable.Error()) {
			t.Errorf("round %d: published to no server: %v", round, err)
		}
		<-time.After(2 * time.Second) // so that renewals and checks meet the outage
		w.server.Up()
		began := time.Now()
		until(t, 30*time.Second, "published again", func() bool { return w.publish(t, n) == nil })
		n, sure = n+1, sure+1
		w.settled(t, 30*time.Second)
		t.Logf("round %d: new events are delivered %v after the server is back", round, time.Since(began).Round(time.Millisecond))
	}
	if got := w.settled(t, 30*time.Second); got != sure {
		t.Errorf("%d rows are delivered, want %d", got, sure)
	}
	w.ran.Range(func(id, n any) bool {
		if got := n.(*atomic.Int32).Load(); got != 1 {
			t.Errorf("event %v ran %d times; no lease was over", id, got)
		}
		return true
	})
	for _, what := range []string{"renewing claims", "checking for lost claims"} {
		began, ended := len(w.logs.Lines(what, "ERROR")), len(w.logs.Lines(what, "INFO"))
		if began == 0 || began > 3 || began != ended {
			t.Errorf("three outages: %q was logged to begin %d times, and to end %d times:\n%s", what, began, ended, strings.Join(w.logs.Lines(what), "\n"))
		}
	}
}

// Of a run whose connection is cut while its outcome is committed, the outcome is written again, and once.
//
// scenario: B050, B013
func TestBackendsAreTerminated(t *testing.T) {
	t.Parallel()
	w := newOutageWorld(t)
	stop := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		killer, err := sql.Open("pgx", w.server.URL())
		if err != nil {
			return
		}
		defer func() { _ = killer.Close() }()
		for cut := 0; ; cut++ {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
				_, _ = killer.ExecContext(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE pid <> pg_backend_pid() AND application_name = 'loam' AND backend_type = 'client backend'`)
			}
		}
	})
	const total = 200
	lost := 0
	for n := range total {
		for w.publish(t, n) != nil { // with the same id: it is there once, whatever the answer was
			lost++
			if lost > 1000 {
				t.Fatal("nothing can be published")
			}
		}
	}
	close(stop)
	cutting.Wait()
	if got := w.settled(t, 60*time.Second); got != total {
		t.Errorf("%d rows are delivered, want %d", got, total)
	}
	repeats := 0
	w.ran.Range(func(_, n any) bool { repeats += int(n.(*atomic.Int32).Load()) - 1; return true })
	var attempts int
	rig.Scan(t, w.db, `SELECT sum(attempts) FROM event_deliveries`, nil, &attempts)
	if attempts != 0 || lost == 0 {
		t.Errorf("%d attempts were spent on lost connections; %d publishes failed", attempts, lost)
	}
	t.Logf("%d events, %d publishes failed and were repeated, %d runs were repeated", total, lost, repeats)
}
