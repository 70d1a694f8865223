package natsjs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/pgserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// stoppable is a database that a test takes away for a while: a PostgreSQL server that is stopped and started, or a SQLite file
// that cannot be opened.
func stoppable(t *testing.T, db *database.DB, faults *dbtest.Faults) (same *database.DB, down, up func()) {
	t.Helper()
	if db.Dialect() == database.PostgreSQL {
		s := pgserver.Start(t)
		same, _ = dbtest.OpenPlace(t, dbtest.Place{Dialect: database.PostgreSQL, At: s.URL()})
		return same, s.Down, s.Up
	}
	down = func() {
		faults.Before(func(dbtest.Op) error { return fmt.Errorf("the disk is gone: %w", database.ErrCannotOpen) })
	}
	return db, down, func() { faults.Before(nil) }
}

// stalling measures how long this process got no time to run at most, until it is asked.
func stalling(t *testing.T) (longest func() time.Duration) {
	t.Helper()
	const tick = 20 * time.Millisecond
	ended, result := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-time.After(tick):
				most = max(most, time.Since(last)-tick)
			case <-ended:
				result <- most
				return
			}
		}
	}()
	longest = sync.OnceValue(func() time.Duration {
		close(ended)
		return <-result
	})
	t.Cleanup(func() { longest() })
	return longest
}

// The service's own database is away for longer than all five deliveries of a message would last if nobody extended them. No delivery is spent meanwhile, of what the process has and of what it has not: nothing is exhausted, all is
// captured afterwards, and there is one log line at each end.
//
// contract: N-06
func TestOwnDatabaseAway(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		const n = 120
		wait := amount(time.Second, 2*time.Second)
		db, down, up := stoppable(t, db, faults)
		url := natsserver.Run(t).ClientURL()
		js := watcher(t, url)
		r := mailer(rig.New(t, db))
		from := newSender(t, url)
		p := receive(t, url, "mail", r.Queue, ackWait(wait))
		stalls := stalling(t)
		from.send(many(t, n/3)...)
		eventually(t, "the first are captured", func() bool { return idle(t, js, "mail") && p.count("loam.nats.received") == n/3 })
		down()
		from.send(many(t, n/3)...)
		eventually(t, "the outage is noticed", func() bool { return len(p.logs.Lines("ERROR failing", "what=bringing messages")) == 1 })
		from.send(many(t, n/3)...)
		time.Sleep(5*wait + wait/2)
		up()
		eventually(t, "all are captured", func() bool { return idle(t, js, "mail") })
		if rows := len(r.Rows("acme")); rows != n || len(dead(t, r)) != 0 {
			t.Errorf("%d deliveries, want %d; dead letters: %+v", rows, n, dead(t, r))
		}
		again, stalled := p.count("loam.nats.redelivered"), stalls()
		if again != 0 && stalled < wait/4 { // this machine can be too busy to say in time that a message is worked on
			t.Errorf("%d messages came again", again)
		}
		t.Logf("%d of %d messages came again; the longest stall of this process was %v", again, n, stalled.Round(time.Millisecond))
		if len(p.logs.Lines("ERROR")) != 1 || len(p.logs.Lines("INFO succeeding again", "what=bringing messages")) != 1 || len(p.logs.Lines("WARN")) != 0 {
			t.Errorf("the log is\n%s", strings.Join(p.logs.Lines(), "\n"))
		}
	})
}

// A process that starts while its database is away spends the delivery of one message, not of all.
//
// contract: N-06
func TestStartWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	js := watcher(t, url)
	newSender(t, url).send(many(t, 50)...)
	away := &scripted{attempts: 5, receive: func(_ context.Context, evs []events.Event) []error {
		errs := make([]error, len(evs))
		for i := range errs {
			errs[i] = outbox.Unavailable(errFails)
		}
		return errs
	}}
	p := receive(t, url, "mail", away)
	eventually(t, "it tries again and again", func() bool {
		away.mu.Lock()
		defer away.mu.Unlock()
		tries := 0
		for _, n := range away.seen {
			tries += n
		}
		return tries > 3
	})
	p.stop()
	if info := consumer(t, js, "mail"); info.Delivered.Consumer != 1 || info.NumAckPending != 1 {
		t.Errorf("%d were handed out", info.Delivered.Consumer)
	}
}

