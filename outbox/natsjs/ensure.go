package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/outbox"
)

const (
	// keep is how long the stream keeps an event: a service may be away that long.
	keep = 7 * 24 * time.Hour
	// maxAckPending is how many messages of a service may be unanswered at once.
	maxAckPending = 1000
)

// subjects are those of the stream, and the consumer's filter.
func (b *Bus) subjects() string { return b.cfg.Subject + ".>" }

// ensureStream returns the stream, which is made if it is not there. One that is there is compared: its duplicate_window is set,
// by N-04; everything else is its operator's. The error is marked by outbox.Unavailable, and wraps errDenied if a right is missing.
func (b *Bus) ensureStream(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	s, err := b.stream(ctx, js)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = b.createStream(ctx, js)
	}
	if err != nil {
		return nil, outbox.Unavailable(fmt.Errorf("look at stream %s: %w", b.cfg.Stream, err))
	}
	live := s.CachedInfo().Config
	b.tellUncovered(ctx, live)
	changed, err := b.update(ctx, js, object{
		kind: "stream", name: b.cfg.Stream, info: apiStreamInfo + b.cfg.Stream, update: apiStreamUpdate + b.cfg.Stream,
		edit: "nats stream edit " + b.cfg.Stream,
		body: func(config any) any { return config },
	}, []difference{{"duplicate_window", "--dupe-window", live.Duplicates, b.times.window}})
	if changed && err == nil {
		s, err = b.stream(ctx, js)
	}
	if err != nil {
		return nil, outbox.Unavailable(fmt.Errorf("look at stream %s: %w", b.cfg.Stream, err))
	}
	return s, nil
}

func (b *Bus) stream(ctx context.Context, js jetstream.JetStream) (s jetstream.Stream, err error) {
	err = b.denied.asking(ctx, apiStreamInfo+b.cfg.Stream, func(ctx context.Context) error {
		s, err = js.Stream(ctx, b.cfg.Stream)
		return err
	})
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("JetStream does not answer, it is not enabled or has no leader: %w", err)
	}
	return s, err
}

func (b *Bus) createStream(ctx context.Context, js jetstream.JetStream) (s jetstream.Stream, err error) {
	err = b.denied.asking(ctx, apiStreamCreate+b.cfg.Stream, func(ctx context.Context) error {
		s, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: b.cfg.Stream, Subjects: []string{b.subjects()}, Description: "events of Loam",
			Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, MaxAge: keep, Duplicates: b.times.window,
			Discard: jetstream.DiscardNew, // should an operator limit its size: then events wait in event_queue, and none is lost
		})
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
		return b.stream(ctx, js)
	}
	if err != nil {
		return nil, fmt.Errorf("it does not exist and cannot be created, so create it: nats stream add %s --subjects '%s' --dupe-window %v --discard new --defaults: %w",
			b.cfg.Stream, b.subjects(), b.times.window, err)
	}
	return s, nil
}

// tellUncovered warns of a stream that does not take all events: an operator may want that.
func (b *Bus) tellUncovered(ctx context.Context, live jetstream.StreamConfig) {
	if covered(live.Subjects, b.subjects()) {
		return
	}
	subjects := strings.Join(live.Subjects, ", ")
	if b.told.First("subjects " + subjects) {
		b.cfg.Logger.WarnContext(ctx, "the NATS stream does not take all events, those that it does not take will be dead_lettered",
			attrs("stream", b.cfg.Stream, "subjects", subjects, "needed", b.subjects())...)
	}
}

