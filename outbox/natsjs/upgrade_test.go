package natsjs_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox/natsjs"
)

// A durable consumer of an older version, with other settings and ten messages outstanding, five of which that version has taken and not
// answered: the new version starts, updates what it needs, and all ten are captured.
//
// contract: N-04
// scenario: B137
func TestAnOlderVersionsConsumer(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		s := newSender(t, url)
		s.send(many(t, 10)...)
		js := watcher(t, url)
		old, err := js.CreateConsumer(t.Context(), natsjs.DefaultStream, jetstream.ConsumerConfig{
			Durable: "mail", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		taken, err := old.Fetch(5, jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range taken.Messages() {
			n++
		}
		if n != 5 {
			t.Fatalf("the old version has taken %d", n)
		}
		r := mailer(rig.New(t, db))
		p := receive(t, url, "mail", r.Queue, func(b *natsjs.Bus) { b.AckWait(2 * time.Second) })
		eventually(t, "all are captured", func() bool { return idle(t, js, "mail") })
		if n := len(r.Rows("acme")); n != 10 {
			t.Errorf("%d deliveries, want 10", n)
		}
		info, err := old.Info(t.Context())
		if err != nil || info.Config.MaxDeliver != r.Queue.Attempts() || info.Config.AckWait != 2*time.Second {
			t.Errorf("the consumer has %+v, %v", info.Config, err)
		}
		if lines := p.logs.Lines("WARN updated in NATS"); len(lines) != 1 {
			t.Errorf("warned: %q", lines)
		}
	})
}
