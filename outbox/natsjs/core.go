package natsjs

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

// coreBuffer is how many messages wait in this process at most. Who is slower than they come loses the rest.
const coreBuffer = 10_000

// consumeCore brings what comes by while it listens. What the inbox does not take is lost, and counted.
func (b *Bus) consumeCore(ctx context.Context, in outbox.Inbox) {
	c := &consuming{Bus: b, to: in}
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(b.limits.stopWait, cancel) })()
	msgs := make(chan *nats.Msg, coreBuffer)
	var sub *nats.Subscription
	for failures := 0; sub == nil && ctx.Err() == nil; { // from then on nats.go subscribes again by itself
		nc, _, err := b.conn(ctx)
		if err == nil {
			sub, err = nc.ChanQueueSubscribe(b.subjects(), b.cfg.Service, msgs)
		}
		if err != nil && ctx.Err() == nil {
			failures++
			c.broker.Failed(ctx, b.cfg.Logger, receiving, err)
			c.since(true)
			pause(ctx, failures)
		}
	}
	c.since(false)
	if sub == nil {
		return
	}
	c.broker.Succeeded(ctx, b.cfg.Logger, receiving)
	for ctx.Err() == nil {
		select {
		case m := <-msgs:
			c.bringCore(last, m, msgs)
		case <-ctx.Done():
		}
	}
	_ = sub.Unsubscribe() // fails if the connection is closed, when nothing comes either
	for {
		select {
		case m := <-msgs:
			c.bringCore(last, m, msgs)
		default:
			return
		}
	}
}

// bringCore brings a message to the inbox, and with it what else has come.
func (c *consuming) bringCore(ctx context.Context, first *nats.Msg, more <-chan *nats.Msg) {
	var ms []*message
	var evs []events.Event
	for msg := first; msg != nil; {
		m := &message{}
		var err error
		m.event, m.letter, err = decode(msg.Header, msg.Data)
		m.letter.Origin = msg.Subject
		c.metrics.received.Add(ctx, 1)
		if err != nil {
			c.lose(ctx, m, err)
		} else {
			ms, evs = append(ms, m), append(evs, m.event)
		}
		msg = nil
		if len(evs) < chunk {
			select {
			case msg = <-more:
			default:
			}
		}
	}
	var away error
	for i, err := range c.receive(ctx, evs) {
		switch {
		case err == nil:
		case outbox.IsUnavailable(err):
			away = errors.Join(err, errLost)
			c.metrics.lost.Add(ctx, 1)
		default:
			c.lose(ctx, ms[i], err)
		}
	}
	if away != nil {
		c.inbox.Failed(ctx, c.cfg.Logger, bringing, away)
	} else if len(evs) > 0 {
		c.inbox.Succeeded(ctx, c.cfg.Logger, bringing)
	}
}

var errLost = errors.New("mode core stores nothing: events that come meanwhile are lost")

func (c *consuming) lose(ctx context.Context, m *message, err error) {
	c.metrics.lost.Add(ctx, 1)
	c.cfg.Logger.ErrorContext(ctx, "event lost: it could not be captured, and mode core stores nothing", m.attrs(err)...)
}
