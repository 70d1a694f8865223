package jobs_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/jobs"
	"github.com/openloam/loam/sweep"
)

// sweeper notes its passes. all and tenant, if set, say what becomes of each; n counts from 1.
type sweeper struct {
	all    func(n int) ([]sweep.Full, error)
	tenant func(n int) (*sweep.Full, error)

	mu      sync.Mutex
	passes  []pass
	tenants []sweep.Full // what Tenant was asked for
	at      int          // how many passes are going on
	overlap bool
}

// pass is one call of All.
type pass struct{ begun, ended time.Time }

func (s *sweeper) All(context.Context, string) (sweep.Pass, error) {
	s.mu.Lock()
	s.passes = append(s.passes, pass{begun: time.Now()})
	n := len(s.passes)
	s.at++
	s.overlap = s.overlap || s.at > 1
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.at--
		s.passes[n-1].ended = time.Now()
	}()
	if s.all == nil {
		return sweep.Pass{}, nil
	}
	full, err := s.all(n)
	return sweep.Pass{Full: full}, err
}

func (s *sweeper) Tenant(_ context.Context, id string, after durable.Cursor) (*sweep.Full, error) {
	s.mu.Lock()
	s.tenants = append(s.tenants, sweep.Full{Tenant: id, After: after})
	n := len(s.tenants)
	s.mu.Unlock()
	if s.tenant == nil {
		return nil, nil
	}
	return s.tenant(n)
}

func (s *sweeper) seen() ([]pass, []sweep.Full, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.passes), slices.Clone(s.tenants), s.overlap
}

// ended counts the passes that have ended.
func (s *sweeper) ended() int {
	passes, _, _ := s.seen()
	n := 0
	for _, p := range passes {
		if !p.ended.IsZero() {
			n++
		}
	}
	return n
}

// afterStart waits for the passes of a start to be over, and counts them: its two jobs, one by River and one by us, are one
// pass if both are there when it begins.
func afterStart(t *testing.T, db *database.DB, s *sweeper) int {
	t.Helper()
	until(t, "through the start", func() bool {
		return count(t, db, isSweep+` AND state = 'completed'`) >= 2 && count(t, db, isSweep+` AND state IN ('available', 'running')`) == 0
	})
	return s.ended()
}

const (
	sweepKind = "open_loam_event_redelivery_sweep"
	isSweep   = `kind = '` + sweepKind + `'`
)

// The sweep is a job whose kind is the contract's key. It comes at a start, then in every period.
//
// contract: S-01
func TestSweepIsPeriodic(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		j, _ := newJobs(t, db)
		s := &sweeper{}
		before := time.Now()
		start(t, j, jobs.Work{Sweeper: s, SweepEvery: 500 * time.Millisecond})
		until(t, "swept six times", func() bool { return s.ended() >= 6 })
		stop(t, j)
		passes, _, _ := s.seen()
		// Two passes may belong to the start; the others to periods that have begun.
		if most := 2 + int(time.Since(before)/(500*time.Millisecond)) + 1; len(passes) > most {
			t.Errorf("%d passes in %v", len(passes), time.Since(before))
		}
		if first := passes[0].begun.Sub(before); first > 20*time.Second {
			t.Errorf("the first pass came after %v", first)
		}
		if n := count(t, db, `kind NOT IN ($1, 'loam_event_delivery')`, sweepKind); n > 0 || sweep.Key != sweepKind {
			t.Errorf("%d jobs are of another kind; sweep.Key is %s", n, sweep.Key)
		}
	})
}

// The schedule is in memory, and a process that starts more often than the period would never see its end. So each start
// sweeps, also while River's leader is a process that was killed.
//
// contract: S-01
// scenario: B069
func TestEveryStartSweeps(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		later := time.Now().Add(time.Hour).UTC().Format("2006-01-02 15:04:05.000")
		rig.Exec(t, db, `INSERT INTO river_leader (elected_at, expires_at, leader_id) VALUES ($1, $1, 'killed')`, later)
		for restart := range 5 {
			j, _ := newJobs(t, db)
			s := &sweeper{}
			start(t, j, jobs.Work{Sweeper: s, SweepEvery: 5 * time.Minute})
			until(t, "swept", func() bool { return s.ended() > 0 })
			stop(t, j)
			if passes, _, _ := s.seen(); len(passes) != 1 {
				t.Errorf("start %d: %d passes", restart+1, len(passes))
			}
		}
	})
}

