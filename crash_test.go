package loam_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

func init() {
	children["killer"] = killer
	children["holder"] = holder
}

const (
	limitEnv  = "LOAM_TEST_CRASH_LIMIT"
	bystander = 50
)

// killer has a subscriber whose handler kills the process, and fifty that are woken together with it.
func killer(ctx context.Context) error {
	reg := durable.NewRegistry()
	for i := range bystander {
		reg.RegisterFunc(fmt.Sprintf("good.%02d", i), "shop.order.paid", func(context.Context, events.Event) error {
			<-time.After(100 * time.Millisecond)
			return nil
		})
	}
	reg.RegisterFunc("killer", "shop.order.paid", func(context.Context, events.Event) error {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		<-ctx.Done() // never: the process is dead
		return err
	})
	change := func(c *loam.Config) {
		shortLease(c)
		c.CrashLimit = envInt(limitEnv)
	}
	return work(ctx, reg, change, func(ctx context.Context, engine *loam.Engine) error {
		return engine.Publish(ctx, "shop.order.paid", nil, events.WithID(killEvent(0)))
	})
}

// A handler that kills its process is run in as many crashes as the limit allows, and once more; then it is parked, and
// says why. Of the fifty rows that were woken together with it none is parked: they are delivered, each on its own.
//
// contract: D-20
func TestHandlerThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		limit := 3
		if os.Getenv("LOAM_NIGHTLY") == "1" {
			limit = 10
		}
		start := func() *process { return startChild(t, "killer", s, fmt.Sprintf("%s=%d", limitEnv, limit)) }
		p := start()
		p.up()
		db, _ := dbtest.OpenPlace(t, s.place)
		settled := func() bool { return count(t, db, `status = 'pending'`) == 0 && count(t, db, `true`) == bystander+1 }

		deaths := 0
		deadline := time.Now().Add(120 * time.Second)
		for !settled() {
			select {
			case <-p.ended:
				if !p.wait() {
					t.Fatalf("the child has ended by itself: %v\n%s", p.err, p.stderr.String())
				}
				deaths++
				if n := count(t, db, `subscriber_key <> 'killer' AND unfinished > 2`); n > 0 {
					t.Errorf("after death %d: %d rows were in more than two crashes", deaths, n)
				}
				if n := count(t, db, `unfinished = 1`); deaths == 1 && n != bystander+1 {
					t.Errorf("%d rows were in the first crash: they were not woken together", n)
				}
				p = start()
			case <-time.After(50 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatalf("not settled after %d deaths", deaths)
			}
		}
		p.stop()
		if deaths != limit+1 {
			t.Errorf("the process died %d times, with a limit of %d", deaths, limit)
		}
		if n := count(t, db, `status = 'delivered' AND attempts = 0 AND unfinished = 0`); n != bystander {
			t.Errorf("%d of %d others are delivered, with no attempt spent", n, bystander)
		}
		var status, reason string
		var attempts, unfinished int
		rig.Scan(t, db, `SELECT status, attempts, unfinished, last_error FROM event_deliveries WHERE subscriber_key = 'killer'`, nil,
			&status, &attempts, &unfinished, &reason)
		if status != "dead" || attempts != 0 || unfinished != 0 || !strings.Contains(reason, "died") || !strings.Contains(reason, strconv.Itoa(limit)) {
			t.Errorf("the killer is %s with %d attempts, %d unfinished, reason %q", status, attempts, unfinished, reason)
		}
	})
}

// holder has a subscriber that has its effect and never returns.
func holder(ctx context.Context) error {
	effects, err := openDiary("effects")
	if err != nil {
		return err
	}
	reg := durable.NewRegistry()
	reg.RegisterFunc("mail", "shop.order.paid", func(ctx context.Context, e events.Event) error {
		if err := effects.add("sent", e.ID); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	return work(ctx, reg, shortLease, nil)
}

// A process is killed between a handler's effect and its outcome. Not before the lease and the margin are over, and soon
// after that, the handler runs again in another process, once. It spends no attempt, so the last one is still there to be
// used. That the killed process's job is gone too makes no difference.
//
// contract: D-17, D-20, L-01, L-08, S-03
// scenario: B048, B051, B092
func TestKilledBetweenEffectAndOutcome(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		for name, c := range map[string]struct {
			attempts int
			err      error
			loseJobs bool
			status   durable.Status
			after    int
		}{
			"first attempt, its job lost": {attempts: 0, loseJobs: true, status: durable.Delivered, after: 0},
			"last attempt, succeeds":      {attempts: 4, status: durable.Delivered, after: 4},
			"last attempt, fails":         {attempts: 4, err: errors.New("no"), status: durable.Dead, after: 5},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, s.place.Dialect)
				dir := s.dir
				db, _ := dbtest.OpenPlace(t, s.place)
				reg := durable.NewRegistry()
				ran := make(chan time.Time, 10)
				reg.RegisterFunc("mail", "shop.order.paid", func(context.Context, events.Event) error {
					ran <- time.Now()
					return c.err
				})
				engine := newEngine(t, db, reg, func(c *loam.Config) { // the lease of the killed process was a second; ours must last
					c.TakeoverMargin, c.LostClaimsEvery = 200*time.Millisecond, 200*time.Millisecond
				})
				if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
					t.Fatal(err)
				}
				rig.Exec(t, db, `UPDATE event_deliveries SET attempts = $1`, c.attempts)
				child := startChild(t, "holder", s)
				until(t, 60*time.Second, "the effect", func() bool {
					child.running()
					sent, err := lines(filepath.Join(dir, "effects"))
					return err == nil && len(sent) == 1
				})
				child.kill()
				if c.loseJobs {
					rig.Exec(t, db, `DELETE FROM river_job`)
				}
				var lease int64
				rig.Scan(t, db, `SELECT lease_until FROM processed_events WHERE status = 'in_progress'`, nil, &lease)
				free := time.UnixMilli(lease).Add(200 * time.Millisecond)
				if err := engine.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { stopEngine(t, engine) })
				until(t, 60*time.Second, string(c.status), func() bool { return count(t, db, `status = $1`, string(c.status)) == 1 })
				stopEngine(t, engine)
				checkOneMore(t, db, ran, free, c.after)
			})
		}
	})
}

func checkOneMore(t *testing.T, db *database.DB, ran <-chan time.Time, free time.Time, attempts int) {
	t.Helper()
	if len(ran) != 1 {
		t.Fatalf("the handler ran %d more times, want once", len(ran))
	}
	if at := <-ran; at.Before(free) || at.After(free.Add(20*time.Second)) {
		t.Errorf("it ran again at %v; its claim was free from %v", at, free)
	}
	if n := count(t, db, `attempts = $1 AND runs = 2 AND unfinished = 0`, attempts); n != 1 {
		t.Errorf("the crash was counted, or a run was not")
	}
}
