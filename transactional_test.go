package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-17, D-06, E-15, E-16, J-01. A transactional handler under a running engine: what it writes is there with its delivery, and so
// is what it publishes with its transaction, once, although its first run fails. Publish, which would open a second
// transaction, is refused.
func TestTransactionalHandler(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		rig.Exec(t, db, `CREATE TABLE booked (event TEXT NOT NULL)`)
		reg := durable.NewRegistry()
		var engine *loam.Engine
		runs := 0
		reg.RegisterTx("books", "shop.order.paid", func(ctx context.Context, tx *sql.Tx, e events.Event) error {
			if err := engine.Publish(ctx, "shop.order.booked", nil); !errors.Is(err, events.ErrInTransaction) {
				t.Errorf("Publish: %v", err)
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO booked VALUES ($1)`, e.ID); err != nil {
				return err
			}
			if err := engine.PublishTx(ctx, tx, "shop.order.booked", nil); err != nil {
				return err
			}
			if runs++; runs == 1 {
				return errors.New("not yet")
			}
			return nil
		}, durable.WithBackoff(0))
		reg.RegisterFunc("mail", "shop.order.booked", succeed)
		engine = startEngine(t, db, reg)
		if err := engine.Publish(inTenant(t), "shop.order.paid", nil); err != nil {
			t.Fatal(err)
		}
		until(t, 60*time.Second, "both delivered", func() bool { return count(t, db, `status = 'delivered'`) == 2 })
		if n := rig.Dump(t, db, `SELECT count(*) FROM booked`); n != "1" || count(t, db, `true`) != 2 {
			t.Errorf("booked %s times, %d deliveries", n, count(t, db, `true`))
		}
	})
}

// contract: D-17, L-08. On SQLite a transactional handler may not run for longer than claims wait for their renewal, nor than a publish
// waits for its turn: Start says which, what is allowed, and by what.
func TestTransactionalLimitAtStart(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const s = time.Second
		for what, c := range map[string]struct {
			renew, handler, own time.Duration
			want                []string // in the error, on SQLite
		}{
			"the defaults":                  {},
			"as long as a write waits":      {own: 10 * s},
			"longer":                        {own: 10*s + 1, want: []string{"10.000000001s", "at most 10s", "how long a write waits"}},
			"as long as RenewEvery":         {renew: 3 * s, own: 3 * s},
			"longer than it":                {renew: 3 * s, own: 3*s + 1, want: []string{"3.000000001s", "at most 3s", "RenewEvery"}},
			"the default is longer than it": {renew: 3 * s, want: []string{"5s", "at most 3s", "RenewEvery"}},
			"the engine's is shorter":       {renew: 3 * s, handler: 2 * s},
			"without renewals":              {renew: -1, own: 10 * s},
			"longer without renewals":       {renew: -1, own: 11 * s, want: []string{"11s", "at most 10s"}},
		} {
			reg := durable.NewRegistry()
			var opts []durable.Option
			if c.own > 0 {
				opts = append(opts, durable.WithTimeout(c.own))
			}
			reg.RegisterFunc("plain", "shop.", succeed, durable.WithTimeout(30*s))
			reg.RegisterTx("books", "shop.", func(context.Context, *sql.Tx, events.Event) error { return nil }, opts...)
			engine := newEngine(t, db, reg, func(cfg *loam.Config) { cfg.RenewEvery, cfg.HandlerTimeout = c.renew, c.handler })
			err := engine.Start(t.Context())
			stopEngine(t, engine)
			if len(c.want) == 0 || db.Dialect() == database.PostgreSQL {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				continue
			}
			for _, part := range append(c.want, "loam: Start: ", `"books"`, "WithTimeout") {
				if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "plain") {
					t.Errorf("%s: %v, want %q in it", what, err, part)
				}
			}
		}
	})
}
