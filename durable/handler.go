package durable

import (
	"context"

	"github.com/openloam/loam/events"
)

// Handler handles the events of one durable subscriber. It is called from several goroutines at once, and must be
// idempotent. The context carries the delivery's tenant and ends at the subscriber's timeout, at shutdown, or when the
// claim is lost; context.Cause says which. nil means delivered, whatever the context says; an error means failed.
type Handler interface {
	Handle(ctx context.Context, e events.Event) error
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, e events.Event) error

// Handle implements Handler.
func (f HandlerFunc) Handle(ctx context.Context, e events.Event) error { return f(ctx, e) }
