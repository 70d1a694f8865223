package durable

import (
	"context"
	"time"
)

// backoff is the wait before try n+1 of a statement that failed: 100 ms doubling to 5 s.
func backoff(n int) time.Duration {
	return min(100*time.Millisecond<<min(n-1, 10), 5*time.Second)
}

// pause waits for d, and reports false if ctx ends or stop is closed first.
func pause(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	return false
}
