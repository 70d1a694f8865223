package natsjs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

const (
	secret = "billing.secret.made" // which user app may not publish
	order  = "shop.order.placed"   // which the stream does not take
)

// refusing runs a broker that refuses secret and order to the user app, and returns app's URL and the administrator's.
func refusing(t *testing.T) (app, admin string) {
	t.Helper()
	url := configured(t, `authorization { users = [
		{ user: admin, password: a },
		{ user: app, password: b, permissions: { publish: { deny: "loam.events.billing.secret.>" } } } ] }`).ClientURL()
	app, admin = strings.Replace(url, "://", "://app:b@", 1), strings.Replace(url, "://", "://admin:a@", 1)
	_, err := watcher(t, admin).CreateStream(t.Context(), jetstream.StreamConfig{
		Name: natsjs.DefaultStream, Subjects: []string{"loam.events.billing.>"}, Duplicates: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return app, admin
}

// rows are the rows of the queue in a state, all of them.
func rows(t *testing.T, r *rig.Rig, status outbox.Status) (all []outbox.Entry) {
	t.Helper()
	for after := int64(0); ; after = all[len(all)-1].ID {
		page, err := r.Queue.List(t.Context(), outbox.Query{Status: status, After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, page...); len(page) < 1000 {
			return all
		}
	}
}

// enqueue writes rows of an event to the queue.
func enqueue(t *testing.T, r *rig.Rig, name string, n int) {
	t.Helper()
	rig.Insert(t, r.DB, "event_queue", "event_id, tenant_id, event_type, payload, created_at", n, func(i int) []any {
		return []any{fmt.Sprintf("00000000-0000-7000-8%03d-%012d", len(name), i), "acme", name, `{"actor_id":null,"tenant_id":"acme"}`, database.At(r.Clock.Now())}
	})
}

// Rows whose subject the broker refuses, for want of a right or because the stream does not take it, more of them than a round has:
// the good ones behind go out within two rounds, without waiting for any answer's time to be over. The bad ones spend their attempts by the
// schedule and end dead_lettered, with the reason.
//
// contract: O-04
// scenario: B121
func TestRefusedSubjects(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		app, admin := refusing(t)
		r := rig.New(t, db)
		s := newSender(t, app)
		s.Short(patient, patient, 0)
		q := r.WithSink(s)
		const bad, good = 510, 20
		enqueue(t, r, secret, bad-10)
		enqueue(t, r, order, 10)
		enqueue(t, r, paid, good)
		began := time.Now()
		for range 2 {
			if _, err := q.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		js := watcher(t, admin)
		if n := stored(t, js); n != good || len(rows(t, r, outbox.Done)) != good {
			t.Errorf("after two rounds %d good ones are in the stream, and %d rows done; want %d", n, len(rows(t, r, outbox.Done)), good)
		}
		if took := time.Since(began); took > patient/2 {
			t.Errorf("that took %v", took)
		}
		const few = 30 // whose attempts are watched to their end
		rig.Exec(t, db, `DELETE FROM event_queue WHERE event_type = $1 AND id <= $2`, secret, bad-few)
		for attempt := 1; attempt < outbox.DefaultMaxAttempts; attempt++ {
			left := rows(t, r, outbox.Pending)
			if len(left) != few {
				t.Fatalf("after attempt %d %d rows are pending, want %d", attempt, len(left), few)
			}
			due := database.At(r.Clock.Now().Add(outbox.Backoff(attempt)))
			for _, e := range left {
				if e.Attempts != attempt || e.Deferrals != 0 || !e.NextAttemptAt.Equal(due.Time) {
					t.Fatalf("after attempt %d, due %v: %+v", attempt, due, e)
				}
			}
			r.Clock.Add(outbox.Backoff(attempt))
			for n := 1; n > 0; {
				var err error
				if n, err = q.Round(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		dead := rows(t, r, outbox.DeadLettered)
		if len(dead) != few {
			t.Fatalf("%d rows are dead_lettered, want %d", len(dead), few)
		}
		for _, e := range dead {
			want := map[string]string{secret: "permissions violation", order: "the stream does not take the subject: loam.events." + order}[e.EventType]
			if !strings.Contains(e.LastError, want) || e.Attempts != outbox.DefaultMaxAttempts {
				t.Fatalf("%+v, want %q", e, want)
			}
		}
		if lines := s.logs.Lines("WARN the NATS stream does not take all events"); len(lines) != 1 {
			t.Errorf("warned: %q", lines)
		}
	})
}

// However many events were refused, those of later calls do not wait for them.
//
// scenario: B121
func TestRefusedOnesHoldNothingBack(t *testing.T) {
	t.Parallel()
	app, _ := refusing(t)
	s := newSender(t, app)
	s.Short(patient, 0, 0)
	bad := make([]events.Event, 5000) // nats.go has 4000 in flight by default
	e := event(t, secret, nil)
	for i := range bad {
		bad[i] = e
	}
	for _, err := range s.Send(t.Context(), bad) {
		failure(t, "refused", err, nil, "permissions violation")
	}
	s.send(event(t, paid, nil))
}

// Mode core: events are read by who listens, refused ones have an error of their own, too large ones are permanent, and without a broker
// all wait.
//
// contract: N-05
func TestCore(t *testing.T) {
	t.Parallel()
	url := configured(t, `jetstream: disabled, authorization { users = [
		{ user: admin, password: a },
		{ user: app, password: b, permissions: { publish: { deny: "loam.events.billing.secret.>" } } } ] }`)
	app, admin := strings.Replace(url.ClientURL(), "://", "://app:b@", 1), strings.Replace(url.ClientURL(), "://", "://admin:a@", 1)
	nc := watcher(t, admin).Conn()
	sub, err := nc.SubscribeSync("loam.events.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	s := newSender(t, app, func(c *natsjs.Config) { c.Mode = natsjs.Core })
	evs := []events.Event{event(t, paid, nil), event(t, secret, nil), event(t, paid, events.Payload{"text": strings.Repeat("x", 1<<20)}), event(t, order, nil)}
	for range 2 { // a second refusal is known as well
		errs := s.Send(t.Context(), evs)
		failure(t, "refused", errs[1], nil, "permissions violation")
		failure(t, "too large", errs[2], outbox.IsPermanent, "the broker takes at most")
		for _, i := range []int{0, 3} {
			if errs[i] != nil {
				t.Errorf("event %d: %v", i, errs[i])
			}
			m, err := sub.NextMsg(10 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := natsjs.Decode(m.Header, m.Data); err != nil || got.ID != evs[i].ID {
				t.Errorf("got %+v, %v; want event %d", got, err, i)
			}
		}
	}
	if n := s.count("loam.nats.sent"); n != 4 {
		t.Errorf("%d were sent, want 4", n)
	}
	url.Shutdown()
	url.WaitForShutdown()
	for _, err := range s.Send(t.Context(), evs[:2]) {
		failure(t, "no broker", err, outbox.IsUnavailable)
	}
}
