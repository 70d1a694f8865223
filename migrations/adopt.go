package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openloam/loam/database"
)

// ErrNotAQueue is returned by Migrate for a table event_queue that is not an event queue. Nothing was changed.
var ErrNotAQueue = errors.New("the table event_queue is not an event queue that Loam could adopt; rename it, or keep Loam in another schema or file")

// outboxVersion is the migration that makes event_queue.
const outboxVersion = 3

// What an older event_queue has, and what it may have beside that. Anything else would be lost with the old table.
var (
	oldNeeds = []string{"id", "event_type", "payload", "status", "attempts", "created_at"}
	oldMay   = []string{"next_attempt_at", "last_error", "event_id", "claimed_at", "tenant_id"}
)

// adopt makes event_queue by create. Rows of an older table of that name come along: with their ids, and with a random event
// id where they have none, so that a repeat of theirs is known.
func (m *migrator) adopt(ctx context.Context, tx *sql.Tx, create func() error) error {
	columns, err := m.oldColumns(ctx, tx)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return create()
	}
	if err := m.checkOld(ctx, tx, columns); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `ALTER TABLE event_queue RENAME TO event_queue_old`); err != nil {
		return err
	}
	if err := create(); err != nil {
		return err
	}
	if err := m.copyOld(ctx, tx, columns); err != nil {
		return fmt.Errorf("adopt the rows of the older event_queue: %w", err)
	}
	_, err = tx.ExecContext(ctx, `DROP TABLE event_queue_old`)
	return err
}

// oldColumns are the columns of a table event_queue; none if there is no such table.
func (m *migrator) oldColumns(ctx context.Context, tx *sql.Tx) ([]string, error) {
	query := `SELECT name FROM pragma_table_info('event_queue')`
	if m.db.Dialect() == database.PostgreSQL {
		query = `SELECT attname FROM pg_attribute WHERE attrelid = to_regclass('event_queue') AND attnum > 0 AND NOT attisdropped`
	}
	return texts(ctx, tx, query)
}

// checkOld refuses what is not an event queue, or has something that would be lost.
func (m *migrator) checkOld(ctx context.Context, tx *sql.Tx, columns []string) error {
	for _, c := range oldNeeds {
		if !slices.Contains(columns, c) {
			return fmt.Errorf("%w: it has no column %s", ErrNotAQueue, c)
		}
	}
	for _, c := range columns {
		if !slices.Contains(oldNeeds, c) && !slices.Contains(oldMay, c) {
			return fmt.Errorf("%w: its column %q is not one of %s", ErrNotAQueue, c, strings.Join(slices.Concat(oldNeeds, oldMay), ", "))
		}
	}
	kind := `SELECT DISTINCT typeof(id) FROM event_queue WHERE typeof(id) <> 'integer'
		UNION SELECT type FROM sqlite_schema WHERE name = 'event_queue' AND type <> 'table'`
	if m.db.Dialect() == database.PostgreSQL {
		kind = `SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass('event_queue') AND attname = 'id'
			AND atttypid NOT IN (CAST('bigint' AS regtype), CAST('integer' AS regtype), CAST('smallint' AS regtype))
			UNION SELECT 'of another kind than a table' FROM pg_class WHERE oid = to_regclass('event_queue') AND relkind NOT IN ('r', 'p')`
	}
	switch odd, err := texts(ctx, tx, kind); {
	case err != nil:
		return err
	case len(odd) > 0:
		return fmt.Errorf("%w: its id is %s, want a table with an ascending integer", ErrNotAQueue, strings.Join(odd, ", "))
	}
	switch odd, err := texts(ctx, tx, `SELECT DISTINCT coalesce(CAST(status AS TEXT), 'NULL') FROM event_queue
		WHERE status IS NULL OR CAST(status AS TEXT) NOT IN ('pending', 'processing', 'done', 'dead_lettered') ORDER BY 1 LIMIT 5`); {
	case err != nil:
		return err
	case len(odd) > 0:
		return fmt.Errorf("%w: it has rows of status %q, want pending, processing, done or dead_lettered", ErrNotAQueue, odd)
	}
	return nil
}

// copyOld copies the rows. One that some process is at counts as claimed now: that process may be alive.
func (m *migrator) copyOld(ctx context.Context, tx *sql.Tx, columns []string) error {
	have := func(column, otherwise string) string {
		if slices.Contains(columns, column) {
			return column
		}
		return otherwise
	}
	newID := `lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
		substr('89ab', 1 + abs(random() % 4), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`
	at := func(column string) string {
		return `strftime('%Y-%m-%d %H:%M:%f', ` + column + `, 'auto') || '000'`
	}
	now := "$1"
	if m.db.Dialect() == database.PostgreSQL {
		if _, err := tx.ExecContext(ctx, `SET LOCAL TimeZone = 'UTC'`); err != nil {
			return err
		}
		newID, now = `CAST(gen_random_uuid() AS text)`, `CAST($1 AS timestamptz)`
		at = func(column string) string {
			text := `CAST(` + column + ` AS text)`
			return `CASE WHEN ` + text + ` ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}' THEN CAST(` + text + ` AS timestamptz)
				WHEN ` + text + ` ~ '^[0-9]{9,11}(\.[0-9]+)?$' THEN to_timestamp(CAST(` + text + ` AS double precision)) END`
		}
	}
	next := "NULL"
	if slices.Contains(columns, "next_attempt_at") {
		next = `CASE WHEN status = 'pending' THEN ` + at("next_attempt_at") + ` END`
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO event_queue
		(id, event_id, tenant_id, event_type, payload, status, attempts, claimed_at, next_attempt_at, last_error, created_at)
		SELECT id, coalesce(CAST(`+have("event_id", "NULL")+` AS TEXT), `+newID+`), `+have("tenant_id", "NULL")+`, CAST(event_type AS TEXT),
		       CAST(payload AS TEXT), CAST(status AS TEXT), coalesce(attempts, 0), CASE WHEN status = 'processing' THEN `+now+` END,
		       `+next+`, `+have("last_error", "NULL")+`, coalesce(`+at("created_at")+`, `+now+`)
		  FROM event_queue_old`, database.At(m.now))
	if err != nil || m.db.Dialect() == database.SQLite {
		return err
	}
	_, err = tx.ExecContext(ctx, `SELECT setval(pg_get_serial_sequence('event_queue', 'id'), coalesce(max(id), 0) + 1, false) FROM event_queue`)
	return err
}

// texts reads a column.
func texts(ctx context.Context, tx *sql.Tx, query string) ([]string, error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}
