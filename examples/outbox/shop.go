package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

// locked is written to by handlers, too.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// subscribers are the shop's durable ones.
func subscribers(out io.Writer) *durable.Registry {
	reg := durable.NewRegistry()
	reg.RegisterFunc("mailer.receipt", "shop.order.placed", func(_ context.Context, e events.Event) error {
		fmt.Fprintf(out, "  mailer.receipt got order %v\n", e.Payload["order"])
		return nil
	})
	return reg
}

type order struct {
	id    string
	cents int64
}

var errNoMoney = errors.New("an order must cost something")

// shop is the application: a table of orders.
type shop struct {
	engine *loam.Engine
	out    io.Writer
}

func (s *shop) open(ctx context.Context) error {
	return s.engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)`)
		return err
	})
}

// place writes an order with its event. One that is refused leaves neither.
func (s *shop) place(ctx context.Context, o order) error {
	err := s.engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, cents) VALUES ($1, $2)`, o.id, o.cents); err != nil {
			return err
		}
		if err := s.engine.PublishTx(ctx, tx, "shop.order.placed", events.Payload{"order": o.id, "cents": o.cents}); err != nil {
			return err
		}
		if o.cents <= 0 { // that late, to show that the event goes with the order
			return errNoMoney
		}
		return nil
	})
	switch {
	case errors.Is(err, errNoMoney):
		fmt.Fprintf(s.out, "  order %s was rolled back: %v\n", o.id, err)
		return nil
	case err == nil:
		fmt.Fprintf(s.out, "  order %s was committed\n", o.id)
	}
	return err
}

// foreign writes what another program could, which does not know what an event must be.
func (s *shop) foreign(ctx context.Context, attempts int) error {
	fmt.Fprintf(s.out, "Another program writes a row that is no event. A row may fail %d times; one that never can be read is final at once.\n", attempts)
	return s.engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO event_queue (tenant_id, event_type, payload) VALUES ('acme', 'shop.order.placed', 'A-4')`)
		return err
	})
}

var states = []outbox.Status{outbox.Pending, outbox.Processing, outbox.Done, outbox.DeadLettered}

// show prints what is in event_queue, and how many deliveries there are.
func (s *shop) show(ctx context.Context) error {
	for _, status := range states {
		rows, err := s.engine.OutboxEntries(ctx, outbox.Query{Status: status})
		if err != nil {
			return err
		}
		for _, e := range rows {
			why := ""
			if e.LastError != "" {
				why = " (" + e.LastError + ")"
			}
			fmt.Fprintf(s.out, "event_queue row %d: %s is %s%s\n", e.ID, e.EventType, e.Status, why)
		}
	}
	deliveries, err := s.engine.Deliveries(ctx, durable.Query{})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "deliveries: %d\n", len(deliveries))
	return nil
}

// settle waits until the queue is empty, and then until its deliveries are over.
func (s *shop) settle(ctx context.Context) error {
	for {
		queued, err := s.engine.OutboxEntries(ctx, outbox.Query{Status: outbox.Pending})
		if err != nil {
			return err
		}
		pending, err := s.engine.Deliveries(ctx, durable.Query{Status: durable.Pending})
		if err != nil {
			return err
		}
		if len(queued)+len(pending) == 0 {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
