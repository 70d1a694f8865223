package database

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Notices calls f once when it listens to a channel of PostgreSQL's NOTIFY, and then for each notice, until ctx ends or the
// connection breaks; f must not wait. What was sent while nobody listened is not heard, hence the first call. It holds a
// connection of its own. On SQLite there are no notices.
func (db *DB) Notices(ctx context.Context, channel string, f func()) error {
	if db.listen == nil {
		return errors.New("database: there are no notices on " + string(db.dialect))
	}
	pooled, err := db.listen.Acquire(ctx)
	if err != nil {
		return Explain(err)
	}
	conn := pooled.Hijack()                      // it listens to the end, and no other shall have it then
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it may be broken
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return Explain(err)
	}
	for {
		f()
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return Explain(fmt.Errorf("wait for notices: %w", err))
		}
	}
}
