package loam

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/tenant"
)

// AddTenant adds a tenant to the table loam_tenants; one that is there stays. It is for the default directory: an
// application with a directory of its own adds its tenants there.
func (e *Engine) AddTenant(ctx context.Context, id string) error {
	if err := tenant.CheckID(id); err != nil {
		return err
	}
	err := e.cfg.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO loam_tenants (id, created_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`,
			id, database.At(e.cfg.Now()))
		return err
	})
	if err != nil {
		return fmt.Errorf("loam: add tenant %q: %w", id, err)
	}
	return nil
}

// RemoveTenant removes a tenant from the table loam_tenants and parks its pending deliveries as dead, with a reason, so
// that nothing stays pending for ever. Its rows stay for the operator to see. With a directory of the application's own,
// the next sweep parks them instead.
func (e *Engine) RemoveTenant(ctx context.Context, id string) error {
	err := e.cfg.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM loam_tenants WHERE id = $1`, id)
		return err
	})
	if err == nil && id != "" {
		_, err = e.deliveries.ParkRemoved(tenant.With(ctx, id))
	}
	if err != nil {
		return fmt.Errorf("loam: remove tenant %q: %w", id, err)
	}
	return nil
}

// tenantTable is the default directory.
type tenantTable struct{ db *database.DB }

var _ tenant.Table = tenantTable{}

// Condition implements tenant.Table.
func (tenantTable) Condition(n int) string {
	return fmt.Sprintf(`EXISTS (SELECT 1 FROM loam_tenants WHERE id = $%d)`, n)
}

// Exists implements tenant.Directory.
func (t tenantTable) Exists(ctx context.Context, q tenant.Querier, id string) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, `SELECT count(*) FROM loam_tenants WHERE id = $1`, id).Scan(&n)
	return n > 0, err
}

// List implements tenant.Directory.
func (t tenantTable) List(ctx context.Context, after string, limit int) ([]string, error) {
	rows, err := t.db.Own().QueryContext(ctx, `SELECT id FROM loam_tenants WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
	if err != nil {
		return nil, database.Explain(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
