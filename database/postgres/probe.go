package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/openloam/loam/database"
)

// ErrPooler means that the connection goes through a pooler that gives a session's transactions to different servers'
// sessions, as pgbouncer does in transaction mode. Notices, prepared statements and the migrator's lock need a session.
var ErrPooler = errors.New("the connection goes through a pooler in transaction mode; " +
	"connect to PostgreSQL directly, or use the pooler in session mode (pool_mode = session)")

// ErrVersion means that the server is too old.
var ErrVersion = errors.New("PostgreSQL is too old; Loam is tested on 15 and needs 14 or later")

const oldest = 140000

// probe finds at the start what would go wrong later.
func probe(ctx context.Context, db *database.DB) error {
	first, err := db.Write().Conn(ctx)
	if err != nil {
		return err
	}
	defer first.Close()
	var version, pid, other int
	var readOnly bool
	if err := first.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int, pg_backend_pid(),
		current_setting('transaction_read_only')::bool`).Scan(&version, &pid, &readOnly); err != nil {
		return err
	}
	switch {
	case version < oldest:
		return fmt.Errorf("%w: it says %d", ErrVersion, version)
	case readOnly:
		return fmt.Errorf("%w (a standby?)", database.ErrReadOnly)
	}
	// The first session is idle now. A pooler in transaction mode gives its server's session to the second.
	second, err := db.Own().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer second.Rollback() //nolint:errcheck // nothing was written
	if err := second.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&other); err != nil {
		return err
	}
	if other == pid {
		return ErrPooler
	}
	return nil
}
