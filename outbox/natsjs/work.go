package natsjs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/cleantext"
	"github.com/openloam/loam/outbox"
)

const bringing = "bringing messages of the stream to the database"

// work brings what is held to the inbox until no more comes. stop ends when the process is to stop: then what waits is still
// brought, if the inbox takes it, until ctx ends.
func (c *consuming) work(ctx, stop context.Context) {
	for failures := 0; ; {
		limit := chunk
		if failures > 0 {
			limit = 1
		}
		ms := c.hold.take(ctx, limit)
		if len(ms) == 0 {
			return
		}
		back, err := c.bring(ctx, ms)
		if ctx.Err() != nil {
			return
		}
		c.hold.settled(back)
		if len(back) == 0 {
			failures = 0
			c.inbox.Succeeded(ctx, c.cfg.Logger, bringing)
			continue
		}
		failures++
		c.inbox.Failed(ctx, c.cfg.Logger, bringing, err)
		if pause(stop, failures); stop.Err() != nil {
			return
		}
	}
}

// bring brings messages to the inbox and answers them. It returns those that the database did not take or bury, which says
// nothing about them, and why.
func (c *consuming) bring(ctx context.Context, ms []*message) (back []*message, why error) {
	var evs []events.Event
	for _, m := range ms {
		if m.why == nil {
			evs = append(evs, m.event)
		}
	}
	results := c.receive(ctx, evs)
	for _, m := range ms {
		if m.why == nil {
			err := results[0]
			results = results[1:]
			switch {
			case err == nil:
				c.answer(ctx, m, jetstream.Msg.Ack)
				continue
			case outbox.IsUnavailable(err), ctx.Err() != nil: // which says nothing about the event either
				back, why = append(back, m), err
				continue
			}
			if !c.failed(ctx, m, err) {
				continue
			}
		}
		switch err := c.bury(ctx, m); {
		case err == nil:
		case outbox.IsUnavailable(err), ctx.Err() != nil:
			back, why = append(back, m), err
		default:
			c.unburied(ctx, m, err)
		}
	}
	return back, why
}

// receive is the inbox's Receive. If that panics, each event is tried alone, so that one does not spend the deliveries of all.
func (c *consuming) receive(ctx context.Context, evs []events.Event) []error {
	results, err := c.contained(ctx, evs)
	if err == nil {
		return results
	}
	results = make([]error, len(evs))
	if len(evs) == 1 {
		results[0] = err
		return results
	}
	for i := range evs {
		results[i] = c.receive(ctx, evs[i:i+1])[0]
	}
	return results
}

func (c *consuming) contained(ctx context.Context, evs []events.Event) (results []error, err error) {
	if len(evs) == 0 {
		return nil, nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	if results = c.to.Receive(ctx, evs); len(results) != len(evs) {
		return nil, fmt.Errorf("the inbox's Receive returned %d results for %d events", len(results), len(evs))
	}
	return results, nil
}

// failed notes that an event could not be captured for a reason of its own, and reports whether it is given up. If not, it comes
// again after the wait that a row of event_queue has after as many failures.
func (c *consuming) failed(ctx context.Context, m *message, err error) bool {
	delivered := c.hold.deliveries(m)
	switch {
	case outbox.IsPermanent(err):
		c.cfg.Logger.ErrorContext(ctx, hopeless, m.attrs(err)...)
	case delivered >= c.to.Attempts():
		c.cfg.Logger.ErrorContext(ctx, exhausted, append(m.attrs(err), slog.Int("deliveries", delivered))...)
		m.exhausted = true
	default:
		wait := c.later(ctx, m)
		c.cfg.Logger.WarnContext(ctx, "event not captured, it will be tried again", append(m.attrs(err), slog.Int("delivery", delivered), slog.Duration("after", wait))...)
		return false
	}
	m.why = err
	return true
}

// later has a message come again after its wait.
func (c *consuming) later(ctx context.Context, m *message) time.Duration {
	wait := c.limits.backoff(c.hold.deliveries(m))
	c.answer(ctx, m, func(msg jetstream.Msg) error { return msg.NakWithDelay(wait) })
	return wait
}

// The log lines by which an operator finds an event that was given up.
const (
	exhausted = "event exhausted max deliveries"
	hopeless  = "event cannot be captured, it is dead_lettered"
)

// bury stores a message that is given up, and only then has it not come again.
func (c *consuming) bury(ctx context.Context, m *message) error {
	l := m.letter
	l.Attempts, l.Why = c.hold.deliveries(m), m.why
	if err := c.to.DeadLetter(ctx, l); err != nil {
		return err
	}
	c.metrics.deadLettered.Add(ctx, 1)
	if m.exhausted {
		c.metrics.exhausted.Add(ctx, 1)
	}
	c.answer(ctx, m, jetstream.Msg.Term)
	return nil
}

// unburied notes that the database takes others, but not this letter. It keeps none of them waiting: it comes again, and after
// its last delivery it is brought by the broker's advisory, again and again.
func (c *consuming) unburied(ctx context.Context, m *message, err error) {
	wait := c.later(ctx, m)
	c.cfg.Logger.ErrorContext(ctx, "dead letter not stored, it will be tried again", append(m.attrs(err), slog.Duration("after", wait))...)
}

// answer answers a message's last delivery. An answer that is lost only makes the message come again.
func (c *consuming) answer(ctx context.Context, m *message, how func(jetstream.Msg) error) {
	if err := how(c.hold.drop(m)); err != nil {
		c.cfg.Logger.DebugContext(ctx, "message not answered, it comes again", m.attrs(err)...)
	}
}

// saidLimit is how much of what a message says about itself is logged: anybody may have sent it.
const saidLimit = 200

func (m *message) attrs(err error) []any {
	said := func(key, value string) slog.Attr { return slog.String(key, cleantext.Cut(value, saidLimit)) }
	return []any{
		said("tenant", m.letter.TenantID), said("event_id", m.letter.EventID), said("event", m.letter.EventType),
		slog.String("message", m.letter.Origin), slog.Any("error", err),
	}
}
