package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// HandlerFunc is an inline subscriber.
type HandlerFunc func(ctx context.Context, e Event) error

// SubscriberError says that inline subscribers failed. The event was captured, or is part of the caller's transaction:
// after Publish, do not publish it again; under PublishTx, roll back.
type SubscriberError struct {
	// Name and ID are the event's.
	Name, ID string
	// Errs has one error for each subscriber that failed, in the order of subscription.
	Errs []error
}

// Error implements error.
func (e *SubscriberError) Error() string {
	texts := make([]string, len(e.Errs))
	for i, err := range e.Errs {
		texts[i] = err.Error()
	}
	return fmt.Sprintf("loam: %d inline subscriber(s) of event %s (%s) failed: %s; "+
		"after Publish the event is captured, do not publish it again; under PublishTx roll back",
		len(e.Errs), e.Name, e.ID, strings.Join(texts, "; "))
}

// Unwrap returns the subscribers' errors.
func (e *SubscriberError) Unwrap() []error { return e.Errs }

// Bus keeps the inline subscribers of one engine. The zero Bus is ready. It is safe for use by several goroutines;
// who subscribes while an event is dispatched gets the next one.
type Bus struct {
	mu   sync.RWMutex
	subs []*subscription
}

type subscription struct {
	pattern string
	handle  HandlerFunc
}

// Subscribe adds an inline subscriber to the events that pattern matches; the empty pattern is every event. It returns
// a function that takes the subscriber away again. A bad pattern or a nil handler is a programming error, and panics.
func (b *Bus) Subscribe(pattern string, handle HandlerFunc) (unsubscribe func()) {
	if handle == nil {
		panic(errors.New("loam: Subscribe: the handler is nil")) //nolint:forbidigo // a programming error at boot
	}
	if pattern != "" {
		if err := CheckPattern(pattern); err != nil {
			panic(err) //nolint:forbidigo // a programming error at boot
		}
	}
	s := &subscription{pattern, handle}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs = append(slices.Clip(b.subs), s)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.subs = slices.DeleteFunc(slices.Clone(b.subs), func(other *subscription) bool { return other == s })
	}
}

// Dispatch runs every subscriber that matches, in order, in this goroutine. Their errors come back together as a
// *SubscriberError. A panic goes on, with its own value, after the remaining subscribers have run; of several the first.
func (b *Bus) Dispatch(ctx context.Context, e Event) error {
	b.mu.RLock()
	subs := b.subs // never changed in place
	b.mu.RUnlock()

	d := dispatch{ctx: inline(ctx, e), event: e}
	for _, s := range subs {
		if Match(s.pattern, e.Name) {
			d.rest = append(d.rest, s.handle)
		}
	}
	d.run()
	if d.panicked {
		panic(d.value) //nolint:forbidigo // the subscriber's own, passed on
	}
	if len(d.errs) > 0 {
		return &SubscriberError{Name: e.Name, ID: e.ID, Errs: d.errs}
	}
	return nil
}

// dispatch is one run over the subscribers; it lives as long as the call.
type dispatch struct {
	ctx      context.Context //nolint:containedctx // see above
	event    Event
	rest     []HandlerFunc
	errs     []error
	panicked bool
	value    any
}

func (d *dispatch) run() {
	for len(d.rest) > 0 {
		d.one()
	}
}

func (d *dispatch) one() {
	handle := d.rest[0]
	d.rest = d.rest[1:]
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil { // runtime.Goexit: this goroutine ends here, and the others still have their turn
			d.run()
			return
		}
		if !d.panicked {
			d.panicked, d.value = true, v
		}
	}()
	err := handle(d.ctx, d.event.copy())
	returned = true
	if err != nil {
		d.errs = append(d.errs, err)
	}
}