// A database that takes the others but not one dead letter keeps none of them waiting. The letter is not lost: after the last
// delivery of its message the advisory brings it.
//
// contract: N-03
func TestADeadLetterThatIsNotTaken(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	evs := many(t, 30)
	var mended atomic.Bool
	in := &scripted{attempts: 2}
	in.receive = func(_ context.Context, got []events.Event) []error {
		errs := make([]error, len(got))
		for i, e := range got {
			if e.ID == evs[0].ID {
				errs[i] = errFails
			}
		}
		return errs
	}
	var buries atomic.Int32
	in.bury = func(outbox.Letter) error {
		if buries.Add(1); mended.Load() {
			return nil
		}
		return errFails
	}
	newSender(t, url).send(evs...)
	js := watcher(t, url)
	var early atomic.Bool
	if _, err := js.Conn().Subscribe("$JS.ACK."+natsjs.DefaultStream+".mail.>", func(answer *nats.Msg) {
		if string(answer.Data) == "+TERM" && !mended.Load() {
			early.Store(true)
		}
	}); err != nil {
		t.Fatal(err)
	}
	p := receive(t, url, "mail", in, ackWait(300*time.Millisecond))
	eventually(t, "all are answered", func() bool { return idle(t, js, "mail") })
	eventually(t, "it is tried again", func() bool { return buries.Load() > 3 || early.Load() })
	if early.Load() {
		t.Fatal("the broker was told to forget a message whose letter is not stored")
	}
	mended.Store(true)
	eventually(t, "it is stored", func() bool { return len(in.buried()) == 1 && p.count("loam.nats.exhausted") == 1 })
	if l := in.buried()[0]; l.EventID != evs[0].ID || l.Attempts != 2 || len(p.logs.Lines("ERROR dead letter not stored", "event_id="+evs[0].ID)) != 1 {
		t.Errorf("%+v, the log is\n%s", l, strings.Join(p.logs.Lines(), "\n"))
	}
}

// The broker restarts three times while nobody publishes. After each, an event comes soon.
//
// contract: N-06
// scenario: B136
func TestBrokerRestartsWhileIdle(t *testing.T) {
	t.Parallel()
	broker := natsserver.Start(t)
	in := &scripted{attempts: 10}
	p := receive(t, broker.URL(), "mail", in, ackWait(time.Second)) // an answer that is killed with the broker makes a repeat
	from := newSender(t, broker.URL())
	for round, stop := range []func(){broker.Down, broker.Kill, broker.Down} {
		e := event(t, paid, nil)
		from.send(e)
		eventually(t, "the event comes", func() bool { return in.times(e) == 1 })
		js := watcher(t, broker.URL())
		eventually(t, "it is answered", func() bool { return idle(t, js, "mail") })
		stop()
		eventually(t, "the outage is noticed", func() bool { return len(p.logs.Lines("ERROR failing", "what=receiving events from NATS")) == 1 })
		broker.Up()
		next := event(t, paid, nil)
		eventually(t, "the publisher is back", func() bool { return from.Send(t.Context(), []events.Event{next})[0] == nil })
		began := time.Now()
		eventually(t, "the next one comes", func() bool { return in.times(next) == 1 })
		took := time.Since(began)
		if t.Logf("restart %d: it came %v after it was sent", round+1, took.Round(time.Millisecond)); took > 30*time.Second { // B136
			t.Errorf("it came %v after it was sent", took)
		}
	}
	if len(p.logs.Lines("ERROR")) != 1 || len(p.logs.Lines("INFO succeeding again", "what=receiving")) != 1 { // in the minute that an outage counts for
		t.Errorf("the log is\n%s", strings.Join(p.logs.Lines(), "\n"))
	}
}

