package natsjs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/outbox/natsjs"
)

// consumeAndHang is a child that hangs with the first message that it gets.
func consumeAndHang(o childOrder) error {
	bus, err := natsjs.New(natsjs.Config{Service: "mail", URL: o.URL})
	if err != nil {
		return err
	}
	bus.AckWait(killedAckWait)
	bus.Consume(context.Background(), &scripted{attempts: o.Attempts, receive: func(_ context.Context, evs []events.Event) []error {
		fmt.Println("received", evs[0].ID)
		select {}
	}})
	return nil
}

const killedAckWait = 500 * time.Millisecond

// A consumer is killed (SIGKILL) in each delivery of an event, also in the last. The next process brings it to the operator.
//
// contract: N-03
// scenario: B133
func TestAConsumerKilledInItsLastDelivery(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	e := event(t, paid, nil)
	newSender(t, url).send(e)
	for range 2 {
		if said := killed(t, childOrder{URL: url, Attempts: 2}); said != "received "+e.ID {
			t.Fatalf("the child said %q", said)
		}
	}
	in := &scripted{attempts: 2}
	p := receive(t, url, "mail", in, ackWait(killedAckWait))
	eventually(t, "it is a dead letter", func() bool { return len(in.buried()) == 1 && p.count("loam.nats.exhausted") == 1 })
	if l := in.buried()[0]; l.EventID != e.ID || l.Attempts != 2 || in.times(e) != 0 {
		t.Errorf("%+v; it came %d times more", l, in.times(e))
	}
	if len(p.logs.Lines("ERROR event exhausted max deliveries", "event_id="+e.ID)) != 1 {
		t.Errorf("the log is\n%s", strings.Join(p.logs.Lines(), "\n"))
	}
}
