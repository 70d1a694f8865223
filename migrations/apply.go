package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river/rivermigrate"

	"github.com/openloam/loam/database"
)

// migrator applies what is missing.
type migrator struct {
	db    *database.DB
	now   time.Time
	all   []migration
	river *rivermigrate.Migrator[*sql.Tx]

	applied []string
}

func (m *migrator) sqlite(ctx context.Context) error {
	return m.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		m.applied = nil
		res, err := m.river.MigrateTx(ctx, tx, rivermigrate.DirectionUp, nil) //nolint:staticcheck // Migrate would wait for the one connection that this transaction holds
		if err != nil {
			return fmt.Errorf("River: %w", err)
		}
		m.note(res)
		newest, err := m.version(ctx, tx)
		if err != nil {
			return err
		}
		for _, one := range m.all {
			if one.version <= newest {
				continue
			}
			if err := m.one(ctx, tx, one); err != nil {
				return err
			}
			m.applied = append(m.applied, one.name)
		}
		return nil
	})
}

// lockID names the migrator's advisory lock: "loam" in ASCII.
const lockID = 0x6c6f616d

// postgres holds a session's lock, which ends with the process at the latest. River's migrations cannot be in one
// transaction: they go over connections of their own.
func (m *migrator) postgres(ctx context.Context) error {
	conn, err := m.db.Write().Conn(ctx)
	if err != nil {
		return database.Explain(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, lockID); err != nil {
		return fmt.Errorf("wait for other migrators: %w", database.Explain(err))
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, lockID) //nolint:errcheck // a broken session has no lock
	res, err := m.river.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return fmt.Errorf("River: %w", database.Explain(err))
	}
	m.note(res)
	for _, one := range m.all {
		if err := m.alone(ctx, conn, one); err != nil {
			return database.Explain(err)
		}
	}
	return nil
}

// alone applies one migration in a transaction of its own, if it is missing.
func (m *migrator) alone(ctx context.Context, conn *sql.Conn, one migration) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	newest, err := m.version(ctx, tx)
	if err != nil || one.version <= newest {
		return err
	}
	if err := m.one(ctx, tx, one); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	m.applied = append(m.applied, one.name)
	return nil
}

func (m *migrator) one(ctx context.Context, tx *sql.Tx, one migration) error {
	apply := func() error {
		_, err := tx.ExecContext(ctx, one.text)
		return err
	}
	var err error
	if one.version == outboxVersion {
		err = m.adopt(ctx, tx, apply)
	} else {
		err = apply()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", one.name, err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO loam_migrations (version, name, applied_at) VALUES ($1, $2, $3)`,
		one.version, one.name, database.At(m.now))
	return err
}

func (m *migrator) note(res *rivermigrate.MigrateResult) {
	for _, v := range res.Versions {
		m.applied = append(m.applied, "river "+strconv.Itoa(v.Version))
	}
}

// version makes the table of versions if it is missing, and returns the newest. It asks first: on PostgreSQL a role that may
// not make tables may not say so either, and should find all applied.
func (m *migrator) version(ctx context.Context, tx *sql.Tx) (int, error) {
	at := "TEXT"
	if m.db.Dialect() == database.PostgreSQL {
		at = "timestamptz"
		var there bool
		err := tx.QueryRowContext(ctx, `SELECT to_regclass('loam_migrations') IS NOT NULL`).Scan(&there)
		if err != nil {
			return 0, err
		}
		if there {
			return version(ctx, tx)
		}
	}
	if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS loam_migrations (
			version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at `+at+` NOT NULL)`); err != nil {
		return 0, err
	}
	return version(ctx, tx)
}
