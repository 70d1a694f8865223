package natsjs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// An event whose capture fails every time is logged with its id when its deliveries are used up, counted, and listed as
// dead_lettered; those beside it are captured. When the bug is mended, an operator requeues it.
//
// contract: N-03
// scenario: B133
func TestExhausted(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		js := watcher(t, url)
		r := mailer(rig.New(t, db))
		evs := many(t, 20)
		mend := bug(faults, evs[7])
		newSender(t, url).send(evs...)
		p := receive(t, url, "mail", r.Queue)
		eventually(t, "all are answered", func() bool { return idle(t, js, "mail") && len(dead(t, r)) > 0 })
		rows := dead(t, r)
		if len(rows) != 1 || rows[0].EventID != evs[7].ID || rows[0].TenantID != "acme" || rows[0].Attempts != outbox.DefaultMaxAttempts ||
			rows[0].Payload != string(evs[7].JSON()) || !strings.HasPrefix(rows[0].Origin, natsjs.DefaultStream+"/8@") || !strings.Contains(rows[0].LastError, "a bug in capture") {
			t.Errorf("dead letters: %+v", rows)
		}
		if n := len(p.logs.Lines("ERROR event exhausted max deliveries", "event_id="+evs[7].ID, "tenant=acme", "deliveries=5", "a bug in capture")); n != 1 ||
			len(p.logs.Lines("WARN event not captured", "event_id="+evs[7].ID)) != 4 || len(p.logs.Lines("ERROR")) != 1 {
			t.Errorf("the log is\n%s", strings.Join(p.logs.Lines(), "\n"))
		}
		if e, d, again := p.count("loam.nats.exhausted"), p.count("loam.nats.dead_lettered"), p.count("loam.nats.redelivered"); e != 1 || d != 1 || again != 4 {
			t.Errorf("%d exhausted, %d dead letters, %d came again; want 1, 1, 4", e, d, again)
		}
		if n := len(r.Rows("acme")); n != 19 {
			t.Errorf("%d deliveries, want 19", n)
		}
		mend()
		if err := r.Queue.Requeue(t.Context(), rows[0].ID); err != nil || len(r.Rows("acme")) != 20 {
			t.Errorf("requeued: %v, %d deliveries", err, len(r.Rows("acme")))
		}
	})
}

// What fails for a while is captured when it no longer does.
//
// contract: N-02
// scenario: B133
func TestABugThatIsMended(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		js := watcher(t, url)
		r := mailer(rig.New(t, db))
		e := event(t, paid, nil)
		mend := bug(faults, e)
		p := receive(t, url, "mail", r.Queue, func(b *natsjs.Bus) {
			b.Backoff(func(n int) time.Duration { return outbox.Backoff(n) / 20 })
		})
		newSender(t, url).send(e)
		eventually(t, "it fails twice", func() bool { return len(p.logs.Lines("WARN event not captured")) == 2 })
		mend()
		eventually(t, "it is captured", func() bool { return idle(t, js, "mail") && len(r.Rows("acme")) == 1 })
		if len(dead(t, r)) != 0 || p.count("loam.nats.exhausted") != 0 {
			t.Errorf("dead letters: %+v", dead(t, r))
		}
	})
}

