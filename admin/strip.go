package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/openloam/loam/health"
)

// lateSweeps is how many intervals without a sweep are too many; lateDue is after how many a due delivery is late.
const (
	lateSweeps = 3
	lateDue    = 2
)

// strip is the line about the engine.
type strip struct {
	Late                bool
	Verdict             string
	DueNow, OldestDue   string
	LastSweep, Upcoming string
	Clock               string
}

func stripOf(r health.Report, now time.Time) *strip {
	s := &strip{Verdict: "Engine working", DueNow: count(r.DueNow), OldestDue: "none", LastSweep: "none yet", Clock: clock(r)}
	if r.DueNow > 0 {
		s.OldestDue = about(r.OldestDue)
	}
	if !r.LastSweep.IsZero() {
		s.LastSweep = about(now.Sub(r.LastSweep)) + " ago"
		if next := r.LastSweep.Add(r.SweepEvery); next.After(now) {
			s.Upcoming = "next in " + about(next.Sub(now))
		}
	}
	if what := trouble(r, now); what != "" {
		s.Late, s.Verdict = true, what
	}
	return s
}

// trouble says what is wrong, what was expected, and what it means for who is about to redeliver.
func trouble(r health.Report, now time.Time) string {
	since := now.Sub(r.LastSweep)
	skew := r.ClockDifference.Abs()
	switch {
	case r.MigrationsPending > 0:
		return "The database lacks " + plural(r.MigrationsPending, "migration", "migrations") + " of this version. What you redeliver may not run."
	case r.MaxClockSkew > 0 && skew > r.MaxClockSkew:
		return fmt.Sprintf("This process's clock is %s off the database's; the limit is %s. It runs nothing. What you redeliver runs elsewhere, or waits.",
			exact(skew.Round(10*time.Millisecond)), exact(r.MaxClockSkew))
	case !r.LastSweep.IsZero() && r.SweepEvery > 0 && since > lateSweeps*r.SweepEvery:
		return fmt.Sprintf("No sweep for %s; one is due every %s. What you redeliver may wait.", about(since), exact(r.SweepEvery))
	case r.DueNow > 0 && r.SweepEvery > 0 && r.OldestDue > lateDue*r.SweepEvery:
		return fmt.Sprintf("The oldest due delivery has waited %s; a sweep finds it within %s. There is more to do than workers do. What you redeliver may wait.",
			about(r.OldestDue), exact(r.SweepEvery))
	case len(r.Problems) > 0:
		return plain(strings.Join(r.Problems, " "))
	case !r.Live, !r.Ready:
		return "This process is not ready. What you redeliver runs elsewhere, or waits."
	}
	return ""
}

func clock(r health.Report) string {
	if r.MaxClockSkew < 0 {
		return "not checked"
	}
	return fmt.Sprintf("%+.2f%ss", r.ClockDifference.Seconds(), nb)
}
