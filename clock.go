package loam

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// clockEvery is how often a process compares its clock with the database's.
const clockEvery = time.Minute

// clock is what is known of this process's clock.
type clock struct {
	difference atomic.Int64 // in nanoseconds: ours minus the database's
	off        atomic.Bool
}

// compareClocks notes the difference, and says once when it becomes too large and once when it no longer is.
func (e *Engine) compareClocks(ctx context.Context) error {
	if e.cfg.MaxClockSkew < 0 {
		return nil
	}
	before := e.cfg.Now()
	theirs, err := e.cfg.DB.Clock(ctx)
	if err != nil {
		return fmt.Errorf("compare clocks: %w", err)
	}
	after := e.cfg.Now()
	ours := before.Add(after.Sub(before) / 2)
	difference := ours.Sub(theirs)
	e.clock.difference.Store(int64(difference))
	off := difference.Abs() > e.cfg.MaxClockSkew
	e.deliveries.SetClockOff(off)
	if e.clock.off.Swap(off) == off {
		return nil
	}
	attrs := []any{slog.Duration("difference", difference.Round(time.Millisecond)), slog.Duration("limit", e.cfg.MaxClockSkew)}
	if off {
		e.cfg.Logger.ErrorContext(ctx, "the clock of this process is off: it publishes, but claims nothing until the clock is right", attrs...)
	} else {
		e.cfg.Logger.InfoContext(ctx, "the clock of this process is right again", attrs...)
	}
	return nil
}

// followClock compares the clocks and takes wake-ups only while they agree.
func (e *Engine) followClock(ctx context.Context) error {
	if err := e.compareClocks(ctx); err != nil {
		return err
	}
	return e.jobs.SetPaused(ctx, e.clock.off.Load())
}
