package natsjs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// failure checks why an event was not sent: its mark, and what the error says.
func failure(t *testing.T, what string, err error, mark func(error) bool, says ...string) {
	t.Helper()
	if err == nil || outbox.IsPermanent(err) && outbox.IsUnavailable(err) {
		t.Fatalf("%s: %v", what, err)
	}
	if mark == nil {
		mark = func(err error) bool { return !outbox.IsPermanent(err) && !outbox.IsUnavailable(err) }
	}
	if !mark(err) {
		t.Errorf("%s: permanent %v, unavailable %v: %v", what, outbox.IsPermanent(err), outbox.IsUnavailable(err), err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q is not in %q", what, s, err)
		}
	}
}

// Events are acknowledged and stored, more of them than may be in flight at once; sent again they add nothing, are done all the same,
// and are counted. A second tenant's event of the same id is another one.
//
// contract: N-01, O-05
func TestSend(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	s := newSender(t, url)
	var evs []events.Event
	for i := range 600 {
		evs = append(evs, event(t, paid, events.Payload{"n": i}))
	}
	s.send(evs...)
	js := watcher(t, url)
	if n := stored(t, js); n != 600 {
		t.Fatalf("%d are stored", n)
	}
	s.send(evs[:100]...)
	s.send(queued(t, "globex", evs[0].ID, events.Headers{}))
	if n := stored(t, js); n != 601 {
		t.Errorf("%d are stored after a repeat, want 601", n)
	}
	if sent, twice := s.count("loam.nats.sent"), s.count("loam.nats.duplicates"); sent != 701 || twice != 100 {
		t.Errorf("%d sent, %d duplicates; want 701 and 100", sent, twice)
	}
	if lines := s.logs.Lines(); len(lines) != 0 {
		t.Errorf("logged: %q", lines)
	}
}

// An acknowledgement is lost on its way: the event counts as not sent, is sent again, is in the stream once, and then done.
//
// contract: N-01, O-06
// scenario: B126
func TestALostAcknowledgement(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	p := natsserver.Between(t, url)
	s := newSender(t, p.URL())
	s.Short(time.Second, 0, 0)
	s.sendSlowly(event(t, paid, nil))
	e := event(t, paid, events.Payload{"n": 1})
	p.Lose(true)
	failure(t, "the acknowledgement is lost", s.Send(t.Context(), []events.Event{e})[0], outbox.IsUnavailable, "timeout")
	js := watcher(t, url)
	if n := stored(t, js); n != 2 {
		t.Fatalf("%d are stored; the broker did not get it, the test is of no use", n)
	}
	p.Lose(false)
	p.Cut()
	eventually(t, "it is sent", func() bool { return s.Send(t.Context(), []events.Event{e})[0] == nil })
	if n, twice := stored(t, js), s.count("loam.nats.duplicates"); n != 2 || twice < 1 {
		t.Errorf("%d are stored, %d duplicates; want 2 and at least 1", n, twice)
	}
}

