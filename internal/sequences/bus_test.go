package sequences_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

// The steps of a bus: the service sends what it enqueues, and receives it.

// message is one of the bus's stream. It comes again until it is answered, rowAttempts times at most.
type message struct {
	event     *event
	said      events.Event // as it was sent
	seq       int
	delivered int
	until     time.Time // not before then again, by the broker's clock
	holder    *process  // keeps it while its database is away
	ended     bool
}

// ackWait is how long the bus waits for an answer.
const ackWait = time.Minute

var errLast = errors.New("it was in the hands of one that has died, for the last time")

// What a sink does with what it is sent, all of it or one.
const (
	sinkTakes     = "takes"
	sinkRefuses   = "refuses the first"
	sinkAway      = "is away"
	sinkUnheard   = "takes it, and is not heard"
	killedBefore  = "the process dies before it sends"
	killedBetween = "the process dies before it marks"
)

// sink is the bus, as the relay of one process sees it.
type sink struct {
	w  *world
	is string
}

// Send implements outbox.Sink.
func (s *sink) Send(_ context.Context, evs []events.Event) []error {
	errs := make([]error, len(evs))
	if s.is == killedBefore {
		runtime.Goexit()
	}
	for i, e := range evs {
		switch {
		case s.is == sinkAway:
			errs[i] = outbox.Unavailable(errInjected)
			continue
		case s.is == sinkRefuses && i == 0:
			errs[i] = errInjected
			continue
		case s.is == sinkUnheard:
			errs[i] = outbox.Unavailable(errInjected)
		}
		s.w.m.store(e)
	}
	if s.is == killedBetween {
		runtime.Goexit()
	}
	return errs
}

// send makes one round of a relay that sends to the bus.
func (w *world) send() {
	p := w.drawProc()
	is := oneOf(sinkTakes, sinkTakes, sinkTakes, sinkRefuses, sinkAway, sinkUnheard, sinkUnheard, killedBefore, killedBetween).Draw(w.t, "the bus")
	w.sendRound(p, is)
}

func (w *world) sendRound(p *process, is string) {
	p.bus.is = is
	taken := w.m.takeable()
	if p.away {
		taken = taken[:min(len(taken), 1)]
	}
	n, err, ended := 0, error(nil), make(chan struct{})
	go func() {
		defer close(ended)
		n, err = p.sender.Round(w.tb.ctx)
	}()
	<-ended
	dies := len(taken) > 0 && (is == killedBefore || is == killedBetween)
	if !dies && (err != nil || n != len(taken)) {
		w.t.Fatalf("the relay sent %d rows (%v), of %d", n, err, len(taken))
	}
	w.m.sent(taken, is)
	p.away = p.away && len(taken) == 0 || len(taken) > 0 && (is == sinkAway || is == sinkUnheard)
	if dies {
		w.replace(p)
	}
	w.check(effects{})
}

// comes are the messages that the bus may hand out.
func (w *world) comes() []*message {
	return slices.DeleteFunc(slices.Clone(w.m.stream), func(m *message) bool {
		return m.ended || m.until.After(w.m.mono) || m.holder != nil && slices.Contains(w.procs, m.holder)
	})
}

// kept are those that a process has.
func (w *world) kept(p *process) []*message {
	return slices.DeleteFunc(slices.Clone(w.m.stream), func(m *message) bool { return m.holder != p })
}

// foreign is an event that another service has sent.
func (w *world) foreign() {
	s := specs.Filter(func(s spec) bool { return s.tenant != "" }).Draw(w.t, "event")
	s.given = 0
	_, e, me := w.event(w.procs[0], s)
	w.m.stream = append(w.m.stream, &message{event: me, said: e, seq: len(w.m.stream) + 1})
}

// receive brings messages to the inbox of a process: those that it keeps, or else what comes.
func (w *world) receive() {
	p := w.drawProc()
	n := oneOf(1, 1, 2, 3).Draw(w.t, "messages")
	w.receiveBy(p, n, w.drawFault(failOnce, failOnce, ownAway, ownAway, ownAway))
}

