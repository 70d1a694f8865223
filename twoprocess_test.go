package loam_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
)

func init() { children["peer"] = peer }

const (
	secondsEnv = "LOAM_TEST_SECONDS"
	locked     = "database is locked"
)

// peer claims in ten goroutines and publishes in some, all at once, for some seconds. What a publisher gets as an error, and
// each event that was committed, goes into a file of the process.
func peer(ctx context.Context) error {
	runs, err := openDiary(fmt.Sprintf("runs.%d", os.Getpid()))
	if err != nil {
		return err
	}
	published, err := openDiary(fmt.Sprintf("published.%d", os.Getpid()))
	if err != nil {
		return err
	}
	reg := durable.NewRegistry()
	for _, key := range []string{"mail", "stock"} {
		reg.Register(key, "shop.order.paid", runs.noted(key, func(context.Context, events.Event) error { return nil }))
	}
	change := func(c *loam.Config) { c.Concurrency = 10 }
	return work(ctx, reg, change, func(ctx context.Context, engine *loam.Engine) error {
		end := time.Now().Add(time.Duration(envInt(secondsEnv)) * time.Second)
		var publishers sync.WaitGroup
		for range envInt(publishEnv) {
			publishers.Go(func() {
				for time.Now().Before(end) {
					if err := engine.Publish(ctx, "shop.order.paid", nil); err != nil {
						_ = published.add("error", err)
						return
					}
					_ = published.add("ok")
				}
			})
		}
		publishers.Wait()
		return published.add("done")
	})
}

// Two processes over one file, with twenty goroutines that claim and five that publish as fast as they can: SQLite's lock
// reaches no publisher, no attempt counter and no log, and each handler runs once.
//
// contract: L-02, J-03
// scenario: B211
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		seconds := 10
		if os.Getenv("LOAM_NIGHTLY") == "1" {
			seconds = 30
		}
		dir := s.dir
		peers := []*process{}
		for _, publishers := range []int{3, 2} {
			peers = append(peers, startChild(t, "peer", s, fmt.Sprintf("%s=%d", publishEnv, publishers), fmt.Sprintf("%s=%d", secondsEnv, seconds)))
		}
		said := func() (ok int, done int) {
			for _, p := range peers {
				p.running()
				all, err := lines(filepath.Join(dir, fmt.Sprintf("published.%d", p.pid())))
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range all {
					switch line {
					case "ok":
						ok++
					case "done":
						done++
					default:
						t.Fatalf("a publisher got %s", line)
					}
				}
			}
			return ok, done
		}
		events := 0
		until(t, time.Duration(seconds+60)*time.Second, "done publishing", func() bool {
			ok, done := said()
			events = ok
			return done == len(peers)
		})
		db, _ := dbtest.OpenPlace(t, s.place)
		until(t, 60*time.Second, "all delivered", func() bool { return count(t, db, `status <> 'delivered'`) == 0 })
		for _, p := range peers {
			p.stop()
			if s := p.stderr.String(); strings.Contains(s, locked) || strings.Contains(s, "SQLITE_BUSY") {
				t.Errorf("a process logged:\n%s", s)
			}
		}
		if n := count(t, db, `true`); n != 2*events || n == 0 {
			t.Errorf("%d rows for %d events and two subscribers", n, events)
		}
		if n := count(t, db, `attempts > 0 OR last_error IS NOT NULL OR runs <> 1`); n > 0 {
			t.Errorf("%d rows have a failure, or not one run", n)
		}
		runs := readRuns(t, dir, nil)
		once := map[string]int{}
		by := map[int]int{}
		for _, r := range runs {
			once[r.what]++
			by[r.pid]++
		}
		if len(runs) != 2*events || len(once) != 2*events {
			t.Errorf("%d runs of %d deliveries, want %d of each", len(runs), len(once), 2*events)
		}
		if len(by) != len(peers) {
			t.Errorf("only one process has run handlers: %v", by)
		}
		t.Logf("%d events, %d runs, by process %v", events, len(runs), by)
	})
}
