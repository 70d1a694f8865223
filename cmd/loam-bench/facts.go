package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/openloam/loam/database"
)

// facts are what a figure depends on beside the code. Every report has them.
type facts struct {
	Database string `json:"database"`
	Version  string `json:"database_version"`
	Cores    int    `json:"cores"`
	Go       string `json:"go"`
	System   string `json:"system"`
}

func readFacts(ctx context.Context, db *database.DB) (facts, error) {
	f := facts{
		Database: string(db.Dialect()), Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
	}
	ask := `SELECT sqlite_version()`
	if db.Dialect() == database.PostgreSQL {
		ask = `SELECT current_setting('server_version')`
	}
	if err := db.Own().QueryRowContext(ctx, ask).Scan(&f.Version); err != nil {
		return f, fmt.Errorf("ask for the version: %w", database.Explain(err))
	}
	return f, nil
}

func (f facts) String() string {
	return fmt.Sprintf("%s %s, %d cores, %s, %s", f.Database, f.Version, f.Cores, f.Go, f.System)
}

// times are the figures of many measurements, in milliseconds.
type times struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// timesOf sorts all, which must not be empty.
func timesOf(all []time.Duration) times {
	slices.Sort(all)
	return times{rank(all, 50), rank(all, 99), rank(all, 100)}
}

// rank is the smallest that percent of them do not exceed.
func rank(sorted []time.Duration, percent int) float64 {
	i := (len(sorted)*percent + 99) / 100
	return float64(sorted[max(i, 1)-1].Microseconds()) / 1000
}

func (t times) String() string {
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, max %.2f ms", t.P50, t.P99, t.Max)
}
