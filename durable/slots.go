package durable

import (
	"context"
	"errors"
	"sync"
)

// ErrStopping is returned by Deliver when the process is shutting down and claims nothing any more.
var ErrStopping = errors.New("durable: shutting down")

// ErrClock is returned by Deliver while the process's clock differs too much from the database's.
var ErrClock = errors.New("durable: the clock of this process is off; it claims nothing")

// slots counts the handlers that may run: in all, and of each subscriber with a limit of its own.
type slots struct {
	mu      sync.Mutex
	free    int
	used    map[string]int
	changed chan struct{} // closed and replaced when a slot is given back
}

func newSlots(n int) *slots {
	return &slots{free: n, used: map[string]int{}, changed: make(chan struct{})}
}

// take waits until one of refs can run, takes slots for as many as can, and returns those and the rest. It takes none when
// ctx ends or stop is closed.
func (s *slots) take(ctx context.Context, stop <-chan struct{}, refs []Ref, limit func(key string) (counts string, n int)) (granted, rest []Ref, err error) {
	for {
		select {
		case <-stop:
			return nil, refs, ErrStopping
		default:
		}
		granted, rest, changed := s.try(refs, limit)
		if len(granted) > 0 {
			return granted, rest, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, refs, context.Cause(ctx)
		case <-stop:
			return nil, refs, ErrStopping
		}
	}
}

func (s *slots) try(refs []Ref, limit func(key string) (counts string, n int)) (granted, rest []Ref, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range refs {
		key, n := limit(r.Key)
		if s.free == 0 || n > 0 && s.used[key] >= n {
			rest = append(rest, r)
			continue
		}
		s.free--
		s.used[key]++
		granted = append(granted, r)
	}
	return granted, rest, s.changed
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