// Events that are too large, for the broker or for the stream, with a payload or with headers, are refused for good with the
// reason; small ones of the same call, before and behind, are stored.
//
// scenario: B120
func TestTooLarge(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	s := newSender(t, url)
	large := func(n int) events.Event { return event(t, paid, events.Payload{"text": strings.Repeat("x", n)}) }
	head := queued(t, "acme", anID, events.Headers{Tracestate: strings.Repeat("x", 65<<10)})
	errs := s.Send(t.Context(), []events.Event{event(t, paid, nil), large(1<<20 + 1), head, event(t, paid, nil), large(1 << 20), event(t, paid, nil)})
	for i, err := range errs {
		switch i {
		case 1, 4:
			failure(t, "over the broker's limit", err, outbox.IsPermanent, "the broker takes at most 1048576")
		case 2:
			failure(t, "headers", err, outbox.IsPermanent, "header size exceeds")
		default:
			if err != nil {
				t.Errorf("small event %d: %v", i, err)
			}
		}
	}
	js := watcher(t, url)
	change(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	errs = s.Send(t.Context(), []events.Event{large(3000), event(t, paid, nil)})
	failure(t, "over the stream's limit", errs[0], outbox.IsPermanent, natsjs.DefaultStream, "exceeds maximum")
	if errs[1] != nil {
		t.Error(errs[1])
	}
	if n := stored(t, js); n != 4 {
		t.Errorf("%d are stored, want 4", n)
	}
}

// change changes the stream as its operator does.
func change(t *testing.T, js jetstream.JetStream, f func(*jetstream.StreamConfig)) {
	t.Helper()
	s, err := js.Stream(t.Context(), natsjs.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	f(&c)
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// A stream that is full has events wait, with the reason, until its operator makes room: also one that keeps some of each subject.
func TestAFullStream(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	s := newSender(t, url)
	s.send(event(t, paid, nil))
	js := watcher(t, url)
	for what, limit := range map[string]func(*jetstream.StreamConfig){
		"messages": func(c *jetstream.StreamConfig) { c.MaxMsgs = 1 },
		"bytes":    func(c *jetstream.StreamConfig) { c.MaxBytes = 600 },
		"per subject": func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 1, true
		},
	} {
		change(t, js, limit)
		large := event(t, paid, events.Payload{"text": strings.Repeat("x", 600)})
		failure(t, what, s.Send(t.Context(), []events.Event{large})[0], outbox.IsUnavailable, "LOAM_EVENTS is full", "nats stream edit LOAM_EVENTS")
		change(t, js, func(c *jetstream.StreamConfig) {
			c.MaxMsgs, c.MaxBytes, c.MaxMsgsPerSubject, c.DiscardNewPerSubject = -1, -1, -1, false
		})
	}
	s.send(event(t, paid, nil))
	// The broker's own storage: its reservation is used up.
	small := natsserver.Run(t, func(o *server.Options) { o.JetStreamMaxStore = 4096 })
	s = newSender(t, small.ClientURL())
	var err error
	for i := 0; err == nil && i < 20; i++ {
		err = s.Send(t.Context(), []events.Event{event(t, paid, events.Payload{"text": strings.Repeat("x", 1000)})})[0]
	}
	failure(t, "the broker's storage", err, outbox.IsUnavailable)
}

// A stream that is not there is made; one that is removed is made again. While it cannot be made, nothing counts as sent, and the error
// names it and how it is made; once it is there, events go out.
//
// scenario: B124
func TestAMissingStream(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	s := newSender(t, url)
	s.send(event(t, paid, nil))
	js := watcher(t, url)
	if err := js.DeleteStream(t.Context(), natsjs.DefaultStream); err != nil {
		t.Fatal(err)
	}
	s.send(event(t, paid, nil), event(t, paid, nil))
	if n := stored(t, js); n != 2 {
		t.Errorf("%d are stored in the stream that was made again, want 2", n)
	}

	url = configured(t, `authorization { users = [
		{ user: admin, password: a },
		{ user: app, password: b, permissions: { publish: { deny: "$JS.API.STREAM.CREATE.>" } } } ] }`).ClientURL()
	s = newSender(t, strings.Replace(url, "://", "://app:b@", 1))
	s.Short(0, patient, 0)
	var five []events.Event
	for range 5 {
		five = append(five, event(t, paid, nil))
	}
	for range 2 {
		began := time.Now()
		for _, err := range s.Send(t.Context(), five) {
			failure(t, "no stream", err, outbox.IsUnavailable, "LOAM_EVENTS", "permissions violation", "nats stream add LOAM_EVENTS --subjects 'loam.events.>'")
		}
		if took := time.Since(began); took > patient/2 {
			t.Errorf("that a right is missing took %v", took)
		}
	}
	admin := watcher(t, strings.Replace(url, "://", "://admin:a@", 1))
	if _, err := admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: natsjs.DefaultStream, Subjects: []string{"loam.events.>"}}); err != nil {
		t.Fatal(err)
	}
	s.send(five...)
	if n := stored(t, admin); n != 5 {
		t.Errorf("%d are stored, want 5", n)
	}
}

