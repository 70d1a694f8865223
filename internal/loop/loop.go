// Package loop runs a function again and again: at once, then after every interval with some jitter, so that processes
// that started together do not stay in step.
package loop

import (
	"context"
	"math/rand/v2"
	"time"
)

// Run calls f until ctx ends. Each call has limit as its time limit. It returns when the last call has.
func Run(ctx context.Context, interval, limit time.Duration, f func(ctx context.Context)) {
	for {
		func() {
			fctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			f(fctx)
		}()
		timer := time.NewTimer(jitter(interval))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// jitter takes up to a tenth off, and never adds: an interval is a promise.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/10+1)) //nolint:gosec // nothing secret about it
}
