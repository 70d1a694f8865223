package sweep

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/tenant"
)

// lostLimit is how many lost claims one check looks at.
const lostLimit = 500

// LostClaims wakes the deliveries whose claim may be taken over, and returns how many claims it found: some process has
// died, or is suspended, or cannot reach the database. A claim whose delivery cannot be run now, because it is gone, final,
// paused or not due, is deleted. Runs of this process are left out, however late their renewal.
func (s *Sweeper) LostClaims(ctx context.Context) (int, error) {
	now := s.cfg.Now()
	claims, err := s.cfg.Ledger.Lost(ctx, s.cfg.DB, now, lostLimit)
	if err != nil {
		return 0, err
	}
	byTenant := map[string][]ledger.Claim{}
	found := 0
	for _, c := range claims {
		if !s.cfg.Deliveries.Running(c) {
			byTenant[c.Tenant] = append(byTenant[c.Tenant], c)
			found++
		}
	}
	var errs []error
	for t, claims := range byTenant {
		errs = append(errs, s.wakeClaimed(tenant.With(ctx, t), t, claims))
	}
	if found > 0 {
		s.cfg.Logger.WarnContext(ctx, "claims lost: their process has died or was suspended",
			slog.Int("claims", found))
	}
	return found, errors.Join(errs...)
}

func (s *Sweeper) wakeClaimed(ctx context.Context, t string, claims []ledger.Claim) error {
	rows, err := s.cfg.Deliveries.Claimed(ctx, s.cfg.Now(), claims)
	if err != nil {
		return err
	}
	var gone []ledger.Claim
	refs := make([]durable.Ref, 0, len(rows))
	for _, c := range claims {
		if r, ok := rows[c.Key]; ok {
			refs = append(refs, r)
		} else {
			gone = append(gone, c)
		}
	}
	_, err = s.cfg.Deliveries.Wake(ctx, t, refs)
	if len(gone) == 0 {
		return err
	}
	return errors.Join(err, s.cfg.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, c := range gone {
			if err := s.cfg.Ledger.Drop(ctx, tx, s.cfg.Now(), c); err != nil {
				return err
			}
		}
		return nil
	}))
}
