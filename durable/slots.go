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

const (
	// gather is how long a call waits for slots for all its rows when there are some: what is handed on instead costs a job.
	// While all that it lacks is held by claims that are just being taken, by handlers that have just begun, or by outcomes
	// that are being committed, it waits on, gathers times at most: quick handlers give their slots back before they are missed.
	gather  = 20 * time.Millisecond
	gathers = 10
	// quick is for how long a handler counts as having just begun.
	quick = gather / 2
)

// slots counts the handlers that may run: in all, and of each subscriber with a limit of its own. A slot is held from before
// the claim until the outcome is committed.
type slots struct {
	turn  chan struct{} // of the one call that gathers
	total int

	mu      sync.Mutex
	free    int
	near    int // slots that are about to be given back
	used    map[string]int
	changed chan struct{} // not nil while somebody waits: closed when a slot is given back
}

func newSlots(n int) *slots {
	return &slots{turn: make(chan struct{}, 1), total: n, free: n, used: map[string]int{}}
}

// grant are the slots of one claim, by the id of the row.
type grant map[string]*slot

// slot is one that is held.
type slot struct {
	key      string // that counts
	near     bool   // as far as one can tell it is about to be given back: it counts in slots.near
	returned bool   // the handler has
	given    bool   // back
}

// got is what there was for a call.
type got struct {
	granted grant
	rest    []Ref
	short   bool            // there are not enough for the others
	changed <-chan struct{} // if none was granted
}

// limiter says which key counts for a row's, and its own limit, 0 for none.
type limiter func(key string) (counts string, n int)

// take waits until one of refs can run, takes slots for as many as can, and returns those and the rest. When there are fewer
// than it needs it waits for more, but not for long. It takes none when ctx ends or stop is closed.
func (s *slots) take(ctx context.Context, stop <-chan struct{}, refs []Ref, limit limiter) (granted grant, rest []Ref, err error) {
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
		got, err := s.gathered(ctx, stop, refs, limit)
		<-s.turn
		if err != nil || len(got.granted) > 0 {
			return got.granted, got.rest, err
		}
		select { // its subscribers' own limits are reached: others have their turn
		case <-got.changed:
		case <-ctx.Done():
			return nil, refs, context.Cause(ctx)
		case <-stop:
			return nil, refs, ErrStopping
		}
	}
}

// gathered waits for slots, in its turn. It returns none, and no error, if the subscribers' own limits allow none.
func (s *slots) gathered(ctx context.Context, stop <-chan struct{}, refs []Ref, limit limiter) (got, error) {
	enough := time.NewTimer(gather)
	defer enough.Stop()
	for waited := 0; ; {
		got := s.try(refs, limit, waited)
		if len(got.granted) > 0 || !got.short {
			return got, nil
		}
		select {
		case <-got.changed:
		case <-enough.C:
			if waited++; waited < gathers {
				enough.Reset(gather)
			}
		case <-ctx.Done():
			return got, context.Cause(ctx)
		case <-stop:
			return got, ErrStopping
		}
	}
}

// try takes slots for as many as can run. If there are not enough it takes none until gather has passed, waited times, and
// none while there soon will be.
func (s *slots) try(refs []Ref, limit limiter, waited int) got {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := got{granted: grant{}}
	more, lacking := map[string]int{}, 0
	for _, r := range refs {
		key, n := limit(r.Key)
		switch {
		case n > 0 && s.used[key]+more[key] >= n:
			g.rest = append(g.rest, r)
		case len(g.granted) == s.free:
			lacking++
			g.rest = append(g.rest, r)
		default:
			more[key]++
			g.granted[r.ID] = &slot{key: key}
		}
	}
	want := min(len(g.granted)+lacking, s.total)
	soon := want <= s.free+s.near
	if g.short = len(g.granted) < want; g.short && (waited == 0 || soon && waited < gathers) {
		g.granted, g.rest = nil, refs
	}
	if len(g.granted) == 0 {
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		g.changed = s.changed
		return g
	}
	s.free -= len(g.granted)
	for _, slot := range g.granted {
		s.set(slot, true)
	}
	for key, n := range more {
		s.used[key] += n
	}
	return g
}

// set says whether a slot is about to be given back.
func (s *slots) set(slot *slot, near bool) {
	if slot.near != near {
		slot.near = near
		if near {
			s.near++
		} else {
			s.near--
		}
	}
}

// begin says that the handlers of a grant begin now.
func (s *slots) begin(g grant) {
	time.AfterFunc(quick, func() { s.far(g) })
}

// far says of a grant that nobody knows when the slots are given back whose handlers have not returned.
func (s *slots) far(g grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slot := range g {
		if !slot.returned {
			s.set(slot, false)
		}
	}
}

// returned says that a handler has: soon, its slot is given back; or, if its outcome cannot be committed, nobody knows when.
func (s *slots) returned(slot *slot, soon bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot.returned = true
	s.set(slot, soon && !slot.given) // that of a stuck handler is
}

// give gives a slot back.
func (s *slots) give(slot *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot.returned, slot.given = true, true
	s.set(slot, false)
	s.free++
	if s.used[slot.key]--; s.used[slot.key] == 0 {
		delete(s.used, slot.key)
	}
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
