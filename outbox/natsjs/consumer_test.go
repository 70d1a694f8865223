package natsjs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// receiver is a process that consumes.
type receiver struct {
	*sender
	stop func() // it returns when Consume has
}

// receive starts a process of a service. change is done before.
func receive(t *testing.T, url, service string, in outbox.Inbox, change ...func(*natsjs.Bus)) *receiver {
	t.Helper()
	return receiveWith(t, url, func(c *natsjs.Config) { c.Service = service }, in, change...)
}

func receiveWith(t *testing.T, url string, config func(*natsjs.Config), in outbox.Inbox, change ...func(*natsjs.Bus)) *receiver {
	t.Helper()
	s := newSender(t, url, config)
	s.Backoff(quick)
	s.Hurry()
	s.AckWait(10 * time.Second) // nats.go loses what comes more than a second late on a busy machine; then it comes again
	for _, c := range change {
		c(s.Bus)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { s.Consume(ctx, in) })
	r := &receiver{s, func() {
		cancel()
		all.Wait()
	}}
	t.Cleanup(r.stop)
	return r
}

// quick is the schedule of most tests.
func quick(int) time.Duration { return 30 * time.Millisecond }

func ackWait(d time.Duration) func(*natsjs.Bus) { return func(b *natsjs.Bus) { b.AckWait(d) } }

// consumer is how a service's consumer stands.
func consumer(t *testing.T, js jetstream.JetStream, service string) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := js.Consumer(t.Context(), natsjs.DefaultStream, service)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo()
}

// idle reports whether a service's consumer has handed out everything and has every answer.
func idle(t *testing.T, js jetstream.JetStream, service string) bool {
	t.Helper()
	c, err := js.Consumer(t.Context(), natsjs.DefaultStream, service)
	if err != nil {
		return false
	}
	info := c.CachedInfo()
	return info.NumPending == 0 && info.NumAckPending == 0
}

// many are events with a number each.
func many(t *testing.T, n int) []events.Event {
	t.Helper()
	evs := make([]events.Event, n)
	for i := range evs {
		evs[i] = event(t, paid, events.Payload{"n": i})
	}
	return evs
}

// scripted is an inbox that a test gets in the way of.
type scripted struct {
	outbox.Inbox
	attempts int
	// receive, if set, is asked first; what it returns is the result, unless it is nil.
	receive func(ctx context.Context, evs []events.Event) []error
	bury    func(outbox.Letter) error

	mu      sync.Mutex
	seen    map[string]int // how often each event came
	letters []outbox.Letter
}

func (s *scripted) Receive(ctx context.Context, evs []events.Event) []error {
	s.mu.Lock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	for _, e := range evs {
		s.seen[e.ID]++
	}
	s.mu.Unlock()
	if s.receive != nil {
		if results := s.receive(ctx, evs); results != nil {
			return results
		}
	}
	if s.Inbox != nil {
		return s.Inbox.Receive(ctx, evs)
	}
	return make([]error, len(evs))
}

func (s *scripted) DeadLetter(ctx context.Context, l outbox.Letter) error {
	if s.bury != nil {
		if err := s.bury(l); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.letters = append(s.letters, l)
	s.mu.Unlock()
	if s.Inbox != nil {
		return s.Inbox.DeadLetter(ctx, l)
	}
	return nil
}

func (s *scripted) Attempts() int {
	if s.attempts != 0 || s.Inbox == nil {
		return max(s.attempts, 1)
	}
	return s.Inbox.Attempts()
}

// times is how often an event came.
func (s *scripted) times(e events.Event) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[e.ID]
}

// buried are the letters so far.
func (s *scripted) buried() []outbox.Letter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]outbox.Letter(nil), s.letters...)
}

// bug has the capture of an event fail, for a reason of its own, until mend.
func bug(faults *dbtest.Faults, e events.Event) (mend func()) {
	faults.Before(func(op dbtest.Op) error {
		if strings.Contains(op.SQL, "INSERT INTO event_deliveries") && strings.Contains(fmt.Sprint(op.Args), e.ID) {
			return errors.New("a bug in capture")
		}
		return nil
	})
	return func() { faults.Before(nil) }
}

// dead are the rows that an operator sees as dead_lettered.
func dead(t *testing.T, r *rig.Rig) []outbox.Entry {
	t.Helper()
	rows, err := r.Queue.List(t.Context(), outbox.Query{Status: outbox.DeadLettered, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// mailer makes a rig with a subscriber of billing.
func mailer(r *rig.Rig) *rig.Rig {
	r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { return nil })
	return r
}

var errFails = errors.New("it fails")
