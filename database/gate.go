package database

import (
	"context"
	"sync"
)

// gate lets one in at a time: those that go first, then the others, each in the order in which they came. It stands
// before the pool because database/sql hands a free connection to any waiter.
type gate struct {
	mu    sync.Mutex
	taken bool
	first []chan struct{}
	rest  []chan struct{}
}

// enter waits for the gate. Its error is the cause of ctx.
func (g *gate) enter(ctx context.Context, first bool) error {
	g.mu.Lock()
	if !g.taken {
		g.taken = true
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	queue := &g.rest
	if first {
		queue = &g.first
	}
	*queue = append(*queue, turn)
	g.mu.Unlock()

	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range *queue {
		if c == turn {
			*queue = append((*queue)[:i], (*queue)[i+1:]...)
			return context.Cause(ctx)
		}
	}
	g.next() // the turn came at the same moment: pass it on
	return context.Cause(ctx)
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next()
}

// next gives the turn to who waits; the caller holds mu and the gate.
func (g *gate) next() {
	for _, queue := range []*[]chan struct{}{&g.first, &g.rest} {
		if len(*queue) > 0 {
			turn := (*queue)[0]
			*queue = (*queue)[1:]
			close(turn)
			return
		}
	}
	g.taken = false
}
