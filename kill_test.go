package loam_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

func init() { children["killable"] = killable }

const (
	killEvents = 667
	killRuns   = 20 // at least
	publishEnv = "LOAM_TEST_PUBLISH"
)

var killSubscribers = map[string]string{"ledger.post": "shop.order.paid", "mail.receipt": "shop.", "stats.count": "shop.order."}

// killEvent is the id of the n-th event, so that a process that was started again can go on where the one before was.
func killEvent(n int) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("event "+strconv.Itoa(n))).String()
}

// killable works deliveries and, if it is told to, publishes the events that are not in the file "committed" yet.
func killable(ctx context.Context) error {
	runs, err := openDiary(fmt.Sprintf("runs.%d", os.Getpid()))
	if err != nil {
		return err
	}
	longest := map[string]int{"ledger.post": 5, "mail.receipt": 30, "stats.count": 150}
	reg := durable.NewRegistry()
	for key, pattern := range killSubscribers {
		reg.Register(key, pattern, runs.noted(key, func(ctx context.Context, _ events.Event) error {
			select {
			case <-time.After(time.Duration(rand.IntN(1000*longest[key])) * time.Microsecond): //nolint:gosec // nothing secret about it
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
	}
	change := func(c *loam.Config) {
		shortLease(c)
		c.SweepEvery = 2 * time.Second
	}
	if envInt(publishEnv) == 0 {
		return work(ctx, reg, change, nil)
	}
	return work(ctx, reg, change, publishRest)
}

func publishRest(ctx context.Context, engine *loam.Engine) error {
	done, err := lines(inDir("committed"))
	if err != nil {
		return err
	}
	committed, err := openDiary("committed")
	if err != nil {
		return err
	}
	pace := time.NewTicker(15 * time.Millisecond)
	defer pace.Stop()
	for n := len(done); n < killEvents; n++ {
		if err := engine.Publish(ctx, "shop.order.paid", events.Payload{"order": n}, events.WithID(killEvent(n))); err != nil {
			return fmt.Errorf("publish %d: %w", n, err)
		}
		if err := committed.add(killEvent(n)); err != nil {
			return err
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lines returns the whole lines of a file; none if there is no file.
func lines(path string) ([]string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // a file of the test
	if os.IsNotExist(err) {
		return nil, nil
	}
	all := strings.Split(string(text), "\n")
	return all[:len(all)-1], err
}

// Two processes work one file, one of them also publishes, and they are killed again and again: one, the other, or both,
// in the middle of their work or of their start. Nobody repairs anything. What was committed is delivered, and no two runs
// of one (event, subscriber) overlap, in one process or in two.
//
// contract: D-17, D-20, E-10, L-02, L-08
// scenario: B092
func TestKillNine(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // to be repeated with the seed
		dir := s.dir
		killed := map[int]time.Time{} // by pid
		start := func(publish int) *process {
			return startChild(t, "killable", s, fmt.Sprintf("%s=%d", publishEnv, publish))
		}
		kill := func(p *process) { killed[p.pid()] = p.kill() }

		began := time.Now()
		publisher, worker := start(1), start(0)
		for len(killed) < killRuns+4 {
			if random.IntN(5) > 0 {
				publisher.up()
				worker.up()
			}
			<-time.After(time.Duration(50+random.IntN(400)) * time.Millisecond)
			which := random.IntN(3)
			if which != 0 {
				kill(publisher)
			}
			if which != 1 {
				kill(worker)
			}
			if which != 0 {
				publisher = start(1)
			}
			if which != 1 {
				worker = start(0)
			}
		}
		committed, err := lines(filepath.Join(dir, "committed"))
		if err != nil {
			t.Fatal(err)
		}
		if len(committed) >= killEvents {
			t.Errorf("all events were committed before the last kill: there was nothing to lose")
		}
		atLastKill := len(committed)
		publisher.up()
		worker.up()

		db, _ := dbtest.OpenPlace(t, s.place)
		until(t, 90*time.Second, "all published", func() bool {
			publisher.running()
			committed, err = lines(filepath.Join(dir, "committed"))
			return err == nil && len(committed) == killEvents
		})
		until(t, 90*time.Second, "all delivered", func() bool {
			publisher.running()
			worker.running()
			return count(t, db, `status = 'pending'`) == 0
		})
		publisher.stop()
		worker.stop()
		checkKilled(t, db, committed)
		runs := readRuns(t, dir, killed)
		checkOverlap(t, runs)
		repeats := len(runs) - killEvents*len(killSubscribers)
		if repeats < 1 {
			t.Error("no kill cut a run short: the test shows nothing")
		}
		t.Logf("%d kills, %d events committed at the last, %d runs, %d of them repeats, %v",
			len(killed), atLastKill, len(runs), repeats, time.Since(began).Round(time.Millisecond))
	})
}

// checkKilled checks what is in the database after the kills.
func checkKilled(t *testing.T, db *database.DB, committed []string) {
	t.Helper()
	var events []string // delivered to all
	err := db.Mapper().NewSelect().Table("event_deliveries").Column("event_id").Where("status = 'delivered'").
		Group("event_id").Having("count(*) = ?", len(killSubscribers)).Scan(t.Context(), &events)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range committed {
		if !slices.Contains(events, id) {
			t.Errorf("event %s was committed, and is not delivered to all subscribers", id)
		}
	}
	if n, want := count(t, db, `true`), killEvents*len(killSubscribers); n != want {
		t.Errorf("%d rows, want %d: none lost, none twice", n, want)
	}
	if n := count(t, db, `attempts <> 0 OR unfinished <> 0`); n != 0 {
		t.Errorf("%d rows have spent attempts on a crash, or count a crash after their success", n)
	}
	if db.Dialect() == database.SQLite {
		if answer := rig.Dump(t, db, `PRAGMA integrity_check`); answer != "ok" {
			t.Errorf("integrity_check: %s", answer)
		}
	}
	var claims int
	rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE status = 'in_progress'`, nil, &claims)
	if claims != 0 {
		t.Errorf("%d claims are left", claims)
	}
}

// noted is one run, as its process has written it down.
type notedRun struct {
	what       string // event and subscriber
	pid        int
	start, end int64
}

// readRuns reads the runs of all processes. One without an end lasted until its process was killed.
func readRuns(t *testing.T, dir string, killed map[int]time.Time) []notedRun {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "runs.*"))
	if err != nil {
		t.Fatal(err)
	}
	var runs []notedRun
	for _, file := range files {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(file), "."))
		if err != nil {
			t.Fatal(err)
		}
		text, err := lines(file)
		if err != nil {
			t.Fatal(err)
		}
		open := map[string][]int{} // indexes of runs without an end
		for _, line := range text {
			word := strings.Fields(line)
			at, err := strconv.ParseInt(word[3], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			what := word[1] + " " + word[2]
			if word[0] == "start" {
				open[what] = append(open[what], len(runs))
				runs = append(runs, notedRun{what: what, pid: pid, start: at})
				continue
			}
			runs[open[what][0]].end = at
			open[what] = open[what][1:]
		}
		for what, left := range open {
			for _, i := range left {
				at, ok := killed[pid]
				if !ok {
					t.Errorf("process %d was not killed and has not ended its run of %s", pid, what)
				}
				runs[i].end = at.UnixNano()
			}
		}
	}
	return runs
}

func checkOverlap(t *testing.T, runs []notedRun) {
	t.Helper()
	slices.SortFunc(runs, func(a, b notedRun) int {
		if c := strings.Compare(a.what, b.what); c != 0 {
			return c
		}
		return int(a.start - b.start)
	})
	for i := 1; i < len(runs); i++ {
		if a, b := runs[i-1], runs[i]; a.what == b.what && b.start < a.end {
			t.Errorf("%s: process %d ran it until %v, process %d from %v: %v together", a.what, a.pid, time.Unix(0, a.end),
				b.pid, time.Unix(0, b.start), time.Duration(a.end-b.start))
		}
	}
}