// A pass takes longer than three periods. None overlaps it, the periods that ended meanwhile are not made up for, and the
// next pass is that of a period that ends after it.
//
// contract: S-04
// scenario: B065
func TestSweepsDoNotPileUp(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		begun, release := make(chan struct{}), make(chan struct{})
		s := &sweeper{all: func(n int) ([]sweep.Full, error) {
			if n == 3 { // the passes of the start are over
				close(begun)
				<-release
			}
			return nil, nil
		}}
		j, _ := newJobs(t, db)
		start(t, j, jobs.Work{Sweeper: s, SweepEvery: time.Second})
		<-begun
		until(t, "three periods over", func() bool { return count(t, db, isSweep+` AND state = 'available'`) >= 3 })
		var last int64
		rig.Scan(t, db, `SELECT max(id) FROM river_job`, nil, &last)
		close(release)
		until(t, "done with those that waited", func() bool { return count(t, db, isSweep+` AND id <= $1 AND state <> 'completed'`, last) == 0 })
		passes, _, _ := s.seen()
		if made, later := len(passes)-3, count(t, db, isSweep+` AND id > $1`, last); made > later {
			t.Errorf("%d passes after the long one, with %d periods over since", made, later)
		}
		until(t, "going on", func() bool { return s.ended() >= 5 })
		stop(t, j)
		if _, _, overlap := s.seen(); overlap {
			t.Error("passes overlap")
		}
	})
}

// A sweep that is asked for while one goes on comes after it: what it is to find may have come behind the other. However
// often it is asked for, it is one.
//
// contract: S-04, L-08
func TestSweepAskedFor(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		begun, release := make(chan struct{}), make(chan struct{})
		var block atomic.Bool
		s := &sweeper{all: func(int) ([]sweep.Full, error) {
			if block.CompareAndSwap(true, false) {
				close(begun)
				<-release
			}
			return nil, nil
		}}
		j, _ := newJobs(t, db)
		start(t, j, jobs.Work{Sweeper: s})
		want := afterStart(t, db, s) + 2
		block.Store(true)
		ask := func() {
			t.Helper()
			if err := j.SweepSoon(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ask()
		<-begun
		for range 3 {
			ask()
		}
		if n := count(t, db, isSweep+` AND state = 'available'`); n != 1 {
			t.Errorf("%d sweeps wait after three were asked for", n)
		}
		close(release)
		until(t, "swept again", func() bool { return s.ended() == want })
		until(t, "at rest", func() bool { return count(t, db, isSweep+` AND state <> 'completed'`) == 0 })
		stop(t, j)
		if passes, _, overlap := s.seen(); len(passes) != want || overlap {
			t.Errorf("%d passes, want %d; overlapping: %v", len(passes), want, overlap)
		}
	})
}

// An error and a panic end one pass, not the sweeping; both are in the log.
//
// contract: S-05
// scenario: B067
func TestSweepSurvivesErrorAndPanic(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		s := &sweeper{all: func(n int) ([]sweep.Full, error) {
			switch n {
			case 3:
				return nil, errors.New("tenant acme is away")
			case 5:
				panic("a broken directory")
			}
			return nil, nil
		}}
		j, logs := newJobs(t, db)
		start(t, j, jobs.Work{Sweeper: s, SweepEvery: 300 * time.Millisecond})
		until(t, "through the sixth pass", func() bool { return s.ended() >= 6 })
		stop(t, j)
		for _, text := range []string{"tenant acme is away", "a broken directory"} {
			if len(logs.Lines("ERROR", text)) == 0 {
				t.Errorf("no error line says %q: %q", text, logs.Lines())
			}
		}
	})
}
