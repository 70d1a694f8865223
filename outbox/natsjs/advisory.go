package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// advisedSubject is where the broker says it when a message's last delivery was not answered in time: nobody gets it any more.
	advisedSubject = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
	// advisoryStream is added to the stream's name: a stream that keeps what would else be said to whoever listens.
	advisoryStream = "_ADVISORIES"
	// advisoryAge is how long it is kept at most: longer than the events.
	advisoryAge = 30 * 24 * time.Hour
	// buryWait is how long storing a message that is given up may take at least: an advisory that comes again meanwhile would
	// be logged and counted twice.
	buryWait = 30 * time.Second
)

const burying = "storing messages whose last delivery was not answered"

// errNobody is the reason of a letter that an advisory brought.
var errNobody = errors.New("its last delivery was not answered: a process ended, or was stopped, while it had it; what it may have captured is not captured again")

type advisory struct {
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	Seq        uint64 `json:"stream_seq"`
	Deliveries int    `json:"deliveries"`
	// Time is when it was said.
	Time time.Time `json:"timestamp"`
}

// advisories buries the messages whose last delivery ended with its process, until ctx ends.
func (c *consuming) advisories(ctx context.Context) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return
	}
	var s *source
	var stored jetstream.Consumer
	for failures := 0; ctx.Err() == nil; {
		if now := c.from.Load(); now != s {
			s, stored = now, now.advisories
		}
		if stored == nil {
			c.listen(ctx, s)
			continue
		}
		if err := c.readAdvisories(ctx, s, stored); err == nil {
			failures = 0
			continue
		}
		failures++ // the broker is away, which pull says, or the stream was deleted
		pause(ctx, failures)
		if _, js, err := c.conn(ctx); err == nil {
			if again, err := c.ensureAdvisories(ctx, js); err == nil {
				stored = again
			}
		}
	}
}

// heed has the broker's advisories kept for this service, or, if that cannot be, has it listen to them: nil, then. No message is
// fetched before, because it may be the fetch that makes the broker say that deliveries are used up. It is called by one goroutine.
func (c *consuming) heed(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, stream jetstream.Stream) (jetstream.Consumer, error) {
	stored, err := c.ensureAdvisories(ctx, js)
	if err == nil {
		return stored, nil
	}
	if _, other := stream.Info(ctx); other != nil { // the broker has other troubles
		return nil, other
	}
	subjects := advisedSubject + c.cfg.Stream
	if c.told.First("advisories") {
		c.cfg.Logger.WarnContext(ctx, "max-deliveries advisories cannot be stored: an event whose last delivery ends with its process while no other process of this service runs is not listed as dead_lettered; create the stream by hand",
			slog.String("command", fmt.Sprintf("nats stream add %s --subjects '%s.*' --max-age 30d --defaults", c.cfg.Stream+advisoryStream, subjects)), slog.Any("error", err))
	}
	if c.listening != nil && c.listening.IsValid() {
		return nil, nil //nolint:nilnil // it listens
	}
	if c.listening, err = nc.ChanQueueSubscribe(subjects+"."+c.cfg.Service, c.cfg.Service, c.said); err != nil {
		return nil, fmt.Errorf("listen to advisories: %w", err)
	}
	return nil, nc.FlushTimeout(flushWait)
}

// ensureAdvisories makes the stream of advisories and this service's consumer of it, if they are not there.
func (c *consuming) ensureAdvisories(ctx context.Context, js jetstream.JetStream) (consumer jetstream.Consumer, err error) {
	name := c.cfg.Stream + advisoryStream
	filter := advisedSubject + c.cfg.Stream + "." + c.cfg.Service
	err = c.denied.asking(ctx, apiConsumerInfo+name+"."+c.cfg.Service, func(ctx context.Context) (err error) {
		consumer, err = js.Consumer(ctx, name, c.cfg.Service)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) {
		err = c.denied.asking(ctx, apiStreamCreate+name, func(ctx context.Context) error {
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{
				Name: name, Subjects: []string{advisedSubject + c.cfg.Stream + ".*"}, MaxAge: advisoryAge,
				Description: "messages of " + c.cfg.Stream + " whose last delivery was not answered",
			})
			return err
		})
		if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // with another setting, which is its operator's
			return nil, fmt.Errorf("create stream %s: %w", name, err)
		}
		err = c.denied.asking(ctx, apiConsumerCreate+name+"."+c.cfg.Service+"."+filter, func(ctx context.Context) (err error) {
			consumer, err = js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{
				Durable: c.cfg.Service, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: max(c.cfg.AckWait, buryWait), MaxDeliver: -1,
			})
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s of stream %s: %w", c.cfg.Service, name, err)
	}
	return consumer, nil
}

