package outage_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/internal/rig"
)

// An outage is logged once when it begins and once when it ends, with how often and how long.
func TestOneLineAtEachEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l outage.Log
		logs := &rig.Logs{}
		logger := slog.New(logs)
		l.Succeeded(t.Context(), logger, "sweeping")
		if got := logs.Lines(); len(got) != 0 {
			t.Fatalf("a success without an outage logs %q", got)
		}
		for round := 1; round <= 2; round++ {
			for i := range 3 {
				l.Failed(t.Context(), logger, "sweeping", errors.New("no disk"), slog.String("tenant", "acme"))
				time.Sleep(time.Duration(i+1) * time.Second) // on the bubble's clock
			}
			l.Succeeded(t.Context(), logger, "sweeping")
			l.Succeeded(t.Context(), logger, "sweeping")
			time.Sleep(outage.Period)
			began, ended := logs.Lines("ERROR", "what=sweeping", "error=no disk", "tenant=acme"), logs.Lines("INFO", "what=sweeping", "failures=3", "after=6s")
			if len(began) != round || len(ended) != round || len(logs.Lines()) != 2*round {
				t.Fatalf("after outage %d the log is\n%s", round, strings.Join(logs.Lines(), "\n"))
			}
		}
	})
}

// What fails and succeeds by turns makes one pair of lines in a period.
func TestByTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l outage.Log
		logs := &rig.Logs{}
		for range 300 {
			l.Failed(t.Context(), slog.New(logs), "writing", errors.New("x"))
			l.Succeeded(t.Context(), slog.New(logs), "writing")
			time.Sleep(time.Second)
		}
		if began, ended := len(logs.Lines("ERROR")), len(logs.Lines("INFO")); began != 5 || ended != 5 {
			t.Errorf("%d and %d lines in five minutes\n%s", began, ended, strings.Join(logs.Lines(), "\n"))
		}
		if len(logs.Lines("ERROR", "failures_before=59")) != 4 {
			t.Errorf("what was left out is not said\n%s", strings.Join(logs.Lines(), "\n"))
		}
	})
}

// Goroutines that fail at once make one line.
func TestManyGoroutinesOneLine(t *testing.T) {
	t.Parallel()
	var l outage.Log
	logs := &rig.Logs{}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { l.Failed(t.Context(), slog.New(logs), "writing", errors.New("x")) })
	}
	all.Wait()
	l.Succeeded(t.Context(), slog.New(logs), "writing")
	if len(logs.Lines("ERROR")) != 1 || len(logs.Lines("INFO", "failures=50")) != 1 {
		t.Errorf("the log is\n%s", strings.Join(logs.Lines(), "\n"))
	}
}
