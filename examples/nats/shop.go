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
	"github.com/openloam/loam/tenant"
)

// shop is the service that publishes. It has no durable subscribers.
type shop struct {
	engine *loam.Engine
	out    io.Writer
	done   func() error
}

func openShop(ctx context.Context, out io.Writer, dir, url string) (*shop, error) {
	engine, done, err := open(ctx, "shop", dir, url, durable.NewRegistry())
	if err != nil {
		return nil, err
	}
	s := &shop{engine, out, done}
	err = engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE orders (id TEXT PRIMARY KEY)`)
		return err
	})
	if err == nil {
		err = engine.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// place commits an order and its event.
func (s *shop) place(ctx context.Context, id string) error {
	err := s.engine.InTx(tenant.With(ctx, "acme"), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, id); err != nil {
			return err
		}
		return s.engine.PublishTx(ctx, tx, "shop.order.placed", events.Payload{"order_id": id})
	})
	if err == nil {
		fmt.Fprintf(s.out, "shop: order %s is committed\n", id)
	}
	return err
}

// sent waits until the relay has sent what was committed.
func (s *shop) sent(ctx context.Context) error {
	for {
		waiting := 0
		for _, status := range []outbox.Status{outbox.Pending, outbox.Processing} {
			rows, err := s.engine.OutboxEntries(ctx, outbox.Query{Status: status})
			if err != nil {
				return err
			}
			waiting += len(rows)
		}
		if waiting == 0 {
			return nil
		}
		if err := moment(ctx); err != nil {
			return err
		}
	}
}

// moment waits for one.
func moment(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return nil
	}
}

func (s *shop) close(ctx context.Context) error { return errors.Join(s.engine.Stop(ctx), s.done()) }

// locked is a writer for several goroutines.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