func (w *world) receiveBy(p *process, n int, f fault) {
	ms := w.kept(p)
	if len(ms) == 0 {
		ms = w.comes()
		ms = ms[:min(len(ms), n)]
		for _, m := range ms {
			if m.holder = nil; m.delivered == rowAttempts { // the bus gives it up, and says so
				w.m.saw["N-03 the last delivery had no answer"]++
				w.bury(p, m, errLast)
				w.check(effects{})
				return
			}
		}
		for _, m := range ms {
			m.delivered++
			m.until = w.m.mono.Add(ackWait)
		}
	}
	if len(ms) == 0 { // another process has them
		return
	}
	var evs []events.Event
	for _, m := range ms {
		m.holder = nil
		evs = append(evs, m.said)
	}
	var results []error
	e := w.under(p, f, func() { results = p.Queue.Receive(w.tb.ctx, evs) })
	var done effects
	wants := make([]error, len(ms))
	for i, m := range ms {
		alone := e.fired && len(ms) == 1 // several are tried in halves, at once; but not when it is not the events
		switch {
		case e.crashed && e.commits == 0:
		case e.fired && f.kind == ownAway:
			wants[i] = outbox.Unavailable(errInjected)
		case e.fired && f.kind == failOnce && asksForTenant(e):
			wants[i] = outbox.Unavailable(errInjected)
		case alone && f.kind == failOnce:
			wants[i] = errInjected
		default:
			var woken []wake
			woken, wants[i] = w.m.receive(p.proc, m.event)
			w.owe(woken)
			done.woken = append(done.woken, woken...)
			if alone && f.kind == loseAnswer {
				wants[i] = errInjected
			}
		}
	}
	if e.crashed {
		w.replace(p)
		w.check(done)
		return
	}
	w.check(done)
	for i, m := range ms {
		w.answer(p, m, results[i], wants[i])
	}
	w.check(effects{})
}

// answer compares what the inbox says of a message, and does what it asks for.
func (w *world) answer(p *process, m *message, got, want error) {
	if (got == nil) != (want == nil) || outbox.IsPermanent(got) != outbox.IsPermanent(want) || outbox.IsUnavailable(got) != outbox.IsUnavailable(want) {
		w.t.Fatalf("receiving %s: %v, want %v", m.event.label, got, want)
	}
	switch {
	case got == nil:
		w.m.saw["N-06 received"]++
		w.ack(m)
	case outbox.IsUnavailable(got):
		w.m.saw["N-06 kept while its own database is away"]++
		m.holder, m.until = p, w.m.mono.Add(ackWait)
	case errors.Is(want, durable.ErrUnknownTenant):
		w.m.saw["N-06 before its tenant"]++
		w.bury(p, m, got)
	case outbox.IsPermanent(got), m.delivered == rowAttempts:
		w.m.saw["N-03 given up"]++
		w.bury(p, m, got)
	default:
		w.m.saw["N-02 refused"]++
		m.until = w.m.mono.Add(outbox.Backoff(m.delivered))
	}
}

// ack ends a message, unless the bus does not hear it.
func (w *world) ack(m *message) {
	if m.ended = oneOf(true, true, true, false).Draw(w.t, "the bus hears it"); !m.ended {
		w.m.saw["N-06 the ack is lost"]++
		m.until = w.m.mono.Add(ackWait)
	}
}

// bury stores a message's letter, perhaps twice, and ends it.
func (w *world) bury(p *process, m *message, why error) {
	l := outbox.Letter{
		Origin: m.origin(), EventID: m.said.ID, EventType: m.said.Name, TenantID: m.said.TenantID, Payload: string(m.said.JSON()),
		Headers: m.said.Headers.JSON(), Attempts: m.delivered, Why: why,
	}
	for range oneOf(1, 1, 2).Draw(w.t, "times") {
		w.must(p.Queue.DeadLetter(w.tb.ctx, l))
	}
	w.m.bury(m, why)
	w.ack(m)
}

func (m *message) origin() string { return fmt.Sprintf("LOAM:%d", m.seq) }
