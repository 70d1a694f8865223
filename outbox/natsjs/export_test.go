package natsjs

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

// Short makes a bus wait for less: an acknowledgement, an answer of the API, and between two tries to connect. 0 leaves a limit.
func (b *Bus) Short(ack, api, reconnect time.Duration) {
	set := func(to *time.Duration, d time.Duration) {
		if d != 0 {
			*to = d
		}
	}
	set(&b.times.ack, ack)
	set(&b.times.api, api)
	set(&b.times.reconnect, reconnect)
}

// AckWait sets how long the broker waits for the consumer.
func (b *Bus) AckWait(d time.Duration) { b.cfg.AckWait = d }

// Connection is the connection if there is one.
func (b *Bus) Connection() *nats.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nc
}

// Ensure looks at the stream and the consumer as Consume does.
func (b *Bus) Ensure(ctx context.Context, attempts int) (jetstream.Consumer, error) {
	_, js, err := b.conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := b.ensureStream(ctx, js); err != nil {
		return nil, err
	}
	return b.ensureConsumer(ctx, js, attempts)
}

// What is not exported.
func Encode(e events.Event, source string, at time.Time, subject string) *nats.Msg {
	return encode(e, source, at, subject)
}

func Decode(h nats.Header, data []byte) (events.Event, outbox.Letter, error) { return decode(h, data) }

var (
	Escape   = escape
	Unescape = unescape
	Covered  = covered
)
