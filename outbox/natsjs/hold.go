package natsjs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

const (
	// chunk is how many messages are brought to the inbox in one call at most.
	chunk = 100
	// holdLimit is how many a process has at once at most: one chunk is being worked on, the next one arrives.
	holdLimit = 2 * chunk
)

// place says which message of which stream it is; one that was made anew counts from 1 again, so the time is part of it.
type place struct {
	seq  uint64
	time int64
}

// message is one that was handed out and not answered. Its delivery is the hold's to read.
type message struct {
	place  place
	event  events.Event
	letter outbox.Letter
	// why is not nil once it is given up; exhausted says that its deliveries were used up then.
	why       error
	exhausted bool

	msg       jetstream.Msg // the last delivery of it
	delivered int           // which one that is, from 1
}

// hold has the messages that were handed out to this process and not answered, so that all of them can be extended, however
// long they wait. It is safe for use by several goroutines; one of them takes and one gives.
type hold struct {
	mu      sync.Mutex
	all     map[place]*message
	waiting []*message // those of all that nobody works on
	away    bool       // the inbox does not take any
	known   bool       // it has taken one
	closed  bool       // nothing is added any more

	work, space chan struct{} // something has changed for who waits
}

func newHold() *hold {
	return &hold{all: map[place]*message{}, work: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

// add has a message wait. One that comes again meanwhile is not worked on twice: the answer will be that of its last delivery.
func (h *hold) add(m *message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, again := h.all[m.place]; again {
		before.msg, before.delivered = m.msg, m.delivered
		return
	}
	h.all[m.place] = m
	h.waiting = append(h.waiting, m)
	wake(h.work)
}

// room waits until more may be fetched, and returns how many; 0 if ctx has ended. While it is not known that the inbox takes
// any, it is one at a time: what a process has when it ends has spent a delivery.
func (h *hold) room(ctx context.Context) int {
	for ctx.Err() == nil {
		h.mu.Lock()
		n := min(holdLimit-len(h.all), chunk)
		switch {
		case h.away:
			n = 0
		case !h.known:
			n = min(n, 1-len(h.all))
		}
		h.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-h.space:
		case <-ctx.Done():
		}
	}
	return 0
}

// take waits for messages and returns at most limit; none if ctx has ended, or none is left and none will come.
func (h *hold) take(ctx context.Context, limit int) []*message {
	for ctx.Err() == nil {
		h.mu.Lock()
		taken := slices.Clone(h.waiting[:min(limit, len(h.waiting))])
		h.waiting = h.waiting[len(taken):]
		closed := h.closed
		h.mu.Unlock()
		if len(taken) > 0 || closed {
			return taken
		}
		select {
		case <-h.work:
		case <-ctx.Done():
		}
	}
	return nil
}

// drop forgets a message that is to be answered, and returns its last delivery.
func (h *hold) drop(m *message) jetstream.Msg {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, m.place)
	wake(h.space)
	return m.msg
}

// settled says how a chunk ended: back wait again, behind the others, and none is fetched until a chunk ends with none.
func (h *hold) settled(back []*message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = append(h.waiting, back...)
	h.away = len(back) > 0
	h.known = h.known || !h.away
	wake(h.space)
}

// close says that nothing is added any more.
func (h *hold) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	wake(h.work)
}

// deliveries returns how often a message was delivered.
func (h *hold) deliveries(m *message) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return m.delivered
}

// unanswered are the last deliveries of all that are held.
func (h *hold) unanswered() []jetstream.Msg {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []jetstream.Msg
	for _, m := range h.all {
		all = append(all, m.msg)
	}
	return all
}

func (h *hold) isAway() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.away
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pauses are between the tries of something that fails: short at first, so that what was away for a moment costs no more.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// pause waits after a number of failures, counted from 1, or until ctx ends.
func pause(ctx context.Context, failures int) {
	timer := time.NewTimer(min(firstPause<<min(failures-1, 10), longPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
