// Package sweep repairs what was lost: it wakes due rows whose job is gone, tenant by tenant, and rows whose claim nobody
// renews any more. It is what makes a delivery certain; the jobs only make it fast.
package sweep

import (
	"context"
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
	// Timeout is the time limit of one tenant's sweep, and of each transaction of Prune.
	Timeout time.Duration
	// Keep is what Prune goes by.
	Keep Keep
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

// Pass is what a pass over tenants has done.
type Pass struct {
	// Full are the tenants that have more.
	Full []Full
	// Next is the last tenant that had its turn when the time was over; "" if all had.
	Next string
}

// All sweeps every tenant after the given one ("" for all), each with a time limit of its own, for as long as ctx leaves
// time for one more. One that fails does not keep the others from their turn; the error says how many failed, and why the
// first did. When all have had their turn, it parks the rows of tenants that are gone.
func (s *Sweeper) All(ctx context.Context, after string) (Pass, error) {
	const page = 500
	var pass Pass
	failed, first := 0, error(nil)
	fail := func(err error) {
		if failed++; first == nil {
			first = err
		}
	}
	for swept := 0; ; {
		ids, err := s.cfg.Tenants.List(ctx, after, page)
		if err != nil {
			fail(fmt.Errorf("list tenants: %w", err))
			break
		}
		for _, id := range ids {
			if swept > 0 && !s.timeForOne(ctx) {
				pass.Next = after
				break
			}
			full, err := s.Tenant(ctx, id, durable.Cursor{})
			if err != nil {
				fail(err)
			}
			if full != nil {
				pass.Full = append(pass.Full, *full)
			}
			after = id
			swept++
		}
		if len(ids) < page || pass.Next != "" {
			break
		}
	}
	if pass.Next == "" {
		if err := s.parkRemoved(ctx); err != nil {
			fail(err)
		}
	}
	if first != nil {
		return pass, fmt.Errorf("sweep: %d failures, the first: %w", failed, first)
	}
	return pass, nil
}

// timeForOne reports whether ctx leaves time for one more tenant.
func (s *Sweeper) timeForOne(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() == nil && (!limited || time.Until(deadline) > s.cfg.Timeout)
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
