package durable

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrStopping is returned by Deliver when the process is shutting down and claims nothing any more.
var ErrStopping = errors.New("durable: shutting down")

// ErrClock is returned by Deliver while the process's clock differs too much from the database's.
var ErrClock = errors.New("durable: the clock of this process is off; it claims nothing")

// gather is how long a call waits for slots for all its rows when there are some: what is handed on instead costs a job.
const gather = 20 * time.Millisecond

// slots counts the handlers that may run: in all, and of each subscriber with a limit of its own.
type slots struct {
	turn chan struct{} // of the one call that gathers

	mu      sync.Mutex
	free    int
	used    map[string]int
	changed chan struct{} // closed and replaced when a slot is given back
}

func newSlots(n int) *slots {
	return &slots{turn: make(chan struct{}, 1), free: n, used: map[string]int{}, changed: make(chan struct{})}
}

// limiter says which key counts for a row's, and its own limit, 0 for none.
type limiter func(key string) (counts string, n int)

// take waits until one of refs can run, takes slots for as many as can, and returns those and the rest. When there are fewer
// than it needs it waits for more, but not for long. It takes none when ctx ends or stop is closed.
func (s *slots) take(ctx context.Context, stop <-chan struct{}, refs []Ref, limit limiter) (granted, rest []Ref, err error) {
	for {
		select {
		case <-stop:
			return nil, refs, ErrStopping
		default:
		}
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, refs, context.Cause(ctx)
		case <-stop:
			return nil, refs, ErrStopping
		}
		granted, rest, changed, err := s.gathered(ctx, stop, refs, limit)
		<-s.turn
		if err != nil || len(granted) > 0 {
			return granted, rest, err
		}
		select { // its subscribers' own limits are reached: others have their turn
		case <-changed:
		case <-ctx.Done():
			return nil, refs, context.Cause(ctx)
		case <-stop:
			return nil, refs, ErrStopping
		}
	}
}

// gathered waits for slots, in its turn. It returns none, and no error, if the subscribers' own limits allow none.
func (s *slots) gathered(ctx context.Context, stop <-chan struct{}, refs []Ref, limit limiter) (granted, rest []Ref, changed <-chan struct{}, err error) {
	enough := time.NewTimer(gather)
	defer enough.Stop()
	for late := false; ; {
		granted, rest, short, changed := s.try(refs, limit, late)
		if len(granted) > 0 || !short {
			return granted, rest, changed, nil
		}
		select {
		case <-changed:
		case <-enough.C:
			late = true
		case <-ctx.Done():
			return nil, refs, nil, context.Cause(ctx)
		case <-stop:
			return nil, refs, nil, ErrStopping
		}
	}
}

// try takes slots for as many as can run. short says that there are not enough for the others; then it takes some only if
// that will do.
func (s *slots) try(refs []Ref, limit limiter, someWillDo bool) (granted, rest []Ref, short bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := map[string]int{}
	for _, r := range refs {
		key, n := limit(r.Key)
		switch {
		case n > 0 && s.used[key]+more[key] >= n:
			rest = append(rest, r)
		case len(granted) == s.free:
			short = true
			rest = append(rest, r)
		default:
			more[key]++
			granted = append(granted, r)
		}
	}
	if short && !someWillDo {
		return nil, refs, true, s.changed
	}
	s.free -= len(granted)
	for key, n := range more {
		s.used[key] += n
	}
	return granted, rest, short, s.changed
}

// give returns one slot of key.
func (s *slots) give(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.used[key]--; s.used[key] == 0 {
		delete(s.used, key)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}
