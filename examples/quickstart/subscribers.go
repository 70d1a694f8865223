package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

// world is what the durable subscribers act on.
type world struct {
	out      *printer
	repaired atomic.Bool
	mu       sync.Mutex
	tries    map[string]int // of the flaky one, by event
}

// register registers three durable subscribers: one that works, one that fails twice, one that is broken. A program has
// such registrations in an init function; this one does it here so that the handlers can print.
func register(out *printer) *world {
	w := &world{out: out, tries: map[string]int{}}
	retry := []durable.Option{durable.WithMaxAttempts(3), durable.WithBackoff(100*time.Millisecond, 200*time.Millisecond)}
	durable.RegisterFunc("mailer.receipt", "billing.", w.mail, retry...)
	durable.RegisterFunc("crm.sync", "billing.", w.sync, retry...)
	durable.RegisterFunc("warehouse.export", "billing.", w.export, retry...)
	return w
}

func (w *world) repair() { w.repaired.Store(true) }

func (w *world) mail(_ context.Context, e events.Event) error {
	w.out.say("mailer.receipt", e, "sent")
	return nil
}

func (w *world) sync(_ context.Context, e events.Event) error {
	w.mu.Lock()
	w.tries[e.ID]++
	n := w.tries[e.ID]
	w.mu.Unlock()
	if n <= 2 {
		w.out.say("crm.sync", e, fmt.Sprintf("failed (%d of 2 times)", n))
		return errors.New("the CRM did not answer")
	}
	w.out.say("crm.sync", e, "synced at the third attempt")
	return nil
}

func (w *world) export(_ context.Context, e events.Event) error {
	if !w.repaired.Load() {
		w.out.say("warehouse.export", e, "failed: it is broken")
		return errors.New(`column "amount" does not exist`)
	}
	w.out.say("warehouse.export", e, "exported")
	return nil
}
