package natsjs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/outbox"
)

// consuming is one call of Consume.
type consuming struct {
	*Bus

	to   outbox.Inbox
	hold *hold

	from  atomic.Pointer[source] // what was fetched from last
	ready chan struct{}          // closed once there is one
	once  sync.Once

	said      chan *nats.Msg     // advisories that could not be stored
	listening *nats.Subscription // which fills it; pull's

	handedOut uint64 // last, when watch looked

	broker, inbox, full, advised outage.Log
}

// limits are those of receiving. Tests have smaller ones.
type limits struct {
	// backoff is how long after delivery n, counted from 1, a message comes again.
	backoff func(n int) time.Duration
	// fetchBytes is how much is fetched at once at most, unless one message is larger.
	fetchBytes int
	// fetchWait is how long the broker waits for messages to give. The process stops no sooner than that: to break off would spend
	// a delivery of what is on its way.
	fetchWait time.Duration
	// stopWait is how long the messages that a process has when it stops are still worked on.
	stopWait time.Duration
}

var defaultLimits = limits{backoff: outbox.Backoff, fetchBytes: 8 << 20, fetchWait: time.Second, stopWait: 5 * time.Second}

// source is the stream and this service's consumer of it.
type source struct {
	stream     jetstream.Stream
	consumer   jetstream.Consumer
	advisories jetstream.Consumer // nil if they cannot be stored
	patience   time.Duration
}

const (
	// silence is how many fetches the broker may leave without any answer until it counts as away. nats.go waits for one
	// second longer than the broker should.
	silence, answerWithin = 3, 900 * time.Millisecond
	// flushWait is how long the last answers may take to be on their way.
	flushWait = 2 * time.Second
)

// apiNext is the subject of JetStream's API for messages; stream and consumer follow.
const apiNext = "$JS.API.CONSUMER.MSG.NEXT."

const receiving = "receiving events from NATS"

// Consume implements outbox.Bus.
func (b *Bus) Consume(ctx context.Context, in outbox.Inbox) {
	if b.cfg.Mode == Core {
		b.consumeCore(ctx, in)
		return
	}
	c := &consuming{Bus: b, to: in, hold: newHold(), ready: make(chan struct{}), said: make(chan *nats.Msg, holdLimit)}
	// What was handed out is brought to its end, for a while, when the process stops.
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(b.limits.stopWait, cancel) })()
	var takers, keepers sync.WaitGroup
	takers.Go(func() { c.pull(ctx) })
	takers.Go(func() { c.advisories(ctx) })
	keepers.Go(func() { c.every(last, c.extend) })
	keepers.Go(func() { c.every(last, c.watch) })
	c.work(last, ctx)
	takers.Wait()
	cancel()
	keepers.Wait()
	c.giveBack(ctx)
}

