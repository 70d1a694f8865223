package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
)

// bank is two accounts, and the handlers that act on them.
type bank struct {
	db     *database.DB
	engine *loam.Engine
	runs   atomic.Int64 // of post
	warned atomic.Int64
	mu     sync.Mutex
	failed map[string]bool // by event
}

// open makes the accounts.
func (b *bank) open(ctx context.Context) error {
	return b.engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE accounts (name TEXT PRIMARY KEY, cents BIGINT NOT NULL);
			INSERT INTO accounts VALUES ('alice', 100), ('bob', 0)`)
		return err
	})
}

// post moves the money. All it writes through tx, the event that it publishes with tx, and the delivery's own state are
// committed together when it returns nil, and else none of it.
func (b *bank) post(ctx context.Context, tx *sql.Tx, e events.Event) error {
	b.runs.Add(1)
	cents := e.Payload["cents"].(int64)
	before, after, err := add(ctx, tx, e.Payload["from"], -cents)
	if err != nil {
		return err
	}
	if before >= 0 && after < 0 {
		if err := b.engine.PublishTx(ctx, tx, "bank.account.overdrawn", events.Payload{"account": e.Payload["from"]}); err != nil {
			return err
		}
	}
	if cents%3 == 0 && b.firstTime(e.ID) {
		return errors.New("a fault, between the two accounts") // the first one has its money back
	}
	_, _, err = add(ctx, tx, e.Payload["to"], cents)
	return err
}

func add(ctx context.Context, tx *sql.Tx, account any, cents int64) (before, after int64, err error) {
	err = tx.QueryRowContext(ctx, `UPDATE accounts SET cents = cents + $1 WHERE name = $2 RETURNING cents`, cents, account).Scan(&after)
	return after - cents, after, err
}

func (b *bank) firstTime(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.failed[id]
	b.failed[id] = true
	return first
}

// warn is an ordinary handler: its effect is outside the database, and at least once.
func (b *bank) warn(context.Context, events.Event) error {
	b.warned.Add(1)
	return nil
}

func (b *bank) print(ctx context.Context, w io.Writer) error {
	var alice, bob int64
	err := b.db.Read().QueryRowContext(ctx, `SELECT (SELECT cents FROM accounts WHERE name = 'alice'), (SELECT cents FROM accounts WHERE name = 'bob')`).
		Scan(&alice, &bob)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "alice has %d cents, bob has %d; the handler ran %d times, warnings: %d\n", alice, bob, b.runs.Load(), b.warned.Load())
	return err
}