// readAdvisories fetches stored advisories once and works on them.
func (c *consuming) readAdvisories(ctx context.Context, s *source, stored jetstream.Consumer) error {
	batch, err := stored.Fetch(1, jetstream.FetchMaxWait(c.limits.fetchWait))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		if c.buryAdvised(ctx, s, msg.Data()) == nil {
			_ = msg.Ack() // lost, it comes again, which stores nothing more
		} else {
			_ = msg.NakWithDelay(c.limits.backoff(int(meta.NumDelivered))) //nolint:gosec // a count
		}
	}
	return batch.Error()
}

// listen works on an advisory that this process has heard, if there is one soon. One that comes while nobody listens is lost.
func (c *consuming) listen(ctx context.Context, s *source) {
	soon := time.NewTimer(c.limits.fetchWait)
	defer soon.Stop()
	select {
	case msg := <-c.said:
		for failures := 1; c.buryAdvised(ctx, s, msg.Data) != nil && ctx.Err() == nil; failures++ {
			pause(ctx, failures)
		}
	case <-soon.C:
	case <-ctx.Done():
	}
}

// buryAdvised stores the message that an advisory names as dead_lettered, however often it is called.
func (c *consuming) buryAdvised(ctx context.Context, s *source, data []byte) error {
	err := c.buryAt(ctx, s, data)
	switch {
	case err == nil:
		c.advised.Succeeded(ctx, c.cfg.Logger, burying)
	case ctx.Err() == nil:
		c.advised.Failed(ctx, c.cfg.Logger, burying, err)
	}
	return err
}

func (c *consuming) buryAt(ctx context.Context, s *source, data []byte) error {
	var a advisory
	if err := json.Unmarshal(data, &a); err != nil || a.Stream != c.cfg.Stream || a.Consumer != c.cfg.Service || a.Seq == 0 || a.Time.IsZero() {
		c.cfg.Logger.WarnContext(ctx, "advisory not understood", slog.String("stream", c.cfg.Stream), slog.Any("error", err))
		return nil
	}
	raw, err := s.stream.GetMsg(ctx, a.Seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && raw.Time.After(a.Time) { // of a stream that was made anew since
		c.metrics.exhausted.Add(ctx, 1)
		c.cfg.Logger.ErrorContext(ctx, "a message exhausted max deliveries, and is no more in the stream",
			slog.String("message", fmt.Sprintf("%s/%d", a.Stream, a.Seq)), slog.Int("deliveries", a.Deliveries))
		return nil
	}
	if err != nil {
		return fmt.Errorf("get message %d of stream %s: %w", a.Seq, a.Stream, err)
	}
	m := &message{delivered: a.Deliveries}
	_, m.letter, err = decode(raw.Header, raw.Data)
	m.letter.Origin, m.letter.Attempts, m.letter.Why = origin(a.Stream, a.Seq, raw.Time), a.Deliveries, errNobody
	if err != nil {
		m.letter.Why = fmt.Errorf("%w; and it is no event: %w", errNobody, err)
	}
	if err := c.to.DeadLetter(ctx, m.letter); err != nil {
		return err
	}
	if err := c.release(ctx, a); err != nil {
		return err
	}
	c.metrics.exhausted.Add(ctx, 1)
	c.metrics.deadLettered.Add(ctx, 1)
	c.cfg.Logger.ErrorContext(ctx, exhausted, append(m.attrs(m.letter.Why), slog.Int("deliveries", a.Deliveries))...)
	return nil
}

// release answers for the process that did not: a stream that keeps a message until it is answered (retention by interest, or
// a work queue) has no more use for it. The subject is that of the message's answer, in which the broker reads the sequence only.
func (c *consuming) release(ctx context.Context, a advisory) error {
	nc, _, err := c.conn(ctx)
	if err != nil {
		return err
	}
	return nc.Publish(fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.0.0.0", a.Stream, a.Consumer, a.Deliveries, a.Seq), []byte("+TERM"))
}
