package faultpoints_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// message is one of the stream's; its sequence is its place in it, from 1.
type message struct{ tenant, name, id, payload string }

// The ids of the events of the stream.
const (
	idGot   = "00000000-0000-7000-8000-000000000021"
	idEarly = "00000000-0000-7000-8000-000000000022" // its tenant comes later
	idOwn   = "00000000-0000-7000-8000-000000000023" // this service has sent it, and cannot capture it for a bug
)

// stream is what the bus has: an event twice, one that comes before its tenant, one that a bug refuses, and two messages
// that are no events.
var stream = []message{
	{"acme", received, idGot, `{"n":1}`},
	{"acme", received, idGot, `{"n":1}`},
	{"globex", received, idEarly, `{"n":2}`},
	{"acme", received, idOwn, `{"actor_id":null,"n":3,"tenant_id":"acme"}`}, // as its row has it
	{"acme", "no name", "x", `{}`},
	{"", "", "", "\x00 not JSON"},
}

func (m message) event() (events.Event, error) {
	return events.Queued(m.id, m.name, m.tenant, m.payload, "{}")
}

func origin(seq int) string { return fmt.Sprintf("LOAM:%d", seq) }

const (
	ackWait     = time.Minute // after which a message comes again that was not answered
	busAttempts = 2           // how often, in all
)

// kept is what the broker knows of a message. It is written in the diary: the broker outlives its consumers.
type kept struct {
	handed int       // how often it was handed out
	until  time.Time // not before then again
	ended  bool      // acked, or told that it need not come again
}

func (w *world) kept() []kept {
	out := make([]kept, len(stream))
	for _, e := range w.diary.entries(w.t) {
		switch k := &out[max(e.Run-1, 0)%len(out)]; e.What {
		case "handed":
			k.handed++
			k.until = time.Unix(0, e.Clock).Add(ackWait)
		case "nak":
			k.until = time.Unix(0, e.Clock).Add(outbox.Backoff(k.handed))
		case "ack":
			k.ended = true
		}
	}
	return out
}

// consumer does what package natsjs does, in process a or b.
type consumer struct {
	w    *world
	proc string
	in   outbox.Inbox
}

// handed is a message in a consumer's hands.
type handed struct {
	message

	seq, delivery int
	event         events.Event
	why           error // it is given up
}

var errExhausted = errors.New("it was in the hands of one that has died, for the last time")

// consume receives until the bus has nothing more now. What the inbox does not take is kept and tried again.
func (c consumer) consume() {
	for ms := c.fetch(); len(ms) > 0; ms = c.fetch() {
		for try := 0; len(ms) > 0; try++ {
			if try == tries {
				c.w.t.Errorf("the inbox fails again and again: %v", ms[0].why)
				return
			}
			ms = c.bring(ms)
		}
	}
}

// fetch hands out what may come: also, as the broker's advisory does, what comes no more and has not ended.
func (c consumer) fetch() (ms []*handed) {
	c.w.fetching.Lock()
	for i, k := range c.w.kept() {
		if k.ended || c.w.clock.Now().Before(k.until) {
			continue
		}
		m := &handed{message: stream[i], seq: i + 1, delivery: k.handed + 1}
		var err error
		if m.event, err = m.message.event(); err != nil {
			m.why = err
		}
		if k.handed == c.in.Attempts() {
			m.why, m.delivery = errExhausted, k.handed
		} else {
			c.w.note(entry{What: "handed", Proc: c.proc, Run: m.seq})
		}
		ms = append(ms, m)
	}
	c.w.fetching.Unlock()
	if len(ms) > 0 && c.pass(kindFetch) != nil {
		return nil // lost on their way
	}
	return ms
}

// bring returns those that the database did not take.
func (c consumer) bring(ms []*handed) (back []*handed) {
	var evs []events.Event
	for _, m := range ms {
		if m.why == nil {
			evs = append(evs, m.event)
		}
	}
	results := c.in.Receive(c.w.t.Context(), evs)
	for _, m := range ms {
		if m.why == nil {
			err := results[0]
			results = results[1:]
			switch {
			case err == nil:
				c.answer(m, "ack")
				continue
			case outbox.IsUnavailable(err):
				back = append(back, m)
				continue
			case !outbox.IsPermanent(err) && m.delivery < c.in.Attempts():
				c.answer(m, "nak")
				continue
			}
			m.why = err
		}
		err := c.in.DeadLetter(c.w.t.Context(), outbox.Letter{
			Origin: origin(m.seq), EventID: m.id, EventType: m.name, TenantID: m.tenant, Payload: m.payload, Headers: "{}",
			Attempts: m.delivery, Why: m.why,
		})
		if err != nil {
			back = append(back, m)
			continue
		}
		c.answer(m, "ack")
	}
	return back
}

// answer answers a message; before an ack, what it says must be committed.
func (c consumer) answer(m *handed, what string) {
	if deliveries, letters := c.w.committed(m); what == "ack" && deliveries+letters == 0 {
		c.w.t.Errorf("message %d is acked, and nothing is committed", m.seq)
	}
	if c.pass(kindAnswer) != nil {
		return // it does not arrive
	}
	c.w.note(entry{What: what, Proc: c.proc, Run: m.seq})
	_ = c.pass(kindAnswered) // which the broker does not say
}

// committed counts the deliveries and letters that others can see.
func (w *world) committed(m *handed) (deliveries, letters int) {
	rig.Scan(w.t, w.b.DB, `SELECT (SELECT count(*) FROM event_deliveries WHERE tenant_id = $1 AND event_id = $2),
		(SELECT count(*) FROM event_queue WHERE origin = $3)`, []any{m.tenant, m.id, origin(m.seq)}, &deliveries, &letters)
	return deliveries, letters
}

// pass passes a point of a's.
func (c consumer) pass(kind string) error {
	if c.proc != "a" {
		return nil
	}
	return c.w.hook.pass(kind, "the bus")
}

// buggy refuses one event, after it has written its deliveries, until it is mended.
type buggy struct {
	outbox.Capturer

	w *world
}

var errBug = errors.New("a bug of the test")

func (b buggy) CaptureAll(ctx context.Context, tx *sql.Tx, evs []events.Event) ([]error, error) {
	refused, err := b.Capturer.CaptureAll(ctx, tx, evs)
	for _, e := range evs {
		if err == nil && e.ID == idOwn && !b.w.mended() {
			err = errBug
		}
	}
	return refused, err
}
