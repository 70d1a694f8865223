package sweep

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/openloam/loam/tenant"
)

// parkRemoved parks the pending rows of tenants that the directory no longer has: nothing stays pending for ever.
func (s *Sweeper) parkRemoved(ctx context.Context) error {
	const page = 500
	for after := ""; ; {
		ids, err := s.cfg.Deliveries.TenantsPending(ctx, after, page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			exists, err := s.cfg.Tenants.Exists(ctx, s.cfg.DB.Own(), id)
			if err != nil {
				return fmt.Errorf("ask for tenant %q: %w", id, err)
			}
			if exists {
				continue
			}
			n, err := s.cfg.Deliveries.ParkRemoved(tenant.With(ctx, id))
			if err != nil {
				return err
			}
			s.cfg.Logger.WarnContext(ctx, "deliveries of a removed tenant parked as dead", slog.String("tenant", id), slog.Int("deliveries", n))
		}
		if len(ids) < page {
			return nil
		}
		after = ids[len(ids)-1]
	}
}
