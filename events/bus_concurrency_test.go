package events_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/openloam/loam/events"
)

// contract: E-04. Who subscribes or leaves while an event is dispatched does so for the next one.
func TestSubscribersThatComeAndGo(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	var ran []string
	note := func(who string) events.HandlerFunc {
		return func(context.Context, events.Event) error {
			ran = append(ran, who)
			return nil
		}
	}
	var leaveB, leaveD func()
	bus.Subscribe("", func(context.Context, events.Event) error {
		ran = append(ran, "a")
		if leaveD == nil {
			leaveB()
			leaveD = bus.Subscribe("", note("d"))
		}
		return nil
	})
	leaveB = bus.Subscribe("", note("b"))
	bus.Subscribe("", note("c"))
	want := []string{"abc", "acd", "ac"}
	for i, w := range want {
		ran = nil
		if i == 2 {
			leaveD()
			leaveD() // a second time changes nothing
		}
		if err := bus.Dispatch(t.Context(), event(t)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(ran, ""); got != w {
			t.Errorf("event %d reached %s, want %s", i+1, got, w)
		}
	}
}

// contract: E-04. Leaving takes away that subscription, not another of the same function.
func TestLeavingIsOneSubscription(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	ran := 0
	count := func(context.Context, events.Event) error {
		ran++
		return nil
	}
	leave := bus.Subscribe("", count)
	bus.Subscribe("", count)
	leave()
	if err := bus.Dispatch(t.Context(), event(t)); err != nil || ran != 1 {
		t.Errorf("%d ran (%v), want one", ran, err)
	}
}

// contract: E-04, E-13. Subscribing, leaving and publishing at once is no race, and who stays gets every event once.
// scenario: B009, B028
func TestBusUnderConcurrency(t *testing.T) {
	t.Parallel()
	var bus events.Bus
	var stayed atomic.Int64
	bus.Subscribe("billing.", func(_ context.Context, e events.Event) error {
		stayed.Add(1)
		e.Payload["x"] = "mine"
		return nil
	})
	bus.Subscribe("", func(_ context.Context, e events.Event) error {
		for range 100 {
			if e.Payload["x"] != "original" {
				t.Errorf("sees what another wrote: %v", e.Payload)
				break
			}
		}
		return nil
	})
	const n = 50
	none := func(context.Context, events.Event) error { return nil }
	leave := make([]func(), n)
	for i := range n {
		leave[i] = bus.Subscribe("billing.", none)
	}
	e := event(t)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			leave[i]()
		})
		if i%10 == 0 {
			all.Go(func() {
				<-start
				bus.Subscribe("billing.invoice.", none)
			})
		}
		all.Go(func() {
			<-start
			if err := bus.Dispatch(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	all.Wait()
	if stayed.Load() != n {
		t.Errorf("the one that stayed got %d events of %d", stayed.Load(), n)
	}
}