// A broker without JetStream, or an account without it, is as one that is away.
func TestNoJetStream(t *testing.T) {
	t.Parallel()
	for name, srv := range map[string]*server.Server{
		"broker":  natsserver.Run(t, func(o *server.Options) { o.JetStream = false }),
		"account": configured(t, `accounts { A { users = [ { user: a, password: a } ] } }, no_auth_user: a`),
	} {
		s := newSender(t, srv.ClientURL())
		s.Short(0, patient, 0)
		began := time.Now()
		for _, err := range s.Send(t.Context(), []events.Event{event(t, paid, nil), event(t, paid, nil)}) {
			failure(t, name, err, outbox.IsUnavailable, "not enabled")
			if took := time.Since(began); took > patient/2 {
				t.Errorf("%s: it took %v", name, took)
			}
		}
	}
}

// Another stream has the subjects, from the beginning or later: what is sent is not stored there by mistake, and waits.
func TestAnotherStreamHasTheSubjects(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	js := watcher(t, url)
	other := jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"loam.>"}}
	for _, later := range []bool{false, true} {
		s := newSender(t, url)
		if later {
			s.send(event(t, paid, nil))
			if err := js.DeleteStream(t.Context(), natsjs.DefaultStream); err != nil {
				t.Fatal(err)
			}
		}
		o, err := js.CreateStream(t.Context(), other)
		if err != nil {
			t.Fatal(err)
		}
		failure(t, "another stream", s.Send(t.Context(), []events.Event{event(t, paid, nil)})[0], outbox.IsUnavailable, "LOAM_EVENTS", "subjects overlap")
		if info, err := o.Info(t.Context()); err != nil || info.State.Msgs != 0 {
			t.Errorf("the other stream: %+v, %v", info, err)
		}
		if err := js.DeleteStream(t.Context(), "OTHER"); err != nil {
			t.Fatal(err)
		}
	}
}

// Send returns when its context ends, whatever it waits for, and nothing of that is the event's fault.
func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	p := natsserver.Between(t, url)
	s := newSender(t, p.URL())
	s.Short(patient, patient, 0)
	s.send(event(t, paid, nil))
	p.Lose(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	var many []events.Event
	for range 500 {
		many = append(many, event(t, paid, nil))
	}
	for _, err := range s.Send(ctx, many) {
		failure(t, "ended", err, outbox.IsUnavailable)
	}
	if took := time.Since(began); took > patient/2 {
		t.Errorf("it took %v", took)
	}
	p.Lose(false) // for Close
}

// Who may publish and nothing else, neither look at the stream nor make it, sends all the same, with one warning.
//
// contract: N-04
func TestARightToPublishOnly(t *testing.T) {
	t.Parallel()
	url := configured(t, `authorization { users = [
		{ user: admin, password: a },
		{ user: app, password: b, permissions: { publish: "loam.events.>", subscribe: "_INBOX.>" } } ] }`).ClientURL()
	admin := watcher(t, strings.Replace(url, "://", "://admin:a@", 1))
	if _, err := admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: natsjs.DefaultStream, Subjects: []string{"loam.events.>"}}); err != nil {
		t.Fatal(err)
	}
	s := newSender(t, strings.Replace(url, "://", "://app:b@", 1))
	s.Short(0, patient, 0)
	began := time.Now()
	for range 3 {
		s.send(event(t, paid, nil))
	}
	if took := time.Since(began); took > patient/2 {
		t.Errorf("it took %v", took)
	}
	if n := stored(t, admin); n != 3 {
		t.Errorf("%d are stored, want 3", n)
	}
	if lines := s.logs.Lines("WARN"); len(lines) != 1 || !strings.Contains(lines[0], "no right to look at the NATS stream") {
		t.Errorf("warned: %q", lines)
	}
	if err := admin.DeleteStream(t.Context(), natsjs.DefaultStream); err != nil {
		t.Fatal(err)
	}
	failure(t, "no stream", s.Send(t.Context(), []events.Event{event(t, paid, nil)})[0], outbox.IsUnavailable, "LOAM_EVENTS", "permissions violation")
}

// Of several addresses one that answers is used.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	p := natsserver.Between(t, "nats://127.0.0.1:1")
	p.Close() // nobody is there any more
	url := natsserver.Run(t).ClientURL()
	newSender(t, p.URL()+", "+url).send(event(t, paid, nil))
	failure(t, "none answers", newSender(t, p.URL()).Send(t.Context(), []events.Event{event(t, paid, nil)})[0], outbox.IsUnavailable, "connect to NATS")
}
