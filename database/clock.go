package database

import (
	"context"
	"fmt"
	"time"
)

// Clock returns the database's time, to the millisecond.
func (db *DB) Clock(ctx context.Context) (time.Time, error) {
	if db.dialect == PostgreSQL {
		var t time.Time
		err := db.own.QueryRowContext(ctx, `SELECT clock_timestamp()`).Scan(&t)
		return t.UTC().Truncate(time.Millisecond), Explain(err)
	}
	var text string
	if err := db.own.QueryRowContext(ctx, `SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')`).Scan(&text); err != nil {
		return time.Time{}, Explain(err)
	}
	t, err := time.Parse("2006-01-02 15:04:05.000", text)
	if err != nil {
		return time.Time{}, fmt.Errorf("database: its clock says %q: %w", text, err)
	}
	return t, nil
}
