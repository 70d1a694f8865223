// Package outage logs a failure that lasts once when it begins and once when it ends.
package outage

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Period is how long after the beginning of one outage the next one is logged at the earliest: what fails and succeeds by
// turns does not fill the log.
const Period = time.Minute

// Log follows one thing that can fail for a while. The zero Log is ready. It is safe for use by several goroutines.
type Log struct {
	mu       sync.Mutex
	open     bool      // the beginning was logged, the end was not
	began    time.Time // of the last one that was logged
	failures int       // since then
}

// Failed notes a failure, and logs it if it begins an outage.
func (l *Log) Failed(ctx context.Context, logger *slog.Logger, what string, err error, attrs ...any) {
	l.mu.Lock()
	l.failures++
	begins := !l.open && (l.began.IsZero() || time.Since(l.began) >= Period)
	failures := l.failures
	if begins {
		l.open, l.began, l.failures = true, time.Now(), 0
	}
	l.mu.Unlock()
	if begins {
		attrs = append(attrs, slog.String("what", what), slog.Any("error", err))
		if failures > 1 {
			attrs = append(attrs, slog.Int("failures_before", failures-1))
		}
		logger.ErrorContext(ctx, "failing, trying again until it succeeds", attrs...)
	}
}

// Succeeded notes a success, and logs it if it ends an outage.
func (l *Log) Succeeded(ctx context.Context, logger *slog.Logger, what string) {
	l.mu.Lock()
	ends, failures, lasted := l.open, l.failures+1, time.Since(l.began)
	if ends {
		l.open, l.failures = false, 0
	}
	l.mu.Unlock()
	if ends {
		logger.InfoContext(ctx, "succeeding again", slog.String("what", what), slog.Int("failures", failures), slog.Duration("after", lasted))
	}
}
