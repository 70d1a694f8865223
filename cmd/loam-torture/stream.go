package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

const (
	// service is the application's name at the broker.
	service = "torture"
	// ackWait is how long the broker waits for a consumer that has died.
	ackWait = lease
	// brokerAsked is how long it may take to answer the parent.
	brokerAsked = 5 * time.Second
)

// newBus is a child's.
func (c *child) newBus() (*natsjs.Bus, error) {
	return natsjs.New(natsjs.Config{URL: c.Bus, Service: service, AckWait: ackWait, Now: c.now, Logger: c.logger()})
}

// ask asks the broker something, on a connection for that alone.
func (b *broker) ask(ctx context.Context, question func(ctx context.Context, js jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(ctx, brokerAsked)
	defer cancel()
	nc, err := nats.Connect(b.url(), nats.Timeout(time.Second), nats.NoReconnect())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return question(ctx, js)
}

// waiting is how many messages the application has not received or not answered.
func (b *broker) waiting(ctx context.Context) (n int, err error) {
	err = b.ask(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		c, err := js.Consumer(ctx, natsjs.DefaultStream, service)
		if err == nil {
			n = int(c.CachedInfo().NumPending) + c.CachedInfo().NumAckPending //nolint:gosec // a count
		}
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 1, nil // a worker makes them
	}
	return n, err
}

// ageClaims makes the claims of relays that were killed as old as it takes until others may take them over. Time alone would do
// that, but outbox.Lease is ten minutes. All processes have ended: what is still claimed is nobody's, and nothing of it
// can be sent or marked any more.
func (a *arena) ageClaims(ctx context.Context) error {
	var ids []string
	err := a.db.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
		ids = nil
		rows, err := tx.QueryContext(ctx, `UPDATE event_queue SET claimed_at = $1 WHERE status = 'processing' RETURNING event_id`,
			database.At(time.Now().Add(-outbox.Lease)))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return rows.Err()
	})
	for _, id := range ids {
		a.diary.add("aged", id)
	}
	return err
}

// noteStream notes what the stream has, as evidence.
func (a *arena) noteStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	nc, err := nats.Connect(a.broker.url())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	mine, err := js.Consumer(ctx, natsjs.DefaultStream, service)
	if err != nil {
		return err
	}
	a.diary.add("broker", mine.CachedInfo().Delivered.Consumer)
	reader, err := js.OrderedConsumer(ctx, natsjs.DefaultStream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return err
	}
	for left := reader.CachedInfo().NumPending; left > 0; {
		batch, err := reader.Fetch(int(min(left, 1000)))
		if err != nil {
			return err
		}
		for msg := range batch.Messages() {
			meta, err := msg.Metadata()
			if err != nil {
				return err
			}
			left--
			a.diary.addAt("message", meta.Timestamp.UnixNano(), msg.Headers().Get("ce-id"))
		}
		if err := errors.Join(batch.Error(), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// judgeStream checks that the stream has what was sent, once: every event that is done in the queue, and no other. The broker knows an
// event again for an hour, much longer than it takes until a relay that was killed has a successor.
func (ev *evidence) judgeStream(st *state, v *verdict) {
	if !ev.broker {
		return
	}
	for id, e := range st.queue {
		if e.status == "done" && len(ev.stream[id]) == 0 {
			v.wrong("event %s in event_queue (%d) is done, and the stream does not have it", id, e.id)
		}
	}
	for id, stored := range ev.stream {
		v.messages += len(stored)
		if _, ok := st.queue[id]; !ok {
			v.wrong("the stream has event %s, and it is not in event_queue", id)
		}
		if len(stored) > 1 {
			v.wrong("the stream has event %s %d times", id, len(stored))
		}
		if aged := ev.aged[id]; stored[0] < aged {
			v.unmarked++
		}
	}
	v.streamed, v.handedOut, v.orphaned = true, ev.handedOut, len(ev.aged)
}

// streamLine is the reader of the parent's lines about the stream.
func (ev *evidence) streamLine(letter string, at int64, words []string) error {
	if len(words) < 1 {
		return errMalformed
	}
	id, err := uuid.Parse(words[0])
	if err != nil {
		return err
	}
	if letter == "aged" {
		ev.aged[id] = at
	} else {
		ev.stream[id] = append(ev.stream[id], at)
	}
	return nil
}
