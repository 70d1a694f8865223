package outbox

import (
	"context"
	"time"
)

const (
	// apart is the least time between the beginnings of two rounds: fuller rounds cost less for each row.
	apart = 5 * time.Millisecond
	// poll is how long after a round that found nothing the next one looks again, unless it is nudged.
	poll = 500 * time.Millisecond
	// roundLimit is the time limit of a round that captures. One that sends has its claim's.
	roundLimit = 60 * time.Second
	// longestPause is how long the relay pauses at most when the database fails, or the sink is away.
	longestPause = 30 * time.Second
)

const relaying = "relaying rows of event_queue"

// Run relays until ctx ends: after a nudge (a commit of this process, or of another on PostgreSQL) at once, else every 500 ms.
// It returns when the round that is being made has ended. One goroutine of a process calls it.
func (q *Queue) Run(ctx context.Context) {
	q.relays.Store(true)
	defer q.relays.Store(false)
	failures, sure := 0, false
	looked := time.Time{}
	for {
		began := time.Now()
		if !sure || began.Sub(looked) > poll {
			looked, sure = began, false
		}
		n, err := q.limited(ctx, sure)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			q.rounds.Failed(ctx, q.Logger, relaying, err)
		default:
			failures = 0
			q.rounds.Succeeded(ctx, q.Logger, relaying)
		}
		switch pause := max(failures, int(q.away.Load())); {
		case pause > 0: // which a nudge does not shorten
			wait(ctx, min(poll<<min(pause-1, 10), longestPause), nil)
			sure = false
		case n < batch:
			wait(ctx, apart-time.Since(began), nil)
			sure = wait(ctx, poll, q.nudged)
		default: // there may be more
			wait(ctx, apart-time.Since(began), nil)
			sure = true
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// limited makes a round; sure says that something waits for it.
func (q *Queue) limited(ctx context.Context, sure bool) (int, error) {
	if q.Sink == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, roundLimit)
		defer cancel()
	}
	if sure {
		return q.round(ctx)
	}
	return q.Round(ctx)
}

// wait waits for d, or until woken, and reports whether it was.
func wait(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	if d <= 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-woken:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