// ensureConsumer returns this service's durable consumer, which is made if it is not there. attempts is its max_deliver. One that
// is there is compared: max_deliver and ack_wait are set, by N-04. One that cannot work is refused with what is wrong. The
// error is marked by outbox.Unavailable, and wraps jetstream.ErrStreamNotFound if there is no stream.
func (b *Bus) ensureConsumer(ctx context.Context, js jetstream.JetStream, attempts int) (jetstream.Consumer, error) {
	c, err := b.consumer(ctx, js)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = b.createConsumer(ctx, js, attempts)
	}
	if err != nil {
		return nil, outbox.Unavailable(fmt.Errorf("look at consumer %s of stream %s: %w", b.cfg.Service, b.cfg.Stream, err))
	}
	live := c.CachedInfo().Config
	if err := b.usable(live); err != nil {
		return nil, outbox.Unavailable(err)
	}
	create := apiConsumerCreate + b.cfg.Stream + "." + b.cfg.Service
	if live.FilterSubject != "" {
		create += "." + live.FilterSubject
	}
	differences := []difference{{"max_deliver", "--max-deliver", live.MaxDeliver, attempts}}
	if len(live.BackOff) == 0 { // which takes the place of ack_wait
		differences = append(differences, difference{"ack_wait", "--wait", live.AckWait, b.cfg.AckWait})
	} else if b.told.First(fmt.Sprint("backoff ", live.BackOff)) {
		b.cfg.Logger.WarnContext(ctx, "the NATS consumer has a backoff, which takes the place of ack_wait: what takes longer comes again and spends a delivery",
			attrs("stream", b.cfg.Stream, "consumer", b.cfg.Service, "backoff", fmt.Sprint(live.BackOff), "needed", "none")...)
	}
	changed, err := b.update(ctx, js, object{
		kind: "consumer", name: b.cfg.Service, info: apiConsumerInfo + b.cfg.Stream + "." + b.cfg.Service, update: create,
		edit: "nats consumer edit " + b.cfg.Stream + " " + b.cfg.Service,
		body: func(config any) any {
			return map[string]any{"stream_name": b.cfg.Stream, "config": config, "action": "update"}
		},
	}, differences)
	if changed && err == nil {
		c, err = b.consumer(ctx, js)
	}
	if err != nil {
		return nil, outbox.Unavailable(fmt.Errorf("look at consumer %s of stream %s: %w", b.cfg.Service, b.cfg.Stream, err))
	}
	return c, nil
}

func (b *Bus) consumer(ctx context.Context, js jetstream.JetStream) (c jetstream.Consumer, err error) {
	err = b.denied.asking(ctx, apiConsumerInfo+b.cfg.Stream+"."+b.cfg.Service, func(ctx context.Context) error {
		c, err = js.Consumer(ctx, b.cfg.Stream, b.cfg.Service)
		return err
	})
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, b.unusable("deliver_subject", "set", "empty: a pull consumer")
	}
	return c, err
}

func (b *Bus) createConsumer(ctx context.Context, js jetstream.JetStream, attempts int) (c jetstream.Consumer, err error) {
	subject := apiConsumerCreate + b.cfg.Stream + "." + b.cfg.Service + "." + b.subjects()
	err = b.denied.asking(ctx, subject, func(ctx context.Context) error {
		c, err = js.CreateConsumer(ctx, b.cfg.Stream, jetstream.ConsumerConfig{
			Durable: b.cfg.Service, Description: "Loam of service " + b.cfg.Service, FilterSubject: b.subjects(),
			DeliverPolicy: jetstream.DeliverAllPolicy, // made anew, it brings again what is known, and misses nothing
			AckPolicy:     jetstream.AckExplicitPolicy, AckWait: b.cfg.AckWait, MaxDeliver: attempts, MaxAckPending: maxAckPending,
		})
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerExists) { // another process was faster, with another number of attempts
		return b.consumer(ctx, js)
	}
	return c, err
}

// usable says what of a consumer that somebody else made keeps Loam from working, by field.
func (b *Bus) usable(c jetstream.ConsumerConfig) error {
	filters := c.FilterSubjects
	if c.FilterSubject != "" {
		filters = []string{c.FilterSubject}
	}
	switch {
	case c.AckPolicy != jetstream.AckExplicitPolicy:
		return b.unusable("ack_policy", c.AckPolicy, "explicit")
	case len(filters) > 0 && !covered(filters, b.subjects()):
		return b.unusable("filter_subject", strings.Join(filters, ", "), b.subjects())
	case c.HeadersOnly:
		return b.unusable("headers_only", c.HeadersOnly, "false")
	case c.PriorityPolicy != jetstream.PriorityPolicyNone:
		return b.unusable("priority_policy", c.PriorityPolicy, "none")
	}
	return nil
}

func (b *Bus) unusable(field string, is any, allowed string) error {
	if policy, ok := is.(json.Marshaler); ok { // which has the words of the API
		if text, err := policy.MarshalJSON(); err == nil {
			is = strings.Trim(string(text), `"`)
		}
	}
	return fmt.Errorf("consumer %s of stream %s cannot be used: its %s is %v, must be %s; remove it and it is made anew, which loses nothing and brings again what is known: nats consumer rm %s %s",
		b.cfg.Service, b.cfg.Stream, field, is, allowed, b.cfg.Stream, b.cfg.Service)
}

// covered reports whether one of the patterns matches all that subject, which may be a pattern too, matches.
func covered(patterns []string, subject string) bool {
	for _, p := range patterns {
		if covers(strings.Split(p, "."), strings.Split(subject, ".")) {
			return true
		}
	}
	return false
}

func covers(pattern, subject []string) bool {
	for i, word := range pattern {
		switch {
		case i >= len(subject):
			return false
		case word == ">":
			return true
		case subject[i] == ">", word != "*" && word != subject[i]:
			return false
		}
	}
	return len(pattern) == len(subject)
}