// spend has a process take a message and die with it, again and again, until its deliveries are used up: all but the
// broker's word that they are.
func spend(t *testing.T, js jetstream.JetStream, service string, attempts int) {
	t.Helper()
	c, err := js.Consumer(t.Context(), natsjs.DefaultStream, service)
	if err != nil {
		t.Fatal(err)
	}
	for range attempts {
		if _, err := c.Next(jetstream.FetchMaxWait(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}

// ensured makes stream and consumer as a process of the service does.
func ensured(t *testing.T, url, service string, attempts int, change ...func(*natsjs.Bus)) {
	t.Helper()
	s := newSender(t, url, func(c *natsjs.Config) { c.Service = service })
	for _, c := range change {
		c(s.Bus)
	}
	if _, err := s.Ensure(t.Context(), attempts); err != nil {
		t.Fatal(err)
	}
}

// A message whose last delivery ended with its process is nobody's any more. The broker's advisory brings it to the operator: it
// is logged with its id, counted, and listed as dead_lettered, once, also when the process that had the advisory ends
// before it has stored the message. A work queue does not keep it.
//
// contract: N-03
// scenario: B134
func TestKilledInItsLastDelivery(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		js := watcher(t, url)
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: natsjs.DefaultStream, Subjects: []string{natsjs.DefaultSubject + ".>"}, Retention: jetstream.WorkQueuePolicy,
		}); err != nil {
			t.Fatal(err)
		}
		r := mailer(rig.New(t, db))
		short := ackWait(200 * time.Millisecond)
		ensured(t, url, "mail", outbox.DefaultMaxAttempts, short)
		answers, err := js.Conn().SubscribeSync("$JS.ACK." + natsjs.DefaultStream + ".mail.>")
		if err != nil {
			t.Fatal(err)
		}
		evs := []events.Event{event(t, paid, events.Payload{"n": 1}), event(t, paid, events.Payload{"n": 2})}
		from := newSender(t, url)
		from.send(evs[0])
		spend(t, js, "mail", outbox.DefaultMaxAttempts)
		broken := &scripted{Inbox: r.Queue, bury: func(outbox.Letter) error { return errors.New("the database is away") }}
		first := receive(t, url, "mail", broken, short)
		eventually(t, "the advisory comes", func() bool {
			return len(first.logs.Lines("ERROR failing", "what=storing messages whose last delivery was not answered")) == 1
		})
		first.stop()
		if len(dead(t, r)) != 0 || first.count("loam.nats.exhausted") != 0 {
			t.Fatal("it is a dead letter already")
		}
		p := receive(t, url, "mail", r.Queue, short)
		from.send(evs[1])
		eventually(t, "it is a dead letter", func() bool { return len(dead(t, r)) == 1 && len(r.Rows("acme")) == 1 })
		row := dead(t, r)[0]
		if row.EventID != evs[0].ID || row.TenantID != "acme" || row.Attempts != outbox.DefaultMaxAttempts || row.Payload != string(evs[0].JSON()) ||
			!strings.HasPrefix(row.Origin, natsjs.DefaultStream+"/1@") || !strings.Contains(row.LastError, "its last delivery was not answered") {
			t.Errorf("%+v", row)
		}
		said := func() int {
			return len(p.logs.Lines("ERROR event exhausted max deliveries", "event_id="+evs[0].ID, "deliveries=5"))
		}
		eventually(t, "it is logged", func() bool { return said() > 0 }) // after it was counted, and released
		if e, d := p.count("loam.nats.exhausted"), p.count("loam.nats.dead_lettered"); said() != 1 || e != 1 || d != 1 {
			t.Errorf("%d exhausted, %d dead letters; the log is\n%s", e, d, strings.Join(p.logs.Lines(), "\n"))
		}
		for _, nc := range []*nats.Conn{p.Connection(), js.Conn()} { // so that what p has said is here
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		for {
			answer, err := answers.NextMsg(time.Millisecond)
			if err != nil {
				t.Fatalf("the message was not released: %v", err)
			}
			if string(answer.Data) == "+TERM" {
				break
			}
		}
		eventually(t, "the work queue is empty", func() bool { return stored(t, js) == 0 })
		if err := r.Queue.Requeue(t.Context(), row.ID); err != nil || len(r.Rows("acme")) != 2 {
			t.Errorf("requeued: %v, %d deliveries", err, len(r.Rows("acme")))
		}
	})
}

// What is given up here is taken out of a work queue too.
//
// contract: N-03
// scenario: B134
func TestAWorkQueueIsEmptied(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		js := watcher(t, url)
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: natsjs.DefaultStream, Subjects: []string{natsjs.DefaultSubject + ".>"}, Retention: jetstream.WorkQueuePolicy,
		}); err != nil {
			t.Fatal(err)
		}
		r := mailer(rig.New(t, db))
		evs := many(t, 3)
		bug(faults, evs[1])
		newSender(t, url).send(evs...)
		receive(t, url, "mail", r.Queue)
		eventually(t, "the work queue is empty", func() bool { return stored(t, js) == 0 })
		if rows := dead(t, r); len(rows) != 1 || rows[0].EventID != evs[1].ID || len(r.Rows("acme")) != 2 {
			t.Errorf("%d deliveries, dead letters: %+v", len(r.Rows("acme")), rows)
		}
	})
}

