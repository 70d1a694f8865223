package durable

import (
	"context"
	"fmt"
	"sync"
)

// Stop refuses new claims; calls that wait for a slot return ErrStopping. Runs go on.
func (d *Deliveries) Stop() {
	d.stopOnce.Do(func() { close(d.stopping) })
}

// Cancel ends the contexts of all handlers with ErrShutdown, also of those whose claim is just being granted.
func (d *Deliveries) Cancel() {
	d.cancelOnce.Do(func() { close(d.cancelling) })
	for _, r := range d.inflight.all() {
		r.cancel(ErrShutdown)
	}
}

func (d *Deliveries) cancelled() bool {
	select {
	case <-d.cancelling:
		return true
	default:
		return false
	}
}

// Wait waits until every run has its outcome. Call Stop first. When ctx ends before that, outcomes that could not be
// written are given up; each delivery that has not ended is logged, and the error says how many there are.
func (d *Deliveries) Wait(ctx context.Context) error {
	defer d.abandon()
	if d.calls.wait(ctx) == 0 {
		return nil
	}
	left := d.inflight.all()
	for _, r := range left {
		d.Logger.WarnContext(ctx, "not ended at shutdown: the handler has not returned, or its outcome cannot be written", r.row.attrs()...)
	}
	return fmt.Errorf("durable: %d deliveries have not ended", len(left))
}

// counter counts what goes on. Unlike a sync.WaitGroup it can be waited for with a limit, and entered meanwhile.
type counter struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // not nil while somebody waits
}

func (c *counter) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.zero != nil {
		close(c.zero)
		c.zero = nil
	}
}

// wait waits for zero, or for the end of ctx, and returns the count.
func (c *counter) wait(ctx context.Context) int {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return 0
	}
	if c.zero == nil {
		c.zero = make(chan struct{})
	}
	zero := c.zero
	c.mu.Unlock()
	select {
	case <-zero:
		return 0
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}