// pull fetches messages until ctx ends, however often the broker is away.
func (c *consuming) pull(ctx context.Context) {
	defer c.hold.close()
	defer c.since(false)
	defer func() {
		if c.listening != nil {
			_ = c.listening.Unsubscribe() // or the connection is closed
		}
	}()
	for failures := 0; ctx.Err() == nil; {
		fetched, err := c.fetchAll(ctx)
		if fetched {
			failures = 0
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		if failures++; failures > 1 { // a consumer that moves to another server, or was deleted, is made good by the next try
			c.broker.Failed(ctx, c.cfg.Logger, receiving, err)
			c.since(true)
		}
		pause(ctx, failures)
	}
}

// fetchAll fetches until something fails, and reports whether it could at all.
func (c *consuming) fetchAll(ctx context.Context) (fetched bool, err error) {
	s, err := c.source(ctx)
	if err != nil {
		return false, err
	}
	c.from.Store(s)
	c.once.Do(func() { close(c.ready) })
	denied, stop := c.denied.watch(apiNext + c.cfg.Stream + "." + c.cfg.Service)
	defer stop()
	silent, large := 0, false
	for {
		n := c.hold.room(ctx)
		if n == 0 {
			return fetched, nil
		}
		opts := []jetstream.FetchOpt{jetstream.FetchMaxWait(c.limits.fetchWait)}
		if large {
			n = 1
		} else {
			opts = append(opts, jetstream.FetchMaxBytes(c.limits.fetchBytes))
		}
		began := time.Now()
		got, err := c.fetch(ctx, s, n, opts)
		took := time.Since(began)
		if err != nil {
			return fetched, err
		}
		if large && got == 0 && took < c.limits.fetchWait/2 { // the broker does not wait, for whatever reason
			pause(ctx, 1)
		}
		large = got == 0 // there is none, or the next one is larger than what may be fetched at once
		if silent++; got > 0 || took < c.limits.fetchWait+answerWithin {
			silent = 0
		}
		if silent > 0 {
			select {
			case <-denied:
				return fetched, fmt.Errorf("%w to %s", errDenied, apiNext+c.cfg.Stream+"."+c.cfg.Service)
			default:
			}
		}
		if silent == silence {
			return fetched, errors.New("the broker does not answer")
		}
		if silent == 0 {
			fetched = true
			c.broker.Succeeded(ctx, c.cfg.Logger, receiving)
			c.since(false)
		}
	}
}

// source connects, and makes sure that stream and consumer are there.
func (c *consuming) source(ctx context.Context) (*source, error) {
	nc, js, err := c.conn(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := c.ensureStream(ctx, js)
	if err != nil {
		return nil, err
	}
	consumer, err := c.ensureConsumer(ctx, js, c.to.Attempts())
	if err != nil {
		return nil, err
	}
	advisories, err := c.heed(ctx, nc, js, stream)
	if err != nil {
		return nil, err
	}
	return &source{stream, consumer, advisories, patience(consumer.CachedInfo().Config)}, nil
}

// patience is how long the broker waits for an answer: an operator's backoff takes the place of ack_wait.
func patience(c jetstream.ConsumerConfig) time.Duration {
	if len(c.BackOff) > 0 {
		return slices.Min(c.BackOff)
	}
	return c.AckWait
}

func (c *consuming) fetch(ctx context.Context, s *source, n int, opts []jetstream.FetchOpt) (got int, err error) {
	batch, err := s.consumer.Fetch(n, opts...)
	if err != nil {
		return 0, fmt.Errorf("fetch messages: %w", err)
	}
	for msg := range batch.Messages() {
		got++
		m, err := c.read(ctx, msg)
		if err != nil {
			return got, err
		}
		c.metrics.received.Add(ctx, 1)
		if m.delivered > 1 {
			c.metrics.redelivered.Add(ctx, 1)
		}
		c.hold.add(m)
	}
	if err := batch.Error(); err != nil {
		return got, fmt.Errorf("fetch messages: %w", err)
	}
	return got, nil
}

// read makes a message of a delivery; one that is no event is given up from the beginning.
func (c *consuming) read(ctx context.Context, msg jetstream.Msg) (*message, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read where a message is: %w", err)
	}
	m := &message{
		msg: msg, delivered: int(meta.NumDelivered), //nolint:gosec // a count
		place: place{meta.Sequence.Stream, meta.Timestamp.UnixNano()},
	}
	m.event, m.letter, err = decode(msg.Headers(), msg.Data())
	m.letter.Origin = origin(meta.Stream, meta.Sequence.Stream, meta.Timestamp)
	if err != nil {
		m.why = err
		c.cfg.Logger.ErrorContext(ctx, hopeless, m.attrs(err)...)
	}
	return m, nil
}

// origin is where a message is. A stream that was made anew counts from 1 again, so the time is part of it.
func origin(stream string, seq uint64, at time.Time) string {
	return fmt.Sprintf("%s/%d@%s", stream, seq, at.UTC().Format(time.RFC3339Nano))
}
