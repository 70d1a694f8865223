package natsjs_test

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// receiveCore starts a process of a service in mode core, and returns when it listens.
func receiveCore(t *testing.T, s *server.Server, service string, in outbox.Inbox) *receiver {
	t.Helper()
	before := s.NumSubscriptions()
	p := receiveWith(t, s.ClientURL(), func(c *natsjs.Config) { c.Service, c.Mode = service, natsjs.Core }, in)
	eventually(t, "it listens", func() bool { return s.NumSubscriptions() > before })
	return p
}

// In mode core, without JetStream, two processes of a service share what comes by, and another service gets all. What comes
// while nobody listens is lost.
//
// contract: N-05
func TestCoreIsShared(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const n = 80
		s := natsserver.Run(t, func(o *server.Options) { o.JetStream = false })
		from := newSender(t, s.ClientURL(), func(c *natsjs.Config) { c.Mode = natsjs.Core })
		from.send(many(t, 5)...) // to nobody
		r := mailer(rig.New(t, db))
		other := &scripted{}
		first, second := receiveCore(t, s, "mail", r.Queue), receiveCore(t, s, "mail", r.Queue)
		third := receiveCore(t, s, "books", other)
		from.send(many(t, n)...)
		eventually(t, "all are captured", func() bool { return len(r.Rows("acme")) == n && third.count("loam.nats.received") == n })
		a, b := first.count("loam.nats.received"), second.count("loam.nats.received")
		if a+b != n || a == 0 || b == 0 || len(dead(t, r)) != 0 {
			t.Errorf("the processes have received %d and %d", a, b)
		}
	})
}

// What cannot be captured in mode core is lost: that is logged with its id, or once for an outage, and counted. The process goes on.
//
// contract: N-05
func TestCoreLosesWhatIsNotCaptured(t *testing.T) {
	t.Parallel()
	s := natsserver.Run(t, func(o *server.Options) { o.JetStream = false })
	evs := many(t, 30)
	in := &scripted{}
	in.receive = func(_ context.Context, got []events.Event) []error {
		errs := make([]error, len(got))
		for i, e := range got {
			switch n, _ := e.Payload["n"].(int64); {
			case n == 3:
				errs[i] = errFails
			case n == 4:
				panic("a bug")
			case n >= 10 && n < 20:
				errs[i] = outbox.Unavailable(errFails)
			}
		}
		return errs
	}
	p := receiveCore(t, s, "mail", in)
	from := newSender(t, s.ClientURL(), func(c *natsjs.Config) { c.Mode = natsjs.Core })
	if err := p.Connection().Publish(natsjs.DefaultSubject+".odd", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	for _, e := range evs { // one by one
		from.send(e)
		eventually(t, "it comes", func() bool { return in.times(e) > 0 })
	}
	p.stop()
	if n := p.count("loam.nats.lost"); n != 13 {
		t.Errorf("%d are lost, want 13", n)
	}
	if len(p.logs.Lines("ERROR event lost", "event_id="+evs[3].ID)) != 1 || len(p.logs.Lines("ERROR event lost", "panic: a bug")) != 1 ||
		len(p.logs.Lines("ERROR event lost", "no CloudEvent")) != 1 || len(p.logs.Lines("ERROR failing", "are lost")) != 1 ||
		len(p.logs.Lines("INFO succeeding again")) != 1 || len(p.logs.Lines("ERROR")) != 4 || len(p.logs.Lines("secret")) != 0 {
		t.Errorf("the log is\n%s", strings.Join(p.logs.Lines(), "\n"))
	}
}

// A process of mode core that starts before its broker listens once that is there, and again after a restart.
//
// contract: N-05
func TestCoreListensWhenTheBrokerComes(t *testing.T) {
	t.Parallel()
	broker := natsserver.Start(t)
	broker.Down()
	in := &scripted{}
	p := receiveWith(t, broker.URL(), func(c *natsjs.Config) { c.Service, c.Mode = "mail", natsjs.Core }, in)
	eventually(t, "the outage is noticed", func() bool { return len(p.logs.Lines("ERROR failing", "what=receiving events from NATS")) == 1 })
	from := newSender(t, broker.URL(), func(c *natsjs.Config) { c.Mode = natsjs.Core })
	for range 2 {
		broker.Up()
		before := p.count("loam.nats.received")
		eventually(t, "an event comes", func() bool {
			_ = from.Send(t.Context(), many(t, 1))
			return p.count("loam.nats.received") > before
		})
		broker.Down()
	}
	if len(p.logs.Lines("INFO succeeding again")) != 1 {
		t.Errorf("the log is\n%s", strings.Join(p.logs.Lines(), "\n"))
	}
}