// Without the right to make the stream of advisories there is one warning with what is lost and the command that mends it; what
// is said while a process listens is still brought to the operator.
//
// contract: N-03
func TestAdvisoriesThatCannotBeStored(t *testing.T) {
	t.Parallel()
	s := configured(t, `
		authorization { users = [
			{user: loam, password: x, permissions: {publish: {deny: ["$JS.API.STREAM.CREATE.LOAM_EVENTS_ADVISORIES"]}}}
			{user: admin, password: x}
		]}`)
	url := func(user string) string { return strings.Replace(s.ClientURL(), "://", "://"+user+":x@", 1) }
	js := watcher(t, url("admin"))
	short := ackWait(200 * time.Millisecond)
	ensured(t, url("loam"), "mail", 2, short)
	e := event(t, paid, nil)
	newSender(t, url("loam")).send(e)
	spend(t, js, "mail", 2)
	in := &scripted{attempts: 2}
	p := receive(t, url("loam"), "mail", in, short)
	eventually(t, "it is a dead letter", func() bool { return len(in.buried()) == 1 })
	if l := in.buried()[0]; l.EventID != e.ID || l.Attempts != 2 {
		t.Errorf("%+v", l)
	}
	if n := len(p.logs.Lines("WARN max-deliveries advisories cannot be stored", "nats stream add LOAM_EVENTS_ADVISORIES", "permissions violation")); n != 1 || len(p.logs.Lines("WARN")) != 1 {
		t.Errorf("the log is\n%s", strings.Join(p.logs.Lines(), "\n"))
	}
}

// An advisory of a message that the stream has no more is logged and counted, and keeps no other.
//
// contract: N-03
func TestAdvisoryOfAMessageThatIsGone(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	js := watcher(t, url)
	in := &scripted{attempts: 2}
	before := receive(t, url, "mail", in)
	eventually(t, "the streams are made", func() bool {
		_, err := js.Consumer(t.Context(), natsjs.DefaultStream+"_ADVISORIES", "mail")
		return err == nil
	})
	before.stop()
	say := func(data string) {
		m := &nats.Msg{Subject: "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.LOAM_EVENTS.mail", Data: []byte(data)}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	about := func(seq int, said time.Time) {
		say(fmt.Sprintf(`{"stream":"LOAM_EVENTS","consumer":"mail","stream_seq":%d,"deliveries":2,"timestamp":%q}`, seq, said.Format(time.RFC3339Nano)))
	}
	from := newSender(t, url)
	about(77, time.Now())
	say(`not JSON`)
	from.send(many(t, 2)...)
	about(1, time.Now().Add(-time.Hour)) // of a stream that was made anew since: this message is another one
	about(2, time.Now().Add(time.Second))
	p := receive(t, url, "mail", in)
	eventually(t, "the one that is there is a dead letter", func() bool { return len(in.buried()) == 1 && p.count("loam.nats.exhausted") == 3 })
	if len(p.logs.Lines("ERROR a message exhausted max deliveries, and is no more in the stream", "message=LOAM_EVENTS/77")) != 1 ||
		len(p.logs.Lines("ERROR a message exhausted max deliveries, and is no more in the stream", "message=LOAM_EVENTS/1")) != 1 ||
		!strings.HasPrefix(in.buried()[0].Origin, "LOAM_EVENTS/2@") || len(p.logs.Lines("WARN advisory not understood")) != 1 {
		t.Errorf("%+v, the log is\n%s", in.buried(), strings.Join(p.logs.Lines(), "\n"))
	}
}

// The broker says once that a message's deliveries are used up, and a fetch has it say so: none is made before what is said is
// stored for this service.
//
// contract: N-03
func TestAdvisoriesAreKeptFirst(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	nc := watcher(t, url).Conn()
	requests, err := nc.SubscribeSync("$JS.API.CONSUMER.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	receive(t, url, "mail", &scripted{})
	for {
		request, err := requests.NextMsg(slow)
		switch {
		case err != nil:
			t.Fatal(err)
		case strings.HasPrefix(request.Subject, "$JS.API.CONSUMER.CREATE."+natsjs.DefaultStream+"_ADVISORIES.mail."):
			return
		case strings.HasPrefix(request.Subject, "$JS.API.CONSUMER.MSG.NEXT."):
			t.Fatalf("%s before advisories are kept", request.Subject)
		}
	}
}