// A broker that is silent without a word is noticed, and when it goes on so does the consumer.
//
// scenario: B136
func TestASilentBroker(t *testing.T) {
	t.Parallel()
	broker := natsserver.Start(t)
	in := &scripted{}
	p := receiveWith(t, broker.URL(), func(c *natsjs.Config) {
		c.Service, c.Options = "mail", []nats.Option{nats.PingInterval(time.Hour)} // which would notice it as well
	}, in, func(b *natsjs.Bus) { b.Short(0, time.Second, 0) })
	from := newSender(t, broker.URL())
	from.send(event(t, paid, nil))
	eventually(t, "it works", func() bool { return p.count("loam.nats.received") == 1 })
	broker.Freeze()
	eventually(t, "the outage is noticed", func() bool { return len(p.logs.Lines("ERROR failing", "what=receiving events from NATS")) == 1 })
	broker.Thaw()
	e := event(t, paid, nil)
	eventually(t, "the publisher is back", func() bool { return from.Send(t.Context(), []events.Event{e})[0] == nil })
	eventually(t, "it comes", func() bool { return in.times(e) == 1 })
	broker.Freeze()
	began := time.Now()
	p.stop()
	broker.Thaw()
	if took := time.Since(began); took > slow {
		t.Errorf("the stop took %v", took)
	}
}

