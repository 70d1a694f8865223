// Package sweep repairs what was lost: it wakes due rows whose job is gone, tenant by tenant, and rows whose claim nobody
// renews any more. It is what makes a delivery certain; the jobs only make it fast.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/tenant"
)

// Key names the periodic sweep.
const Key = "open_loam_event_redelivery_sweep"

// Limit is how many rows one sweep of a tenant wakes at most.
const Limit = 500

// Config is what New needs. The engine fills it; all fields are required.
type Config struct {
	DB         *database.DB
	Deliveries *durable.Deliveries
	Ledger     *ledger.Ledger
	Tenants    tenant.Directory
	Now        func() time.Time
	Logger     *slog.Logger
	// Limit is how many rows one sweep of a tenant wakes at most.
	Limit int
	// Timeout is the time limit of one tenant's sweep.
	Timeout time.Duration
}

// Sweeper sweeps. It is safe for use by several goroutines.
type Sweeper struct{ cfg Config }

// New makes a Sweeper. It does no I/O.
func New(cfg Config) *Sweeper { return &Sweeper{cfg} }

// RedeliverStuck wakes at most limit rows of the tenant in ctx that are pending and due at now, not paused and not under a
// live claim, the oldest due first, and returns how many. It changes no row. A row that cannot be woken does not keep the
// others asleep; the error then says what failed.
func (s *Sweeper) RedeliverStuck(ctx context.Context, now time.Time, limit int) (int, error) {
	_, woken, _, err := s.page(ctx, now, durable.Cursor{}, limit)
	return woken, err
}

// Full is a tenant that has more due rows than one sweep wakes, and where to go on.
type Full struct {
	Tenant string
	After  durable.Cursor
}

// Tenant sweeps one tenant, beginning after the cursor, within Config.Timeout. full is nil when that was all.
func (s *Sweeper) Tenant(ctx context.Context, id string, after durable.Cursor) (full *Full, err error) {
	ctx, cancel := context.WithTimeout(tenant.With(ctx, id), s.cfg.Timeout)
	defer cancel()
	found, woken, next, err := s.page(ctx, s.cfg.Now(), after, s.cfg.Limit)
	if woken > 0 {
		s.cfg.Logger.InfoContext(ctx, "swept: due deliveries woken", slog.String("tenant", id), slog.Int("deliveries", woken))
	}
	if found == s.cfg.Limit {
		full = &Full{id, next}
	}
	if err != nil {
		return full, fmt.Errorf("sweep tenant %q: %w", id, err)
	}
	return full, nil
}

// All sweeps every tenant, each with a time limit of its own, and returns those with more. One that fails does not keep
// the others from their turn; the errors come back together. Then it parks the rows of tenants that are gone.
func (s *Sweeper) All(ctx context.Context) ([]Full, error) {
	const page = 500
	var more []Full
	var errs []error
	for after := ""; ; {
		ids, err := s.cfg.Tenants.List(ctx, after, page)
		if err != nil {
			return more, errors.Join(append(errs, fmt.Errorf("sweep: list tenants: %w", err))...)
		}
		for _, id := range ids {
			full, err := s.Tenant(ctx, id, durable.Cursor{})
			if err != nil {
				errs = append(errs, err)
			}
			if full != nil {
				more = append(more, *full)
			}
		}
		if len(ids) < page || ctx.Err() != nil {
			return more, errors.Join(append(errs, s.parkRemoved(ctx))...)
		}
		after = ids[len(ids)-1]
	}
}

func (s *Sweeper) page(ctx context.Context, now time.Time, after durable.Cursor, limit int) (
	found, woken int, next durable.Cursor, err error,
) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return 0, 0, after, err
	}
	refs, next, err := s.cfg.Deliveries.Due(ctx, now, after, limit)
	if err != nil {
		return 0, 0, after, err
	}
	woken, err = s.cfg.Deliveries.Wake(ctx, t, refs)
	return len(refs), woken, next, err
}
