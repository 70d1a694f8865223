package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

const orderPaid = "shop.order.paid"

// schema is the application's own: its orders, and what the handlers do.
const schema = `
	CREATE TABLE IF NOT EXISTS shop_orders (run text, number int, PRIMARY KEY (run, number));
	CREATE TABLE IF NOT EXISTS shop_receipts (run text, number int, sent_by text NOT NULL, PRIMARY KEY (run, number));`

// again is how long to wait when the database cannot be reached, and between two looks at what is delivered.
const again = 200 * time.Millisecond

// shop is the application in one process.
type shop struct {
	options
	db        *database.DB
	engine    *loam.Engine
	delivered atomic.Int64
	mu        sync.Mutex // of out
	out       io.Writer
}

func (s *shop) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%-10s %s\n", s.name, fmt.Sprintf(format, args...))
}

func (s *shop) migrate(ctx context.Context) error {
	if err := s.engine.Migrate(ctx); err != nil {
		return err
	}
	if _, err := s.db.Write().ExecContext(ctx, schema); err != nil {
		return err
	}
	return s.engine.AddTenant(ctx, shopTenant)
}

// sendReceipt is the durable subscriber. It may run again for an order that it has done, and then changes nothing.
func (s *shop) sendReceipt(ctx context.Context, e events.Event) error {
	if err := pause(ctx, s.effort); err != nil {
		return err
	}
	err := s.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO shop_receipts (run, number, sent_by) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			e.Payload["run"], e.Payload["number"], s.name)
		return err
	})
	if err != nil {
		return err
	}
	s.delivered.Add(1)
	if !s.once {
		s.say("order %v of run %v", e.Payload["number"], e.Payload["run"])
	}
	return nil
}

// publish pays one order after the other, with -once as many as a run has.
func (s *shop) publish(ctx context.Context) error {
	for n := 1; !s.once || n <= s.orders; n++ {
		if err := s.untilThere(ctx, func() error { return s.pay(ctx, n) }); err != nil {
			return err
		}
		if err := pause(ctx, s.every); err != nil {
			return err
		}
	}
	s.say("has published %d", s.orders)
	return nil
}

// pay writes an order and publishes its event in one transaction. The answer of a commit can be lost: an order that is there
// has its event, and is not paid again.
func (s *shop) pay(ctx context.Context, n int) error {
	return s.engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO shop_orders (run, number) VALUES ($1, $2) ON CONFLICT DO NOTHING`, s.run, n)
		if err != nil {
			return err
		}
		if added, err := res.RowsAffected(); err != nil || added == 0 {
			return err
		}
		return s.engine.PublishTx(ctx, tx, orderPaid, events.Payload{"run": s.run, "number": n})
	})
}

// settle waits until every order of the run is delivered.
func (s *shop) settle(ctx context.Context) error {
	for {
		var sent int
		var pending []durable.EventDelivery
		err := s.untilThere(ctx, func() (err error) {
			if err = s.db.Read().QueryRowContext(ctx, `SELECT count(*) FROM shop_receipts WHERE run = $1`, s.run).Scan(&sent); err != nil {
				return database.Explain(err)
			}
			pending, err = s.engine.Deliveries(ctx, durable.Query{Status: durable.Pending, Limit: 1})
			return err
		})
		if err != nil || sent >= s.orders && len(pending) == 0 {
			return err
		}
		if err := pause(ctx, again); err != nil {
			return err
		}
	}
}

// untilThere repeats f while the database cannot be reached.
func (s *shop) untilThere(ctx context.Context, f func() error) error {
	for said := false; ; said = true {
		err := f()
		if err == nil || ctx.Err() != nil || !database.Unavailable(err) {
			return err
		}
		if !said {
			s.say("waits: %v", err)
		}
		if err := pause(ctx, again); err != nil {
			return err
		}
	}
}

// report says which process delivered how many.
func (s *shop) report(ctx context.Context) error {
	rows, err := s.db.Read().QueryContext(ctx, `SELECT sent_by, count(*) FROM shop_receipts WHERE run = $1 GROUP BY sent_by ORDER BY sent_by`, s.run)
	if err != nil {
		return database.Explain(err)
	}
	defer rows.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	tw := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nPROCESS\tDELIVERED")
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			return err
		}
		fmt.Fprintf(tw, "%s\t%d\n", name, n)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return tw.Flush()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
