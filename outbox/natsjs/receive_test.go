package natsjs_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// Two processes of one service share the events, another service gets all: each has one delivery for each of its subscribers.
//
// contract: N-06, D-24
func TestWhoGetsWhat(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const n = 120
		url := natsserver.Run(t).ClientURL()
		r := mailer(rig.New(t, db))
		again, _ := dbtest.Again(t, db)
		other, _ := dbtest.OpenPlace(t, dbtest.Fresh(t, db.Dialect()))
		others := mailer(rig.New(t, other))
		first := receive(t, url, "mail", r.Queue)
		second := receive(t, url, "mail", mailer(rig.Over(t, again, r.Clock)).Queue)
		third := receive(t, url, "books", others.Queue)
		js := watcher(t, url)
		from := newSender(t, url)
		for range 10 { // while all three fetch
			from.send(many(t, n/10)...)
		}
		eventually(t, "all are captured", func() bool { return idle(t, js, "mail") && idle(t, js, "books") })
		if a, b := len(r.Rows("acme")), len(others.Rows("acme")); a != n || b != n {
			t.Errorf("%d and %d deliveries, want %d each", a, b, n)
		}
		a, b, c := first.count("loam.nats.received"), second.count("loam.nats.received"), third.count("loam.nats.received")
		if a+b != n || a == 0 || b == 0 || c != n {
			t.Errorf("the processes have received %d and %d, the other service's %d", a, b, c)
		}
		if len(first.logs.Lines("ERROR"))+len(second.logs.Lines("ERROR"))+len(third.logs.Lines("ERROR")) != 0 {
			t.Errorf("the logs are\n%s", strings.Join(append(first.logs.Lines(), second.logs.Lines()...), "\n"))
		}
	})
}

// A message that is no event, one of a tenant that is not here, and one with an id that another event has, are dead letters at
// once, each with its reason; the others are captured. No log line has a payload.
//
// contract: N-03, O-07
func TestWhatCannotBeCaptured(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		r := mailer(rig.New(t, db))
		js := watcher(t, url)
		from := newSender(t, url)
		good := many(t, 3)
		from.send(good[0])
		reused := event(t, paid, events.Payload{"n": "other"})
		reused.ID = good[0].ID
		stranger := event(t, paid, events.Payload{"k": "secret"})
		stranger.TenantID, stranger.Payload[events.KeyTenant] = "elsewhere", "elsewhere"
		odd := []*nats.Msg{
			{Data: []byte("secret: not JSON")},
			{Header: nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"x\x00y"}, "ce-type": {"\xff\xfe"}}, Data: []byte("secret \x00\xff\xd8")},
			{Header: nats.Header{"ce-specversion": {"1.0"}, "ce-id": {strings.Repeat("x", 900)}}, Data: []byte(`{"k": "secret` + strings.Repeat("x", 100_000) + `"}`)},
			natsjs.Encode(event(t, paid, nil), "/", time.Now(), ""),
		}
		odd[3].Data = []byte(`{"k": {"nested": "secret"}}`)
		for _, m := range odd {
			m.Subject = natsjs.DefaultSubject + ".odd"
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		m := natsjs.Encode(reused, "/", time.Now(), natsjs.DefaultSubject+"."+paid)
		m.Header.Del("Nats-Msg-Id")
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		m = natsjs.Encode(stranger, "/", time.Now(), natsjs.DefaultSubject+"."+paid)
		m.Data = []byte(strings.ReplaceAll(string(stranger.JSON()), "acme", "elsewhere"))
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		from.send(good[1:]...)
		p := receive(t, url, "mail", r.Queue)
		eventually(t, "all are answered", func() bool { return idle(t, js, "mail") })
		rows := dead(t, r)
		if n := len(r.Rows("acme")); n != 3 || len(rows) != 6 {
			t.Fatalf("%d deliveries, want 3; dead letters: %+v", n, rows)
		}
		var reasons []string
		for _, row := range rows {
			reasons = append(reasons, row.LastError)
			if row.Attempts != 1 || !strings.HasPrefix(row.Origin, natsjs.DefaultStream+"/") {
				t.Errorf("%+v", row)
			}
		}
		for _, why := range []string{"no CloudEvent", "tenant", "id"} {
			if !strings.Contains(strings.Join(reasons, "\n"), why) {
				t.Errorf("no reason says %q:\n%s", why, strings.Join(reasons, "\n"))
			}
		}
		lines := p.logs.Lines()
		if len(p.logs.Lines("ERROR event cannot be captured", natsjs.DefaultStream+"/")) != 6 || strings.Contains(strings.Join(lines, "\n"), "secret") ||
			strings.Contains(strings.Join(lines, "\n"), strings.Repeat("x", 300)) {
			t.Errorf("the log is\n%s", strings.Join(lines, "\n"))
		}
		if p.count("loam.nats.dead_lettered") != 6 || p.count("loam.nats.redelivered") != 0 {
			t.Errorf("%d dead letters, %d came again", p.count("loam.nats.dead_lettered"), p.count("loam.nats.redelivered"))
		}
	})
}

