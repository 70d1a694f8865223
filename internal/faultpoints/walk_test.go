package faultpoints_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// task is one fault at one point.
type task struct {
	p point
	f fault
}

// workers run the tasks: more than there are processors, because a call that is tried again waits for a while first.
const workers = 4

// contract: N-03, N-06, O-01, O-03, O-04, O-05, O-07, D-04, D-06, D-07, D-08, D-09, D-10, D-20, D-25, J-01, J-03, S-03, L-02, L-03, L-08. At every point, every fault: the
// step fails, its answer is lost, or the process stands still for longer than its lease. Nothing is lost, no two runs overlap
// inside valid leases, and nothing is written by who has lost the right to.
// scenario: B078, B112
func TestEveryFaultPoint(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		first := open(t, db, faults)
		each(t, func(t *testing.T, s *script) {
			points, held := listed(t, s, first)
			var tasks []task
			for i, p := range points {
				if i%every != 0 {
					continue
				}
				tasks = append(tasks, s.more(p)...)
				s := stalls{at: moment(p.kind == "commit")}
				tasks = append(tasks, task{p, fails{}}, task{p, loses{}}, task{p, s})
				if held[p] { // else nobody has anything to be in the middle of
					s.midway = true
					tasks = append(tasks, task{p, s})
				}
			}
			sum := &summary{points: points, parts: s.parts}
			used := false
			sum.walk(t, workers, tasks, func() func(t *testing.T, k task) []finding {
				h := first
				if used {
					h = openAnother(t, first.faulty)
				}
				used = true
				return func(t *testing.T, k task) []finding { return befall(t, s, h, k) }
			})
			sum.print(t)
		})
	})
}

// each runs f for every script, one after the other.
func each(t *testing.T, f func(t *testing.T, s *script)) {
	t.Helper()
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) { f(t, s) })
	}
}

func openAnother(t *testing.T, like *database.DB) handles {
	t.Helper()
	db, faults := dbtest.OpenPlace(t, dbtest.Fresh(t, like.Dialect()))
	return open(t, db, faults)
}

// listed runs the script without a fault and returns the points of its parts, and where claims are held. What each part is
// known to have, it must have.
func listed(t *testing.T, s *script, h handles) (points []point, held map[point]bool) {
	t.Helper()
	t.Run("no fault", func(t *testing.T) {
		clean(t, h.sound)
		w := newWorld(t, s, h, rig.NewClock(), openDiary(t, t.TempDir()))
		w.hook.claims = func() bool { return len(w.claims()) > 0 }
		s.prepare(w)
		w.hook.start()
		s.run(w)
		points, held = w.hook.list, w.hook.held
		if w.left() {
			t.Errorf("the script ends and something is pending: %v %v", w.list(), w.queue())
		}
		for _, e := range w.diary.entries(t) {
			if e.What == "start" && e.Proc != "a" {
				t.Errorf("%s was run by %s: the walk shows nothing about it", e.Key, e.Proc)
			}
		}
		fail(t, w.check(true))
	})
	if points == nil {
		t.Fatal("no points")
	}
	slices.SortStableFunc(points, func(a, b point) int {
		return cmp.Compare(slices.Index(s.parts, a.part), slices.Index(s.parts, b.part))
	})
	n := map[string]int{}
	for _, p := range points {
		n[p.part]++
	}
	for _, part := range s.parts {
		if n[part] == 0 {
			t.Errorf("part %s has no point: the walk shows nothing about it", part)
		}
	}
	for _, p := range points {
		if !slices.ContainsFunc(scripts, func(s *script) bool { return slices.Contains(s.parts, p.part) }) {
			t.Errorf("%v is of no part that is known", p)
		}
	}
	return slices.DeleteFunc(points, func(p point) bool { return !slices.Contains(s.parts, p.part) }), held
}

// befall runs the script with a fault, and returns what it has broken.
func befall(t *testing.T, s *script, h handles, k task) []finding {
	t.Helper()
	clean(t, h.sound)
	w := newWorld(t, s, h, rig.NewClock(), openDiary(t, t.TempDir()))
	s.prepare(w)
	stall, stalled := k.f.(stalls)
	if stalled {
		stall.w = w
		k.f = stall
	}
	w.hook.arm(k.p, k.f)
	w.hook.start()
	s.run(w)
	if !w.hook.hasFired() {
		t.Errorf("the point was not reached")
	}
	w.ungate()
	w.waitForB()
	w.settle(stalled)
	w.redeliverDead(stalled)
	return w.check(!stalled)
}

func fail(t *testing.T, findings []finding) {
	t.Helper()
	for _, f := range findings {
		t.Errorf("%s: %s", f.class, f.text)
	}
}

// summary counts what was walked and what was found.
type summary struct {
	points []point
	parts  []string
	mu     sync.Mutex
	walked map[[2]string]int // by kind of point and fault
	found  map[class]int
	red    []string
}

// walk does the tasks with so many workers. worker makes what each needs.
func (s *summary) walk(t *testing.T, workers int, tasks []task, worker func() func(t *testing.T, k task) []finding) {
	t.Helper()
	s.walked, s.found = map[[2]string]int{}, map[class]int{}
	next := make(chan task)
	var all sync.WaitGroup
	for range min(workers, len(tasks)) {
		do := worker()
		all.Go(func() {
			for k := range next {
				name := strings.ReplaceAll(k.p.String(), " ", "_") + "/" + k.f.name()
				ok := t.Run(name, func(t *testing.T) {
					found := do(t, k)
					fail(t, found)
					s.count(k, found)
				})
				if !ok {
					s.mu.Lock()
					s.red = append(s.red, name)
					s.mu.Unlock()
				}
			}
		})
	}
	for _, k := range tasks {
		next <- k
	}
	close(next)
	all.Wait()
}

func (s *summary) count(k task, found []finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walked[[2]string{k.p.kind, k.f.name()}]++
	for _, f := range found {
		s.found[f.class]++
	}
}

// print says what was walked.
func (s *summary) print(t *testing.T) {
	t.Helper()
	n := map[string]int{}
	for _, p := range s.points {
		n[p.part]++
	}
	var out strings.Builder
	if len(s.points) > 0 {
		fmt.Fprintf(&out, "%d points:", len(s.points))
		for _, part := range s.parts {
			fmt.Fprintf(&out, " %s %d", part, n[part])
		}
	}
	total := 0
	kinds, faults := map[string]bool{}, map[string]bool{}
	for k, n := range s.walked {
		kinds[k[0]], faults[k[1]] = true, true
		total += n
	}
	fmt.Fprintf(&out, "\n%-9s", "")
	for _, f := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&out, "%13s", f)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&out, "\n%-9s", kind)
		for _, f := range slices.Sorted(maps.Keys(faults)) {
			fmt.Fprintf(&out, "%13d", s.walked[[2]string{kind, f}])
		}
	}
	fmt.Fprintf(&out, "\n%d faults: lost=%d overlaps=%d stale=%d other=%d", total, s.found[lost], s.found[overlap], s.found[stale], s.found[other])
	if slices.Sort(s.red); len(s.red) > 0 {
		fmt.Fprintf(&out, "\nred:\n%s", strings.Join(s.red, "\n"))
	}
	t.Log(out.String())
}
