package loam_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// A handler outlives the drain and the stop, and the database is closed under it. Stop says so, and the handler's end, when
// it comes, is one error line with the delivery's id, and no panic. The next process runs it again.
//
// contract: D-14, L-08
// scenario: B054
func TestHandlerOutlivesTheDatabase(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		db, _ := dbtest.OpenPlace(t, s.place)
		started, release := make(chan struct{}, 10), make(chan struct{})
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(context.Context, events.Event) error {
			started <- struct{}{}
			<-release
			return nil
		})
		logs := &rig.Logs{}
		engine := newEngine(t, db, reg, shortLease, func(c *loam.Config) {
			c.Logger, c.DrainTimeout, c.StopTimeout = slog.New(logs), time.Second, 500*time.Millisecond
		})
		if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		if err := engine.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		receive(t, started, 1, "handlers started")
		var id string
		rig.Scan(t, db, `SELECT id FROM event_deliveries`, nil, &id)
		began := time.Now()
		if err := engine.Stop(t.Context()); err == nil {
			t.Error("Stop did not say that a handler still runs")
		}
		if took := time.Since(began); took < time.Second || took > 20*time.Second {
			t.Errorf("Stop took %v, with a drain of 1s", took)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		close(release)
		until(t, 60*time.Second, "logged", func() bool { return len(logs.Lines("ERROR", id)) > 0 })

		second, _ := dbtest.OpenPlace(t, s.place)
		startEngine(t, second, reg, shortLease)
		until(t, 60*time.Second, "delivered", func() bool { return count(t, second, `status = 'delivered' AND attempts = 0 AND runs = 2`) == 1 })
		if lines := logs.Lines("ERROR", id); len(lines) != 1 {
			t.Errorf("%d error lines for one delivery:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}

// Stop's own context can end the drain: the handlers are cancelled then, whatever Config.DrainTimeout says.
//
// contract: D-14
func TestStopWithoutPatience(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		started, causes := make(chan struct{}, 10), make(chan error, 10)
		reg := durable.NewRegistry()
		reg.RegisterFunc("mail", "shop.", func(ctx context.Context, _ events.Event) error {
			started <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
		engine := startEngine(t, db, reg, func(c *loam.Config) { c.DrainTimeout = time.Hour })
		if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		receive(t, started, 1, "handlers started")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := engine.Stop(ctx); err != nil {
			t.Error(err)
		}
		if cause := <-causes; !errors.Is(cause, durable.ErrShutdown) {
			t.Errorf("the handler's context ended because of %v", cause)
		}
		if n := count(t, db, `status = 'pending' AND attempts = 0 AND unfinished = 0`); n != 1 {
			t.Error("the run that was cut short left a mark on its row")
		}
	})
}

func init() { children["stubborn"] = stubborn }

const (
	stubbornRows = 50
	throughEnv   = "LOAM_TEST_THROUGH"
)

// stubborn has handlers that wait for the end of their context and return its error, or succeed if they are told to.
func stubborn(ctx context.Context) error {
	runs, err := openDiary(fmt.Sprintf("runs.%d", os.Getpid()))
	if err != nil {
		return err
	}
	reg := durable.NewRegistry()
	for i := range stubbornRows {
		key := fmt.Sprintf("s.%02d", i)
		reg.Register(key, "shop.", runs.noted(key, func(ctx context.Context, _ events.Event) error {
			if envInt(throughEnv) == 0 {
				<-ctx.Done()
			}
			return ctx.Err()
		}), durable.WithMaxAttempts(1))
	}
	return work(ctx, reg, func(c *loam.Config) { c.DrainTimeout = 50 * time.Millisecond }, func(ctx context.Context, e *loam.Engine) error {
		return e.Publish(ctx, "shop.order.paid", nil, events.WithID(killEvent(0)))
	})
}

// Fifty handlers are cut short by five shutdowns in a row, and return their context's error. None of it is an attempt: not
// one is dead, though one failure would be the last. The sixth process runs them all.
//
// contract: D-14, D-20
// scenario: B055
func TestShutdownSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		dir := s.dir
		db, _ := dbtest.OpenPlace(t, s.place)
		ran := func(p *process) int {
			p.running()
			all, err := lines(filepath.Join(dir, fmt.Sprintf("runs.%d", p.pid())))
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		for restart := range 5 {
			p := startChild(t, "stubborn", s)
			until(t, 60*time.Second, "all running", func() bool { return ran(p) == stubbornRows })
			p.stop()
			const untouched = `status = 'pending' AND attempts = 0 AND unfinished = 0 AND last_error IS NULL AND next_attempt_at IS NULL`
			if n := count(t, db, untouched); n != stubbornRows {
				t.Fatalf("after stop %d: %d of %d rows are as they were", restart+1, n, stubbornRows)
			}
			woken := map[string]bool{}
			for _, job := range wakeJobs(t, db, "available") {
				for _, id := range job.ids() {
					woken[id] = true
				}
			}
			if len(woken) != stubbornRows {
				t.Errorf("after stop %d: %d of %d rows have a wake-up", restart+1, len(woken), stubbornRows)
			}
		}
		p := startChild(t, "stubborn", s, throughEnv+"=1")
		until(t, 60*time.Second, "all delivered", func() bool {
			p.running()
			return count(t, db, `status = 'delivered' AND attempts = 0`) == stubbornRows
		})
		p.stop()
		if runs := readRuns(t, dir, nil); len(runs) != 6*stubbornRows {
			t.Errorf("%d runs, want %d in each of six processes", len(runs), stubbornRows)
		}
	})
}
