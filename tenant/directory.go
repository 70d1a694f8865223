package tenant

import (
	"context"
	"database/sql"
)

// Querier is what a Directory reads through: a *sql.DB, a *sql.Tx or a *sql.Conn.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Directory says which tenants exist. The engine's default reads the table loam_tenants, which Engine.AddTenant fills;
// an application that has tenants of its own can supply its own. It is called from several goroutines at once.
type Directory interface {
	// Exists reports whether id names a tenant. q is the transaction of the publish that asks (in PublishTx the
	// caller's own, so a tenant created in it exists); on SQLite nothing else may be used to read the same database.
	// An error is never taken for "missing": the publish fails with it.
	Exists(ctx context.Context, q Querier, id string) (bool, error)
	// List returns at most limit tenant ids greater than after, in ascending byte order; after is "" for the first
	// page. Fewer than limit means that there are no more.
	List(ctx context.Context, after string, limit int) ([]string, error)
}

// Table is a Directory that can be asked within a statement, because its tenants are in the same database.
type Table interface {
	Directory
	// Condition is the SQL condition that parameter n is the id of a tenant that exists.
	Condition(n int) string
}