// An inbox that panics for one event spends the deliveries of that one only; the process goes on.
//
// contract: N-03, N-06
func TestPanicInReceive(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	evs := many(t, 20)
	in := &scripted{attempts: 3}
	in.receive = func(_ context.Context, got []events.Event) []error {
		for _, e := range got {
			if e.ID == evs[7].ID {
				panic("a bug")
			}
		}
		return nil
	}
	newSender(t, url).send(evs...)
	p := receive(t, url, "mail", in)
	js := watcher(t, url)
	eventually(t, "all are answered", func() bool { return idle(t, js, "mail") })
	letters := in.buried()
	if len(letters) != 1 || letters[0].EventID != evs[7].ID || letters[0].Attempts != 3 || !strings.Contains(letters[0].Why.Error(), "panic: a bug") {
		t.Errorf("dead letters: %+v", letters)
	}
	if n := p.count("loam.nats.redelivered"); n != 2 {
		t.Errorf("%d messages came again, want those of one event", n)
	}
	next := event(t, paid, nil)
	newSender(t, url).send(next)
	eventually(t, "it goes on", func() bool { return in.times(next) == 1 })
}

// A process that is stopped brings what it has to its end: nothing is lost, and no delivery is spent.
//
// contract: N-06
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		n := amount(150, 300)
		url := natsserver.Run(t).ClientURL()
		r := mailer(rig.New(t, db))
		js := watcher(t, url)
		from := newSender(t, url)
		received := int64(0)
		for round := range 3 {
			p := receive(t, url, "mail", r.Queue, func(b *natsjs.Bus) { b.StopWait(time.Minute) })
			from.send(many(t, n/3)...)
			if round < 2 {
				eventually(t, "some are fetched", func() bool { return p.count("loam.nats.received") > 20 })
			} else {
				eventually(t, "all are answered", func() bool { return idle(t, js, "mail") })
			}
			p.stop()
			if info := consumer(t, js, "mail"); info.NumAckPending != 0 {
				t.Errorf("round %d: %d are not answered", round, info.NumAckPending)
			}
			received += p.count("loam.nats.received")
		}
		if rows := len(r.Rows("acme")); rows != n || received != int64(n) {
			t.Errorf("%d deliveries, and %d messages were received; want %d", rows, received, n)
		}
	})
}

// A process whose inbox hangs when it is stopped gives back what it has after a few seconds; another gets it at once.
//
// contract: N-06
func TestStopWhileTheInboxHangs(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	in := &scripted{attempts: 5, receive: func(ctx context.Context, evs []events.Event) []error {
		<-ctx.Done()
		errs := make([]error, len(evs))
		for i := range errs {
			errs[i] = ctx.Err()
		}
		return errs
	}}
	e := event(t, paid, nil)
	newSender(t, url).send(e)
	p := receive(t, url, "mail", in)
	eventually(t, "it hangs", func() bool { return in.times(e) == 1 })
	began := time.Now()
	p.stop()
	if took := time.Since(began); took > slow {
		t.Errorf("the stop took %v", took)
	}
	next := &scripted{attempts: 5}
	receive(t, url, "mail", next)
	js := watcher(t, url)
	eventually(t, "another has it", func() bool { return next.times(e) == 1 && idle(t, js, "mail") })
	if len(in.buried())+len(next.buried()) != 0 {
		t.Error("it is a dead letter")
	}
}

