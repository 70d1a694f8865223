package durable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

// A subscriber is registered at boot; which ones an event will reach can be asked.
func ExampleRegistry_RegisterFunc() {
	registry := durable.NewRegistry() // durable.RegisterFunc fills the default one
	registry.RegisterFunc("mailer.receipt", "billing.invoice.paid",
		func(ctx context.Context, e events.Event) error { return nil })
	registry.RegisterFunc("audit.log", "billing.",
		func(ctx context.Context, e events.Event) error { return nil })

	for _, name := range []string{"billing.invoice.paid", "billing.refund.made", "shop.order.placed"} {
		fmt.Print(name, ":")
		for _, s := range registry.SubscribersFor(name) {
			fmt.Print(" ", s.Key)
		}
		fmt.Println()
	}
	// Output:
	// billing.invoice.paid: mailer.receipt audit.log
	// billing.refund.made: audit.log
	// shop.order.placed:
}

// receipts is a Handler with something to hold.
type receipts struct{ sender string }

func (r receipts) Handle(_ context.Context, e events.Event) error {
	fmt.Printf("%s sends the receipt for invoice %v\n", r.sender, e.Payload["invoice_id"])
	return nil
}

// A handler can be a type; its key says how the rows name it.
func ExampleRegistry_Register() {
	registry := durable.NewRegistry()
	registry.Register("mailer.receipt", "billing.invoice.paid", receipts{sender: "billing@example.com"},
		durable.WithTimeout(20*time.Second), durable.WithQueue("mail"))

	s, _ := registry.HandlerFor("mailer.receipt")
	_ = s.Handler.Handle(context.Background(), events.Event{Payload: events.Payload{"invoice_id": int64(42)}})
	fmt.Println(s.Timeout, s.Queue)
	// Output:
	// billing@example.com sends the receipt for invoice 42
	// 20s mail
}

// The waits between the runs of a delivery that fails, and a schedule of one's own.
func ExampleBackoff() {
	for n, wait := range durable.Backoff() {
		if n > 0 {
			fmt.Printf("after failure %d: %v\n", n, wait)
		}
	}
	registry := durable.NewRegistry()
	registry.RegisterFunc("search.index", "shop.",
		func(ctx context.Context, e events.Event) error { return errors.New("the index is down") },
		durable.WithMaxAttempts(20), durable.WithBackoff(time.Second, 10*time.Second, time.Minute))
	s, _ := registry.HandlerFor("search.index")
	fmt.Println(s.MaxAttempts, "attempts, then dead; waits", s.Backoff[1:], "the last being the cap")
	// Output:
	// after failure 1: 1m0s
	// after failure 2: 5m0s
	// after failure 3: 30m0s
	// after failure 4: 2h0m0s
	// 20 attempts, then dead; waits [1s 10s 1m0s] the last being the cap
}

// A key that is taken is a mistake at boot, and the message says where both registrations are.
func ExampleRegister_twice() {
	registry := durable.NewRegistry()
	handler := func(ctx context.Context, e events.Event) error { return nil }
	registry.RegisterFunc("mailer.receipt", "billing.invoice.paid", handler)
	defer func() {
		if recover() != nil {
			fmt.Println("mailer.receipt is registered twice")
		}
	}()
	registry.RegisterFunc("mailer.receipt", "billing.invoice.sent", handler)
	// Output: mailer.receipt is registered twice
}
