package durable

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/openloam/loam/ledger"
)

// Renew gives every claim of this process a fresh lease, in one statement that goes before all other writes, and cancels
// the handlers whose claim is lost. The engine calls it in a loop.
func (d *Deliveries) Renew(ctx context.Context) error {
	runs := d.inflight.all()
	if len(runs) == 0 {
		return nil
	}
	claims := make([]ledger.Claim, len(runs))
	for i, r := range runs {
		claims[i] = r.claim
	}
	asked := time.Now()
	var renewed []ledger.Claim
	err := d.DB.InTxFirst(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		renewed, err = d.Ledger.Renew(ctx, tx, d.Now(), claims)
		return err
	})
	if err != nil {
		return err
	}
	ours := make(map[ledger.Claim]bool, len(renewed))
	for _, c := range renewed {
		ours[c] = true
	}
	for _, r := range runs { // first, whatever becomes of the others
		if ours[r.claim] {
			r.arm(asked.Add(d.Ledger.Lease - d.Ledger.Margin))
		}
	}
	var errs []error
	for _, r := range runs {
		if !ours[r.claim] {
			errs = append(errs, d.checkLost(ctx, r))
		}
	}
	return errors.Join(errs...)
}

// checkLost cancels a run whose claim was not renewed, if it is gone or another's. The row is then no longer this
// process's affair: should the other lose it too, this process takes it like any.
func (d *Deliveries) checkLost(ctx context.Context, r *run) error {
	held, err := d.Ledger.Held(ctx, d.DB, r.claim)
	if err != nil || held {
		return err
	}
	r.cancel(ErrClaimLost) // it may also have its outcome by now: then nobody listens
	d.inflight.remove(r)
	return nil
}

// Running reports whether this process holds exactly this claim: it is not lost, however late its renewal.
func (d *Deliveries) Running(c ledger.Claim) bool { return d.inflight.holds(c) }
