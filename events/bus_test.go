package events_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

// event makes an event with one value in its payload.
func event(t *testing.T) events.Event {
	t.Helper()
	e, err := events.New(tenant.With(t.Context(), "acme"), name, events.Payload{"x": "original"}, limits(1000))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// caught runs f and returns what it panics with.
func caught(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// goroutine is the id of the calling goroutine.
func goroutine() string {
	buf := make([]byte, 64)
	id, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), " [")
	return id
}

// contract: E-02, E-03, E-04. Those that match run once each, in the order of subscription, in the caller's goroutine and
// with its context, before Dispatch returns.
// scenario: B024
func TestDispatchRunsWhatMatchesInOrder(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	e, here := event(t), goroutine()
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "caller's")
	var ran []string
	for i, pattern := range []string{"billing.", "billing.invoice.paid", "", "shop.", "billing.invoice.void", "billing.invoice.", "", "billing.invoice.paid"} {
		bus.Subscribe(pattern, func(ctx context.Context, got events.Event) error {
			ran = append(ran, strconv.Itoa(i))
			if there := goroutine(); there != here {
				t.Errorf("subscriber %d ran in %s, the publisher's is %s", i, there, here)
			}
			if ctx.Value(key{}) != "caller's" || got.ID != e.ID || got.Name != name || got.TenantID != "acme" || got.Payload["x"] != "original" {
				t.Errorf("subscriber %d got %+v", i, got)
			}
			return nil
		})
	}
	if err := bus.Dispatch(ctx, e); err != nil {
		t.Fatal(err)
	}
	if want := []string{"0", "1", "2", "5", "6", "7"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}

// contract: E-05. All run, whatever the others do; their errors come back together, in order.
func TestErrorsAreJoined(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	first, second := errors.New("first"), errors.New("second")
	ran := 0
	for _, err := range []error{nil, first, nil, second, nil} {
		bus.Subscribe("billing.", func(context.Context, events.Event) error {
			ran++
			return err
		})
	}
	e := event(t)
	err := bus.Dispatch(t.Context(), e)
	var failed *events.SubscriberError
	if !errors.As(err, &failed) || !errors.Is(err, first) || !errors.Is(err, second) {
		t.Fatalf("got %v, want a SubscriberError with both", err)
	}
	if ran != 5 || failed.Name != name || failed.ID != e.ID || !slices.Equal(failed.Errs, []error{first, second}) {
		t.Errorf("%d ran; the error is %+v", ran, failed)
	}
	for _, want := range []string{name, e.ID, "captured", "do not publish it again", "first", "second"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
}

// contract: E-06. A panic goes on with its own value, of several the first, after all others have run.
func TestPanicGoesOnAfterTheOthers(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	value := &struct{ s string }{"boom"}
	ran := 0
	for _, f := range []func() error{
		func() error { return nil },
		func() error { return errors.New("an error") },
		func() error { panic(value) },
		func() error { panic("a second one") },
		func() error { return nil },
	} {
		bus.Subscribe("", func(context.Context, events.Event) error {
			ran++
			return f()
		})
	}
	if got := caught(func() { _ = bus.Dispatch(t.Context(), event(t)) }); got != value {
		t.Errorf("the panic is %v, want the first one's own value", got)
	}
	if ran != 5 {
		t.Errorf("%d of 5 ran", ran)
	}
	if ran = 0; caught(func() { _ = bus.Dispatch(t.Context(), event(t)) }) != value || ran != 5 {
		t.Errorf("after a panic the bus ran %d of 5", ran)
	}
}

// contract: E-06. panic(nil) is a panic too.
func TestPanicNilGoesOn(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	bus.Subscribe("", func(context.Context, events.Event) error { panic(nil) })
	ran := false
	bus.Subscribe("", func(context.Context, events.Event) error {
		ran = true
		return nil
	})
	got := caught(func() { _ = bus.Dispatch(t.Context(), event(t)) })
	if _, ok := got.(*runtime.PanicNilError); !ok || !ran {
		t.Errorf("got %v; the other ran: %v", got, ran)
	}
}

// contract: E-05. A subscriber that ends the goroutine (as t.FailNow does) does not keep the others from running.
func TestGoexitLetsTheOthersRun(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	ran := 0
	count := func(context.Context, events.Event) error {
		ran++
		return nil
	}
	exit := func(context.Context, events.Event) error {
		runtime.Goexit()
		return nil
	}
	for _, f := range []events.HandlerFunc{count, exit, count, exit, count} {
		bus.Subscribe("", f)
	}
	e, ended, returned := event(t), make(chan struct{}), false
	go func() {
		defer close(ended)
		_ = bus.Dispatch(t.Context(), e)
		returned = true
	}()
	<-ended
	if ran != 3 || returned {
		t.Errorf("%d of 3 ran; Dispatch returned: %v", ran, returned)
	}
}

// contract: E-13. What one subscriber writes into its payload, no other and not the publisher sees.
// scenario: B009
func TestEachSubscriberHasItsOwnPayload(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	for range 3 {
		bus.Subscribe("", func(_ context.Context, e events.Event) error {
			if e.Payload["x"] != "original" || len(e.Payload) != 3 {
				t.Errorf("sees %v", e.Payload)
			}
			e.Payload["x"], e.Payload["new"] = "written", 1
			delete(e.Payload, "tenant_id")
			return nil
		})
	}
	e := event(t)
	if err := bus.Dispatch(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if e.Payload["x"] != "original" || len(e.Payload) != 3 {
		t.Errorf("the publisher's event became %v", e.Payload)
	}
}

// contract: E-03. A bad pattern or a nil handler is a programming error; the empty pattern is allowed here.
func TestSubscribePanicsOnProgrammingErrors(t *testing.T) {
	t.Parallel()
	fine := func(context.Context, events.Event) error { return nil }
	for what, f := range map[string]func(bus *events.Bus){
		"a bad pattern": func(bus *events.Bus) { bus.Subscribe("billing.*", fine) },
		"too long":      func(bus *events.Bus) { bus.Subscribe(long(201), fine) },
		"no handler":    func(bus *events.Bus) { bus.Subscribe("billing.", nil) },
	} {
		var bus events.Bus
		if got := caught(func() { f(&bus) }); got == nil {
			t.Errorf("%s: no panic", what)
		}
		if err := bus.Dispatch(t.Context(), event(t)); err != nil {
			t.Errorf("%s: it was subscribed all the same: %v", what, err)
		}
	}
}
