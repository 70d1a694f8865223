package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/openloam/loam/durable"
)

// The books are what the transactional subscriber keeps: a balance for each tenant, to which it adds the amount of each event
// once, to the unit, however often it was begun; and a list of the events, which says which one is wrong.

// amount of an event.
func amount(id uuid.UUID) int64 { return int64(draw(1_000_000, id.String(), "amount")) - 300_000 } //nolint:gosec // below a million

func openBooks(ctx context.Context, tx *sql.Tx) error {
	for _, t := range tenants {
		if _, err := tx.ExecContext(ctx, `INSERT INTO torture_balances (tenant, amount) VALUES ($1, 0)`, t); err != nil {
			return err
		}
	}
	return nil
}

// post enters an event in the books, by the handler's transaction.
func post(ctx context.Context, tx *sql.Tx, tenant string, id uuid.UUID) error {
	if _, err := tx.ExecContext(ctx, `UPDATE torture_balances SET amount = amount + $1 WHERE tenant = $2`, amount(id), tenant); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO torture_booked (id) VALUES ($1)`, id.String())
	return err
}

// books are what is in them at the end.
type books struct {
	balances map[string]int64
	booked   map[uuid.UUID]int
}

func (a *arena) readBooks(ctx context.Context) (books, error) {
	b := books{balances: map[string]int64{}, booked: map[uuid.UUID]int{}}
	balances, err := a.db.Read().QueryContext(ctx, `SELECT tenant, amount FROM torture_balances`)
	if err != nil {
		return b, err
	}
	defer balances.Close()
	for balances.Next() {
		var tenant string
		var n int64
		if err := balances.Scan(&tenant, &n); err != nil {
			return b, err
		}
		b.balances[tenant] = n
	}
	if err := balances.Err(); err != nil {
		return b, err
	}
	booked, err := a.db.Read().QueryContext(ctx, `SELECT id, count(*) FROM torture_booked GROUP BY id`)
	if err != nil {
		return b, err
	}
	defer booked.Close()
	for booked.Next() {
		var id uuid.UUID
		var n int
		if err := booked.Scan(&id, &n); err != nil {
			return b, err
		}
		b.booked[id] = n
	}
	return b, booked.Err()
}

// judge compares the books with the deliveries: posted are the events whose delivery to the transactional subscriber is
// delivered.
func (b books) judge(posted map[uuid.UUID]bool, v *verdict) {
	want := map[string]int64{}
	for id := range posted {
		want[plan(id).tenant] += amount(id)
		if b.booked[id] != 1 {
			v.wrong("event %s is delivered to the books, and is in them %d times", id, b.booked[id])
		}
	}
	for id, n := range b.booked {
		if !posted[id] {
			v.wrong("event %s is not delivered to the books, and is in them %d times", id, n)
		}
	}
	for _, t := range tenants {
		if b.balances[t] != want[t] {
			v.wrong("the balance of %s is %d, and should be %d", t, b.balances[t], want[t])
		}
	}
	v.posted = len(posted)
}

// failures reads a row's history: how many failed runs it has, and how many of them missed a deadline.
func failures(history string) (n, timeouts int, err error) {
	var all []durable.Failure
	if err := json.Unmarshal([]byte(history), &all); err != nil {
		return 0, 0, err
	}
	for _, f := range all {
		if strings.Contains(f.Error, durable.ErrTimeout.Error()) {
			timeouts++
		}
	}
	return len(all), timeouts, nil
}
