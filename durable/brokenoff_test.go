package durable_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

var errBrokenOff = errors.New("the connection broke in the middle of a result")

// breaker lets the result of one query break off after some rows, or makes its first row unreadable.
type breaker struct {
	nth, rows  int // of the query, 0 for none; how many rows come
	unreadable bool
	seen       int
	hit        bool
}

func (b *breaker) arm(nth, rows int, unreadable bool) {
	b.nth, b.rows, b.unreadable, b.seen, b.hit = nth, rows, unreadable, 0, false
}

// breakable is the connector of a pool.
type breakable struct {
	driver.Connector
	b *breaker
}

// Connect implements driver.Connector.
func (bc breakable) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := bc.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &breakerConn{c.(plainConn), bc.b}, nil
}

type plainConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
}

type breakerConn struct {
	plainConn
	b *breaker
}

func (c *breakerConn) Unwrap() any { return c.plainConn }

// CheckNamedValue implements driver.NamedValueChecker.
func (c *breakerConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.plainConn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// QueryContext implements driver.QueryerContext.
func (c *breakerConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.plainConn.QueryContext(ctx, q, args)
	if c.b.seen++; err != nil || c.b.seen != c.b.nth {
		return rows, err
	}
	return &brokenRows{Rows: rows, b: c.b}, nil
}

type brokenRows struct {
	driver.Rows
	b *breaker
	n int
}

// Next implements driver.Rows.
func (r *brokenRows) Next(dest []driver.Value) error {
	if !r.b.unreadable && r.n == r.b.rows {
		r.b.hit = true
		return errBrokenOff
	}
	err := r.Rows.Next(dest)
	if r.n++; err == nil && r.b.unreadable && r.n == 1 {
		r.b.hit = true
		for i := range dest {
			dest[i] = struct{}{}
		}
	}
	return err
}

// brokenBeside opens r's database again behind a breaker, as a process with r's registry.
func brokenBeside(t *testing.T, r *rig.Rig) (*rig.Rig, *breaker) {
	t.Helper()
	b := &breaker{}
	wrap := func(c driver.Connector) driver.Connector { return breakable{c, b} }
	p := dbtest.PlaceOf(t, r.DB)
	var db *database.DB
	var err error
	if p.Dialect == database.PostgreSQL {
		db, err = postgres.OpenConfig(t.Context(), postgres.Config{URL: p.At, Wrap: wrap})
	} else {
		db, err = sqlite.OpenConfig(t.Context(), sqlite.Config{Path: p.At, Wrap: wrap})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return rig.Over(t, db, r.Clock, knows(r)), b
}

// A result that breaks off, or has a row that cannot be read, is an error, and never a shorter answer: of the subscribers, a
// capture would miss some; of the due rows, a sweep would take the rest for done. Nothing stays half written, and the same
// call made again gives what it would have given.
//
// contract: D-07, D-12, S-05
func TestAResultThatBreaksOff(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, fine)
		r.Registry.RegisterFunc("audit", paid, fine)
		announce(t, r)
		e := r.Publish("acme", paid, nil, events.WithID("0198a000-0000-7000-8000-000000000001"))
		r.Publish("acme", paid, nil)
		rows := r.Rows("acme")
		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'dead', last_error = 'no' WHERE id IN ($1, $2)`, rows[2].ID, rows[3].ID)
		p, b := brokenBeside(t, r)
		ctx, d, now := r.Ctx("acme"), p.Deliveries, r.Clock.Now()
		claims := []ledger.Claim{{Key: ledger.Key{Tenant: "acme", EventID: e.ID, Handler: "mailer"}}}
		calls := map[string]func() (any, error){
			"Capture":  func() (any, error) { return nil, d.Capture(ctx, e) },
			"Announce": func() (any, error) { return nil, d.Announce(ctx, false) },
			"Explain":  func() (any, error) { return d.Explain(ctx, paid) },
			"Inspect": func() (any, error) {
				in, err := d.Inspect(ctx, rows[0].ID)
				return []any{in.EventDelivery, in.LastSeen, in.Alive, in.Paused}, err
			},
			"Due": func() (any, error) {
				refs, next, err := d.Due(ctx, now, durable.Cursor{}, 10)
				return []any{refs, next}, err
			},
			"Claimed":        func() (any, error) { return d.Claimed(ctx, now, claims) },
			"TenantsPending": func() (any, error) { return d.TenantsPending(ctx, "", 10) },
			"List":           func() (any, error) { return d.List(ctx, durable.Query{}) },
			"Get":            func() (any, error) { return d.Get(ctx, rows[0].ID) },
			"Counts":         func() (any, error) { return d.Counts(ctx) },
			"Backlog": func() (any, error) {
				n, since, err := d.Backlog(ctx, now)
				return []any{n, since}, err
			},
			"Page": func() (any, error) {
				return d.Page(ctx, durable.PageQuery{Status: durable.Dead, Before: durable.Place{At: database.At(now), ID: "z"}})
			},
			"Sweep": func() (any, error) { return p.Sweeper.RedeliverStuck(ctx, now, 0) },
		}
		before := allRows(t, db)
		for name, call := range calls {
			b.arm(0, 0, false)
			want, err := call()
			if err != nil || b.seen == 0 {
				t.Errorf("%s: %d queries, %v", name, b.seen, err)
			}
			for nth, queries := 1, b.seen; nth <= queries; nth++ {
				for _, how := range []struct {
					rows       int
					unreadable bool
				}{{0, false}, {1, false}, {0, true}} {
					b.arm(nth, how.rows, how.unreadable)
					if _, err := call(); b.hit && (err == nil || !how.unreadable && !errors.Is(err, errBrokenOff)) {
						t.Errorf("%s, query %d, %+v: the error is %v", name, nth, how, err)
					}
					b.arm(0, 0, false)
					if got, err := call(); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%s, query %d, %+v: then %v, want %v; %v", name, nth, how, got, want, err)
					}
				}
			}
		}
		if after := allRows(t, db); after != before {
			t.Errorf("something was changed:\n%s\n%s", before, after)
		}
	})
}
