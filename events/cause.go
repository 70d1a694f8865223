package events

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
)

// DefaultMaxDepth is how many events may cause each other in a row unless the engine's Config says otherwise.
const DefaultMaxDepth = 32

// ErrTooDeep is returned at publish inside a subscriber when too many events have caused each other in a row: most likely
// subscribers that publish for each other without end.
var ErrTooDeep = errors.New("loam: too many events have caused each other in a row")

type causeKey struct{}

// cause is what a context knows of the event whose subscriber it belongs to.
type cause struct {
	depth int // of the event
	run   *handlerRun
}

// handlerRun gives the events that one run of a durable handler publishes the same ids in the next run.
type handlerRun struct {
	eventID, subscriber string

	mu    sync.Mutex
	equal map[string]int // how often the same was published, by what was
}

// namespace of derived ids: a random UUID, made once.
var namespace = uuid.MustParse("5d0c6f4e-3f0a-4d8e-9c61-0b6a3f2f7a35")

// InRun returns the context for a run of a durable subscriber. What is published on it has by default an id that is
// derived from the event, the subscriber, the name, the payload and the ordinal among equals, so that a run that is
// repeated does not publish twice. An equal publish in a transaction that was rolled back counts as one of the equals.
func InRun(ctx context.Context, e Event, subscriber string) context.Context {
	run := &handlerRun{eventID: e.ID, subscriber: subscriber, equal: map[string]int{}}
	return context.WithValue(ctx, causeKey{}, cause{e.Headers.Depth, run})
}

// inline returns the context for inline subscribers: one deeper, in the same run if there is one.
func inline(ctx context.Context, e Event) context.Context {
	c, _ := ctx.Value(causeKey{}).(cause)
	return context.WithValue(ctx, causeKey{}, cause{e.Headers.Depth, c.run})
}

// depth is that of an event published on ctx.
func depth(ctx context.Context, limit int) (int, error) {
	c, ok := ctx.Value(causeKey{}).(cause)
	if !ok {
		return 0, nil
	}
	if c.depth >= limit {
		return 0, fmt.Errorf("%w: the limit is %d", ErrTooDeep, limit)
	}
	return c.depth + 1, nil
}

// newID makes the id of an event that was published without one. undo is not nil for a derived id: it gives the ordinal
// back.
func newID(ctx context.Context, name string, payload []byte) (id string, undo func(), err error) {
	c, _ := ctx.Value(causeKey{}).(cause)
	if c.run == nil {
		v7, err := uuid.NewV7()
		if err != nil {
			return "", nil, fmt.Errorf("make an event id: %w", err)
		}
		return v7.String(), nil, nil
	}
	what := fmt.Sprintf("%s\x00%s\x00%s\x00%s", c.run.eventID, c.run.subscriber, name, payload)
	n := c.run.count(what, 1)
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "%s\x00%d", what, n)).String(), func() { c.run.count(what, -1) }, nil
}

// count adds to how often the same was published, and returns what it was.
func (r *handlerRun) count(what string, add int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.equal[what]
	r.equal[what] += add
	return n
}
