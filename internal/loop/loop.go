// Package loop runs a function again and again: at once, then after every interval with some jitter, so that processes
// that started together do not stay in step.
package loop

import (
	"context"
	"math/rand/v2"
	"time"
)

// retryAfter is how soon a call that failed is repeated, if the interval is longer.
const retryAfter = time.Second

// Run calls f until ctx ends, after a failure soon. Each call has limit as its time limit. It returns when the last call
// has.
func Run(ctx context.Context, interval, limit time.Duration, f func(ctx context.Context) error) {
	for {
		wait := jitter(interval)
		if err := once(ctx, limit, f); err != nil {
			wait = min(wait, retryAfter)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func once(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// jitter takes up to a tenth off, and never adds: an interval is a promise.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/10+1)) //nolint:gosec // nothing secret about it
}
