package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
)

// There is a line for each mode and number of subscribers, with the figures of each round, and their medians.
func TestThroughput(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, kind database.Dialect) {
		began := time.Now()
		args := []string{"throughput", "-events", "20", "-subscribers", "1,3", "-publishers", "4", "-rounds", "2", "-json"}
		out, err := bench(t, append(args, on(t, kind)...)...)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began).Seconds()
		var reports []throughputReport
		dec := json.NewDecoder(strings.NewReader(out))
		dec.DisallowUnknownFields()
		for {
			var r throughputReport
			if err := dec.Decode(&r); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("no lines of JSON: %v\n%s", err, out)
			}
			reports = append(reports, r)
		}
		all := modes()
		if len(reports) != 2*len(all) || strings.Count(out, "\n") != len(reports) {
			t.Fatalf("%d reports, want one for each of 2 × %d:\n%s", len(reports), len(all), out)
		}
		for i, r := range reports {
			subscribers := []int{1, 3}[i/len(all)]
			if r.Benchmark != "throughput" || r.Database != string(kind) || r.Version == "" || r.Mode != all[i%len(all)].name ||
				r.Subscribers != subscribers || r.Events != 20 || r.Publishers != 4 || len(r.Rounds) != 2 {
				t.Errorf("it is the report of something else: %+v", r)
			}
			river := reports[i-i%len(all)+len(all)-1]
			for n, f := range r.Rounds {
				if seconds := 20 / f.EventsPerSecond; !(0 < seconds && seconds < took) || cpuTime() > 0 && !(f.CPUPerEvent > 0) {
					t.Errorf("no figures of a run of %v s: %+v", took, f)
				}
				if !near(f.ToRiver, f.EventsPerSecond/river.Rounds[n].EventsPerSecond) {
					t.Errorf("not the ratio to %s in the same round: %+v, %+v", river.Mode, f, river.Rounds[n])
				}
			}
			a, b := r.Rounds[0], r.Rounds[1]
			if !near(r.EventsPerSecond, (a.EventsPerSecond+b.EventsPerSecond)/2) || !near(r.ToRiver, (a.ToRiver+b.ToRiver)/2) ||
				!near(r.CPUPerEvent, (a.CPUPerEvent+b.CPUPerEvent)/2) || !near(r.DeliveriesPerSecond, r.EventsPerSecond*float64(subscribers)) {
				t.Errorf("not the medians: %+v", r)
			}
		}
	})
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }

// Without -json there is a table.
func TestThroughputText(t *testing.T) {
	t.Parallel()
	out, err := bench(t, "throughput", "-events", "3", "-subscribers", "2", "-rounds", "1")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if !strings.HasPrefix(out, "sqlite 3.") || !strings.Contains(out, "\n3 events, 8 publishers, medians of 1 rounds; CPU is this process's\n") || len(lines) != 4+len(modes()) {
		t.Fatalf("%s", out)
	}
	for i, m := range modes() {
		line := lines[4+i]
		if f := strings.Fields(line); len(f) != 10 || f[0] != "2" || f[1] != m.name || m.name == plainRiver && f[4] != "1.00" || len(line) != len(lines[3])+1 { // µ has two bytes
			t.Errorf("%q under %q", line, lines[3])
		}
	}
}

// A figure counts only if everything was delivered, by one run each.
func TestVerify(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, kind database.Dialect) {
		for _, m := range modes() {
			target := target{kind: string(kind)}
			if kind == database.PostgreSQL {
				target.url = dbtest.Empty(t, kind).At
			}
			db, drop, err := target.fresh(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s := setup{&throughput{publishers: 2, logger: slog.New(slog.DiscardHandler)}, db, 3, new(atomic.Int64)}
			c, err := m.start(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.drive(t.Context(), c, 0, 4); err != nil {
				t.Error(err)
			}
			if err := errors.Join(c.stop(t.Context()), c.verify(t.Context(), 12)); err != nil || s.handled.Load() != 12 {
				t.Errorf("%s: %v, %d handlers have run", m.name, err, s.handled.Load())
			}
			for want, n := range map[string]int{"12 deliveries are there and 12 of them were done in one run, want 11": 11, "12 of them were done in one run, want 13": 13} {
				if err := c.verify(t.Context(), n); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", m.name, err, want)
				}
			}
			again := `UPDATE event_deliveries SET runs = 2 WHERE id = (SELECT min(id) FROM event_deliveries)`
			if m.name == plainRiver {
				again = `UPDATE river_job SET attempt = 2 WHERE id = (SELECT min(id) FROM river_job)`
			}
			if _, err := db.Write().ExecContext(t.Context(), again); err != nil {
				t.Fatal(err)
			}
			if err := c.verify(t.Context(), 12); err == nil || !strings.Contains(err.Error(), "12 deliveries are there and 11 of them were done in one run, want 12") {
				t.Errorf("%s: %v", m.name, err)
			}
			if err := drop(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestThroughputMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"throughput -events 0", "--events: is 0, it must be positive"},
		{"throughput -publishers 0 -rounds -1", "--publishers: is 0, it must be positive\n--rounds: is -1, it must be positive"},
		{"throughput -subscribers 1,0", "--subscribers: has 0, it must be between 1 and 100"},
		{"throughput -subscribers 101", "--subscribers: has 101, it must be between 1 and 100"},
		{"throughput -database mysql", `--database: "mysql" is not known, it must be sqlite or postgres`},
	} {
		if out, err := bench(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q\n%s", c.args, err, c.want, out)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all  []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 3, 1, 100}, 3.5}} {
		if got := median(c.all); got != c.want {
			t.Errorf("of %v: %v, want %v", c.all, got, c.want)
		}
	}
}