// The connection of one process is cut while it works on 50 events, and another gets their copies meanwhile: each event has one
// delivery.
//
// contract: N-06, D-24
// scenario: B104
func TestCopiesBesideTheOriginals(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const n = 50
		url := natsserver.Run(t).ClientURL()
		r := mailer(rig.New(t, db))
		again, _ := dbtest.Again(t, db)
		copies := &scripted{Inbox: mailer(rig.Over(t, again, r.Clock)).Queue}
		evs := many(t, n)
		arrived, cut, both := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var once, twice sync.Once
		originals := &scripted{Inbox: r.Queue}
		var ok []error
		originals.receive = func(_ context.Context, got []events.Event) []error {
			if len(got) > 1 { // the first comes alone
				once.Do(func() { close(arrived) })
				<-both
			}
			return nil
		}
		copies.receive = func(context.Context, []events.Event) []error {
			<-cut
			twice.Do(func() { close(both) })
			return ok
		}
		newSender(t, url).send(event(t, paid, nil))
		js := watcher(t, url)
		first := receive(t, url, "mail", originals, ackWait(time.Second))
		eventually(t, "the first is captured", func() bool { return idle(t, js, "mail") })
		newSender(t, url).send(evs...)
		<-arrived
		first.Connection().Close()
		receive(t, url, "mail", copies, ackWait(time.Second))
		close(cut)
		<-both
		eventually(t, "all are answered", func() bool { return idle(t, js, "mail") })
		first.stop()
		if rows := len(r.Rows("acme")); rows != n+1 {
			t.Errorf("%d deliveries, want %d", rows, n+1)
		}
		again2 := 0
		for _, e := range evs {
			if originals.times(e) > 0 && copies.times(e) > 0 {
				again2++
			}
		}
		if again2 == 0 {
			t.Error("no copy came beside its original")
		}
	})
}

// An operator's redelivery of a dead delivery makes no broker hop, so that no broker takes it for a repeat: the handler runs.
//
// scenario: B130
func TestRedeliveryMakesNoHop(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		r := rig.New(t, db)
		var runs int
		broken := errors.New("broken")
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			runs++
			return broken
		})
		js := watcher(t, url)
		e := event(t, paid, nil)
		from := newSender(t, url)
		from.send(e)
		p := receive(t, url, "mail", r.Queue)
		eventually(t, "it is captured", func() bool { return idle(t, js, "mail") && p.count("loam.nats.received") == 1 })
		for r.Row("acme", "mailer").Status == durable.Pending {
			r.Work()
			r.Clock.Add(time.Hour)
		}
		if row := r.Row("acme", "mailer"); row.Status != durable.Dead {
			t.Fatalf("%+v", row)
		}
		before := runs
		broken = nil
		from.send(e) // the broker takes it for a repeat, and would swallow a redelivery by this way
		if from.count("loam.nats.duplicates") != 1 {
			t.Fatal("the broker does not know the event any more")
		}
		if err := r.Deliveries.Redeliver(r.Ctx("acme"), r.Row("acme", "mailer").ID); err != nil {
			t.Fatal(err)
		}
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered || runs != before+1 || stored(t, js) != 1 {
			t.Errorf("%+v, %d runs more, %d messages in the stream", row, runs-before, stored(t, js))
		}
	})
}

// One message that is larger than what is fetched at once comes all the same, and so do those behind it.
func TestALargeMessage(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	in := &scripted{}
	var evs []events.Event
	for i := range 10 {
		size := 10
		if i%4 == 1 {
			size = 50_000
		}
		evs = append(evs, event(t, paid, events.Payload{"text": strings.Repeat("x", size)}))
	}
	newSender(t, url).send(evs...)
	receive(t, url, "mail", in, func(b *natsjs.Bus) { b.FetchBytes(10_000) })
	js := watcher(t, url)
	eventually(t, "all are answered", func() bool { return idle(t, js, "mail") })
	for i, e := range evs {
		if in.times(e) != 1 {
			t.Errorf("event %d came %d times", i, in.times(e))
		}
	}
}

var _ outbox.Inbox = (*scripted)(nil)