// The broker restarts while events flow, twice: all come.
//
// contract: N-06
func TestBrokerRestartsWhileBusy(t *testing.T) {
	t.Parallel()
	const n = 1500
	broker := natsserver.Start(t)
	in := &scripted{attempts: 5, receive: func(context.Context, []events.Event) []error {
		time.Sleep(5 * time.Millisecond) // a commit
		return nil
	}}
	p := receive(t, broker.URL(), "mail", in, ackWait(2*time.Second))
	evs := many(t, n)
	newSender(t, broker.URL()).send(evs...)
	for _, at := range []int64{200, 700} {
		eventually(t, "some have come", func() bool { return p.count("loam.nats.received") >= at })
		broker.Down()
		broker.Up()
	}
	js := watcher(t, broker.URL())
	eventually(t, "all are answered", func() bool { return idle(t, js, "mail") })
	lost, twice := 0, 0
	for _, e := range evs {
		switch in.times(e) {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	t.Logf("%d of %d were brought more than once, %d deliveries were repeats", twice, n, p.count("loam.nats.redelivered"))
	if lost > 0 || len(in.buried()) != 0 {
		t.Errorf("%d are lost, dead letters: %+v", lost, in.buried())
	}
}

// The broker is away for longer than it waits for an answer, while this process works on a message. It comes again, to the same
// process, which does not work on it twice; the answer is that of its last delivery.
//
// contract: N-06
func TestAMessageThatComesAgainWhileItIsHeld(t *testing.T) {
	t.Parallel()
	broker := natsserver.Start(t)
	e := event(t, paid, nil)
	release := make(chan struct{})
	in := &scripted{attempts: 5, receive: func(_ context.Context, evs []events.Event) []error {
		if evs[0].ID == e.ID {
			<-release
		}
		return nil
	}}
	p := receive(t, broker.URL(), "mail", in, ackWait(300*time.Millisecond))
	newSender(t, broker.URL()).send(event(t, paid, nil))
	eventually(t, "it works", func() bool { return p.count("loam.nats.received") == 1 })
	newSender(t, broker.URL()).send(e)
	eventually(t, "it is being worked on", func() bool { return in.times(e) == 1 })
	broker.Down()
	time.Sleep(400 * time.Millisecond) // the broker's clock goes on
	broker.Up()
	eventually(t, "it comes again", func() bool { return p.count("loam.nats.redelivered") > 0 })
	close(release)
	js := watcher(t, broker.URL())
	eventually(t, "it is answered", func() bool { return idle(t, js, "mail") })
	if in.times(e) != 1 || len(in.buried()) != 0 {
		t.Errorf("it was brought %d times, dead letters: %+v", in.times(e), in.buried())
	}
}

// A consumer, and a stream, that are deleted while the service waits are made again, and events come.
//
// contract: N-04
// scenario: B124
func TestConsumerAndStreamDeleted(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	js := watcher(t, url)
	in := &scripted{}
	p := receive(t, url, "mail", in)
	from := newSender(t, url)
	comes := func(when string) {
		t.Helper()
		e := event(t, paid, nil)
		eventually(t, "it is sent "+when, func() bool { return from.Send(t.Context(), []events.Event{e})[0] == nil })
		eventually(t, "it comes "+when, func() bool { return in.times(e) > 0 })
		eventually(t, "it is answered "+when, func() bool { return idle(t, js, "mail") })
	}
	comes("at first")
	if err := js.DeleteConsumer(t.Context(), natsjs.DefaultStream, "mail"); err != nil {
		t.Fatal(err)
	}
	comes("after the consumer was deleted")
	if err := js.DeleteStream(t.Context(), natsjs.DefaultStream); err != nil {
		t.Fatal(err)
	}
	comes("after the stream was deleted")
	if err := js.DeleteStream(t.Context(), natsjs.DefaultStream+"_ADVISORIES"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream of advisories is made again", func() bool {
		_, err := js.Consumer(t.Context(), natsjs.DefaultStream+"_ADVISORIES", "mail")
		return err == nil
	})
	if len(p.logs.Lines("ERROR")) > 1 || len(p.logs.Lines("WARN")) != 0 {
		t.Errorf("the log is\n%s", strings.Join(p.logs.Lines(), "\n"))
	}
}

// Other processes have as many messages as the consumer may hand out, and hang: that is said. When their time is over, the
// messages come to this one, and others flow.
//
// scenario: B140
func TestTooManyAreNotAnswered(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	js := watcher(t, url)
	const wait = 2 * time.Second
	ensured(t, url, "mail", 5, ackWait(wait))
	c, err := js.Consumer(t.Context(), natsjs.DefaultStream, "mail")
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.CachedInfo().Config
	cfg.MaxAckPending = 10
	if _, err := js.UpdateConsumer(t.Context(), natsjs.DefaultStream, cfg); err != nil {
		t.Fatal(err)
	}
	evs := many(t, 60)
	newSender(t, url).send(evs...)
	fetched, err := c.Fetch(10, jetstream.FetchMaxWait(slow))
	if err != nil {
		t.Fatal(err)
	}
	var hung []jetstream.Msg
	for msg := range fetched.Messages() { // and no answer
		hung = append(hung, msg)
	}
	in := &scripted{attempts: 5}
	p := receive(t, url, "mail", in, ackWait(wait))
	eventually(t, "it is said", func() bool {
		for _, msg := range hung { // so that their time is not over before
			if err := msg.InProgress(); err != nil {
				t.Fatal(err)
			}
		}
		return len(p.logs.Lines("ERROR failing", "what=handing out messages", "10 messages that are not answered", "max_ack_pending", "50 others wait")) == 1
	})
	eventually(t, "all are answered", func() bool { return idle(t, js, "mail") })
	eventually(t, "that is said", func() bool { return len(p.logs.Lines("INFO succeeding again", "what=handing out messages")) == 1 })
	for i, e := range evs {
		if in.times(e) != 1 {
			t.Errorf("event %d came %d times", i, in.times(e))
		}
	}
}

// The consumer's filter is the whole prefix, whatever the service subscribes to, so that no deploy has to widen it. What was
// published before a subscriber was registered is not delivered to it; new events are, and those that wait for others
// are untouched.
//
// contract: D-24, N-06
// scenario: B139
func TestASubscriberOfOtherEventsIsAdded(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		js := watcher(t, url)
		from := newSender(t, url)
		v1 := rig.New(t, db)
		handle := func(context.Context, events.Event) error { return nil }
		v1.Registry.RegisterFunc("orders", "shop.order.", handle)
		p := receive(t, url, "mail", v1.Queue)
		order, early, late := event(t, "shop.order.paid", nil), event(t, paid, nil), event(t, paid, nil)
		from.send(order, early)
		eventually(t, "the first version has taken both", func() bool { return idle(t, js, "mail") && p.count("loam.nats.received") == 2 })
		p.stop()
		if f := consumer(t, js, "mail").Config.FilterSubject; f != natsjs.DefaultSubject+".>" {
			t.Errorf("the filter is %q", f)
		}
		v2 := rig.Over(t, db, v1.Clock)
		v2.Registry.RegisterFunc("orders", "shop.order.", handle)
		v2.Registry.RegisterFunc("invoices", "billing.", handle)
		p = receive(t, url, "mail", v2.Queue)
		from.send(late)
		eventually(t, "the second has taken the new one", func() bool { return idle(t, js, "mail") && p.count("loam.nats.received") == 1 })
		if o, i := v2.Row("acme", "orders"), v2.Row("acme", "invoices"); o.EventID != order.ID || i.EventID != late.ID || len(v2.Rows("acme")) != 2 {
			t.Errorf("%+v\n%+v", o, i)
		}
	})
}
