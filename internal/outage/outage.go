// Package outage logs a failure that lasts once when it begins and once when it ends.
package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Log follows one thing that can fail for a while. The zero Log is ready. It is safe for use by several goroutines.
type Log struct {
	mu    sync.Mutex
	since time.Time
	times int
}

// Failed notes a failure, and logs it if it is the first.
func (l *Log) Failed(ctx context.Context, logger *slog.Logger, what string, err error, attrs ...any) {
	l.mu.Lock()
	l.times++
	first := l.times == 1
	if first {
		l.since = time.Now()
	}
	l.mu.Unlock()
	if first {
		logger.ErrorContext(ctx, "failing, trying again until it succeeds", append(attrs, slog.String("what", what), slog.Any("error", err))...)
	}
}

// Succeeded notes a success, and logs it if it ends an outage.
func (l *Log) Succeeded(ctx context.Context, logger *slog.Logger, what string) {
	l.mu.Lock()
	times, lasted := l.times, time.Since(l.since)
	l.times = 0
	l.mu.Unlock()
	if times > 0 {
		logger.InfoContext(ctx, "succeeding again", slog.String("what", what), slog.Int("failures", times), slog.Duration("after", lasted))
	}
}
