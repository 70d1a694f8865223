package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

// ErrUnknownTenant is why CaptureAll refuses an event.
var ErrUnknownTenant = errors.New("durable: the event's tenant is not known")

// CaptureAll is CaptureTx for many events of any tenants, which were accepted before: their rows are written together, and
// their wake-ups have up to MaxWakeup rows of any tenants. It returns for each event nil, or why it is refused: ErrUnknownTenant
// or events.ErrIDReused. One that nobody wants is refused by nobody. With err, the caller rolls back.
func (d *Deliveries) CaptureAll(ctx context.Context, tx *sql.Tx, evs []events.Event) (refused []error, err error) {
	_, refused, err = d.captureAll(ctx, tx, evs, func(target) bool { return true })
	return refused, err
}

// CaptureFor is CaptureAll for one subscriber, which this process or another has. It returns how many deliveries it wrote:
// none for events that its pattern does not match, or for which it has a delivery.
func (d *Deliveries) CaptureFor(ctx context.Context, tx *sql.Tx, key string, evs []events.Event) (written int, refused []error, err error) {
	refs, refused, err := d.captureAll(ctx, tx, evs, func(t target) bool { return t.key == key })
	return len(refs), refused, err
}

func (d *Deliveries) captureAll(ctx context.Context, tx *sql.Tx, evs []events.Event, of func(target) bool) (refs []Ref, refused []error, err error) {
	refused = make([]error, len(evs))
	if len(evs) == 0 {
		return nil, refused, nil
	}
	known, err := d.wantedBy(ctx, tx)
	if err != nil {
		return nil, nil, fmt.Errorf("capture: %w", err)
	}
	there, err := d.present(ctx, tx, evs)
	if err != nil {
		return nil, nil, fmt.Errorf("capture: %w", err)
	}
	targets, exists := map[string][]target{}, map[string]bool{}
	var rows []newRow
	bare := 0
	for i, e := range evs {
		wanted, ok := targets[e.Name]
		if !ok {
			wanted = slices.DeleteFunc(d.match(known, e.Name), func(t target) bool { return !of(t) })
			targets[e.Name] = wanted
		}
		if len(wanted) == 0 {
			bare++
			continue
		}
		if _, asked := exists[e.TenantID]; !asked {
			if exists[e.TenantID], err = d.Tenants.Exists(ctx, tx, e.TenantID); err != nil {
				return nil, nil, fmt.Errorf("capture: %w: ask for tenant %q: %w", tenant.ErrDirectory, e.TenantID, err)
			}
		}
		if !exists[e.TenantID] {
			refused[i] = fmt.Errorf("%w: %q", ErrUnknownTenant, e.TenantID)
			continue
		}
		if wanted, refused[i] = missing(e, wanted, there[idOf(e)]); refused[i] == nil {
			rows = append(rows, newRows(e, wanted)...)
		}
	}
	if refs, err = d.insert(ctx, tx, rows); err != nil {
		return nil, nil, fmt.Errorf("capture: %w", err)
	}
	if err := d.Enqueuer.Enqueue(ctx, tx, d.mixedWakeups(refs)); err != nil {
		return nil, nil, fmt.Errorf("capture: insert the wake-ups: %w", err)
	}
	d.DB.AfterCommit(ctx, func() {
		d.metrics.captured(ctx, refs)
		if bare > 0 {
			d.metrics.skip(ctx, skipNoSubscriber, bare)
		}
	})
	return refs, refused, nil
}

// HasSubscriber reports whether this process or another has the key, and events are captured for it: not for an alias.
func (d *Deliveries) HasSubscriber(ctx context.Context, key string) (bool, error) {
	if s, ok := d.Registry.HandlerFor(key); ok {
		return s.Key == key, nil
	}
	known, err := d.wantedBy(ctx, d.DB.Own())
	here := d.Registry.Registered()
	return slices.ContainsFunc(known, func(k Known) bool { return k.Key == key && onlyElsewhere(&k, here, known) }), err
}
