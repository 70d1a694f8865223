package loam_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// pages sets how large the database may become; 0 is as large as it is.
func pages(t *testing.T, db *database.DB, n int) {
	t.Helper()
	var now int
	if err := db.Write().QueryRowContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", max(n, 1))).Scan(&now); err != nil {
		t.Fatal(err)
	}
}

// The database is full when the outcomes of failed runs are to be written. The publisher is told so, the log says why, the
// workers live on, and when there is space again every row goes on where it was, without a failure that it did not have.
//
// contract: D-05, D-09
// scenario: B213
func TestOutcomesIntoAFullDatabase(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.Open(t) // only its size can be limited
	const n = 20
	started, release := make(chan struct{}, 10*n), make(chan struct{})
	var runs atomic.Int64
	reg := durable.NewRegistry()
	for i := range n {
		reg.RegisterFunc(fmt.Sprintf("s.%02d", i), "shop.", func(context.Context, events.Event) error {
			first := runs.Add(1) <= n
			started <- struct{}{}
			<-release
			if first {
				return errors.New(strings.Repeat("a text that needs pages of its own. ", 200))
			}
			return nil
		}, durable.WithBackoff(time.Millisecond), durable.WithMaxAttempts(2))
	}
	reg.RegisterFunc("filler", "filler.", func(context.Context, events.Event) error { return nil })
	logs := &rig.Logs{}
	engine := startEngine(t, db, reg, func(c *loam.Config) { c.Logger = slog.New(logs) })
	if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
		t.Fatal(err)
	}
	receive(t, started, n, "handlers started")

	pages(t, db, 0)
	fillers := fill(t, engine)
	close(release)
	until(t, 60*time.Second, "seen in the log", func() bool { return len(logs.Lines("ERROR", database.ErrFull.Error())) > 0 })
	if err := engine.Publish(inTenant(t), "filler.made.big", events.Payload{"text": strings.Repeat("x", 60_000)}); !errors.Is(err, database.ErrFull) {
		t.Errorf("Publish into a full database: %v", err)
	}
	if got := count(t, db, `event_name = 'shop.order.paid' AND status <> 'pending'`); got != 0 {
		t.Errorf("%d rows are final", got)
	}

	pages(t, db, 1<<30)
	until(t, 60*time.Second, "all delivered", func() bool { return count(t, db, `status <> 'delivered'`) == 0 })
	if got := count(t, db, `event_name = 'shop.order.paid' AND attempts = 1 AND runs = 2`); got != n {
		t.Errorf("%d of %d rows have one failure and two runs", got, n)
	}
	if got := count(t, db, `event_name = 'filler.made.big' AND attempts = 0`); got != fillers {
		t.Errorf("%d fillers are there, %d were confirmed", got, fillers)
	}
}

// fill publishes until the database is full for the smallest event, and returns how many it took.
func fill(t *testing.T, engine *loam.Engine) int {
	t.Helper()
	taken := 0
	for _, size := range []int{60_000, 5_000, 1} {
		for {
			err := engine.Publish(inTenant(t), "filler.made.big", events.Payload{"text": strings.Repeat("x", size)})
			if errors.Is(err, database.ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			taken++
		}
	}
	return taken
}

// full is what the driver returns when the disk is full.
type full struct{}

func (full) Error() string { return "database or disk is full (13)" }

// Code is SQLite's.
func (full) Code() int { return 13 }

// For some seconds every write fails, with fifty handlers that have ended and publishers that try on. The outcomes are
// tried less and less often, the log stays short, publishers are told, and afterwards every row is delivered by the run that
// it had.
//
// contract: D-05, D-08
// scenario: B214
func TestEveryWriteFails(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		const n = 50
		started, release := make(chan struct{}, 10*n), make(chan struct{})
		reg := durable.NewRegistry()
		for i := range n {
			reg.RegisterFunc(fmt.Sprintf("s.%02d", i), "shop.", func(context.Context, events.Event) error {
				started <- struct{}{}
				<-release
				return nil
			})
		}
		logs := &rig.Logs{}
		engine := startEngine(t, db, reg, func(c *loam.Config) {
			c.Logger = slog.New(logs)
			c.RenewEvery, c.LostClaimsEvery, c.SweepEvery = time.Second, time.Second, time.Second
		})
		if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		receive(t, started, n, "handlers started")

		var begins atomic.Int64
		faults.Before(func(op dbtest.Op) error {
			switch {
			case op.Kind == "begin":
				begins.Add(1)
				return full{}
			case strings.Contains(op.SQL, "UPDATE "), strings.Contains(op.SQL, "INSERT "), strings.Contains(op.SQL, "DELETE "):
				return full{}
			}
			return nil
		})
		before := len(logs.Lines("WARN")) + len(logs.Lines("ERROR"))
		close(release)
		until(t, 60*time.Second, "trying to write the outcomes", func() bool { return begins.Load() >= n })
		// The waits of an outcome double from 100 ms: in the second two seconds it is tried a fifth as often.
		half := [2]int64{}
		for i := range half {
			was, end := begins.Load(), time.NewTimer(2*time.Second)
			for over := false; !over; {
				select {
				case <-end.C:
					over = true
				case <-time.After(100 * time.Millisecond):
					if err := engine.Publish(inTenant(t), "shop.order.paid", nil); !errors.Is(err, database.ErrFull) {
						t.Fatalf("Publish with a full disk: %v", err)
					}
				}
			}
			half[i] = begins.Load() - was
		}
		if half[1] > half[0]*2/3 {
			t.Errorf("%d transactions were tried in the first two seconds, %d in the next", half[0], half[1])
		}
		lines := append(logs.Lines("WARN"), logs.Lines("ERROR")...)
		if got := len(lines) - before; got == 0 || got > 20 {
			t.Errorf("%d log lines in four seconds:\n%s", got, strings.Join(lines, "\n"))
		}
		t.Logf("%d log lines; transactions tried: %v\n%s", len(lines)-before, half, strings.Join(lines, "\n"))

		faults.Before(nil)
		until(t, 60*time.Second, "all delivered", func() bool { return count(t, db, `status = 'delivered' AND attempts = 0 AND runs = 1`) == n })
		if len(started) != 0 {
			t.Errorf("%d handlers ran again", len(started))
		}
		if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
			t.Errorf("Publish after the outage: %v", err)
		}
	})
}
