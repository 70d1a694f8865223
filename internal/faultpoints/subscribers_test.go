package faultpoints_test

import (
	"context"
	"errors"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

// Names of events that the script publishes.
const (
	paid    = "billing.invoice.paid"
	sent    = "billing.invoice.sent"
	viewed  = "billing.invoice.viewed"
	opened  = "billing.invoice.opened"
	voided  = "billing.invoice.voided"
	due     = "billing.invoice.due"
	crashed = "billing.invoice.crashed"
	done    = "billing.invoice.done"
	old     = "billing.invoice.old"
	gone    = "billing.invoice.gone"
	follows = "billing.invoice.follows"
	billed  = "shop.order.billed" // these are enqueued
	also    = "shop.order.also"
	shipped = "shop.order.shipped"

	received = "shop.order.received" // this one a bus brings
)

// Keys that the script or the checks name.
const (
	keyRelay  = "relay"
	keyFollow = "follow"
	keySlow   = "slow"
	keyDoomed = "doomed"
	keyDone   = "done"
	keyOld    = "old"
	keyGone   = "gone"
	keyNext   = "next"
)

type subscriber struct {
	key, pattern string
	handle       func(ctx context.Context, w *world, proc string, e events.Event) error
	end          durable.Status
	opts         []durable.Option
}

var errNo = errors.New("no")

// subscribers are what the processes run. What a handler does depends on the row alone, so that another process goes on
// where the first was killed.
var subscribers = []subscriber{
	{key: "ok", pattern: paid, handle: succeed, end: durable.Delivered},
	{key: "flaky", pattern: paid, handle: failFirst, end: durable.Delivered},
	{key: keyRelay, pattern: paid, handle: relay, end: durable.Delivered},
	{key: "park", pattern: sent, handle: park, end: durable.Dead},
	{key: "panic", pattern: sent, handle: panicFirst, end: durable.Delivered},
	{key: "snooze", pattern: sent, handle: snoozeFirst, end: durable.Delivered},
	{key: "plain", pattern: viewed, handle: succeed, end: durable.Delivered},
	{key: keySlow, pattern: opened, handle: slow, end: durable.Delivered},
	{key: keyDoomed, pattern: voided, handle: doomed, end: durable.Delivered, opts: []durable.Option{durable.WithMaxAttempts(2)}},
	{key: "due", pattern: due, handle: succeed, end: durable.Delivered},
	{key: "crashed", pattern: crashed, handle: succeed, end: durable.Delivered},
	{key: keyDone, pattern: done, handle: succeed, end: durable.Delivered},
	{key: keyOld, pattern: old, handle: succeed, end: durable.Dead},
	{key: keyGone, pattern: gone, handle: succeed, end: durable.Delivered},
	{key: keyFollow, pattern: follows, handle: succeed, end: durable.Delivered},
	{key: "billed", pattern: billed, handle: succeed, end: durable.Delivered},
	{key: keyNext, pattern: billed, handle: enqueueNext, end: durable.Delivered},
	{key: "also", pattern: also, handle: succeed, end: durable.Delivered},
	{key: "shipped", pattern: shipped, handle: succeed, end: durable.Delivered},
	{key: "received", pattern: received, handle: succeed, end: durable.Delivered},
	{key: "received too", pattern: received, handle: succeed, end: durable.Delivered},
}

func (w *world) handler(proc string, s subscriber) func(context.Context, events.Event) error {
	return func(ctx context.Context, e events.Event) error { return s.handle(ctx, w, proc, e) }
}

// row is the delivery that is being run, as it was claimed.
func row(ctx context.Context) *durable.EventDelivery {
	d, _ := ctx.Value(rowKey{}).(*durable.EventDelivery)
	return d
}

func succeed(context.Context, *world, string, events.Event) error { return nil }

func failFirst(ctx context.Context, _ *world, _ string, _ events.Event) error {
	if row(ctx).Attempts == 0 {
		return errNo
	}
	return nil
}

func panicFirst(ctx context.Context, _ *world, _ string, _ events.Event) error {
	if row(ctx).Attempts == 0 {
		panic("no")
	}
	return nil
}

func park(context.Context, *world, string, events.Event) error { return durable.Park(errNo) }

func snoozeFirst(ctx context.Context, _ *world, _ string, _ events.Event) error {
	if row(ctx).Runs == 1 {
		return durable.Snooze(30 * time.Second)
	}
	return nil
}

// relay publishes another event. Its id is derived, so that there is one of it however often this runs.
func relay(ctx context.Context, w *world, proc string, _ events.Event) error {
	e, err := w.event(ctx, follows, "")
	if err != nil {
		return err
	}
	r := w.a
	if proc == "b" {
		r = w.b
	}
	return r.Deliveries.Capture(ctx, e)
}

// slow waits for the script, in the process that it drives.
func slow(ctx context.Context, w *world, proc string, _ events.Event) error {
	if proc != "a" {
		return nil
	}
	w.started <- ctx
	select {
	case <-w.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// doomed fails until an operator has redelivered it: then its history is longer than its attempts.
func doomed(ctx context.Context, _ *world, _ string, _ events.Event) error {
	if d := row(ctx); len(d.History()) == d.Attempts {
		return errNo
	}
	return nil
}
