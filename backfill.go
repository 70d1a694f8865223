package loam

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/tenant"
)

// ErrUnknownSubscriber is returned by Backfill for a key that no process has registered.
var ErrUnknownSubscriber = errors.New("loam: no such durable subscriber; register its key, and start a process that has it")

// BackfillProgress says how far a backfill has come.
type BackfillProgress struct {
	// Events were looked at, and Deliveries written: not those that the subscriber's pattern does not match, or that were there.
	Events, Deliveries int
	// Refused events have an id that the tenant uses for another event by now, or cannot be read; each is logged.
	Refused int
	// Through is when the last of them was published: a backfill that begins there leaves out nothing.
	Through time.Time
}

// BackfillOption changes one backfill.
type BackfillOption func(*backfill)

type backfill struct{ progress func(BackfillProgress) }

// OnProgress has f called after each batch, in the caller's goroutine.
func OnProgress(f func(BackfillProgress)) BackfillOption { return func(b *backfill) { b.progress = f } }

// backfillBatch is how many events one transaction captures.
const backfillBatch = 500

// Backfill gives a durable subscriber the past events of a tenant that were published at from or later and before to (zero: up
// to now): a delivery for each one that its pattern matches and that it has none for. They come from the rows of event_queue
// that are done: with Config.Capture at Outbox or with Config.KeepEvents, and for as long as Config.KeepOutbox keeps them.
//
// It writes 500 events in a transaction, and can be interrupted: by ctx, or a crash. Called again, with the same range or from
// BackfillProgress.Through, it writes what is missing. Several at once do not double anything. With an error, the progress says
// what was done.
func (e *Engine) Backfill(ctx context.Context, key, tenantID string, from, to time.Time, opts ...BackfillOption) (BackfillProgress, error) {
	var done BackfillProgress
	var b backfill
	for _, opt := range opts {
		opt(&b)
	}
	if to.IsZero() {
		to = e.cfg.Now()
	}
	if err := e.checkBackfill(ctx, key, tenantID, from, to); err != nil {
		return done, fmt.Errorf("loam: backfill %q: %w", key, err)
	}
	if from.IsZero() {
		from = time.Unix(0, 0) // no row is older
	}
	after := outbox.Place{CreatedAt: from}
	for {
		page, err := e.queue.Past(ctx, tenantID, after, to, backfillBatch)
		if err == nil {
			err = e.backfillPage(ctx, key, page.Events, &done)
		}
		if err != nil {
			return done, fmt.Errorf("loam: backfill %q: %w", key, err)
		}
		done.Refused += page.Unreadable
		done.Through, after = page.Next.CreatedAt, page.Next
		if b.progress != nil {
			b.progress(done)
		}
		if !page.More {
			return done, nil
		}
	}
}

func (e *Engine) backfillPage(ctx context.Context, key string, evs []events.Event, done *BackfillProgress) error {
	if len(evs) == 0 {
		return nil
	}
	var written int
	var refused []error
	err := e.cfg.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		written, refused, err = e.deliveries.CaptureFor(ctx, tx, key, evs)
		return err
	})
	if err != nil {
		return err
	}
	for i, why := range refused {
		if errors.Is(why, durable.ErrUnknownTenant) {
			return why
		}
		if why != nil {
			done.Refused++
			e.cfg.Logger.WarnContext(ctx, "event not backfilled", slog.String("event_id", evs[i].ID), slog.String("subscriber", key), slog.Any("error", why))
		}
	}
	done.Events += len(evs)
	done.Deliveries += written
	return nil
}

func (e *Engine) checkBackfill(ctx context.Context, key, tenantID string, from, to time.Time) error {
	if err := tenant.CheckID(tenantID); err != nil {
		return err
	}
	if !from.Before(to) {
		return fmt.Errorf("the range is empty: from %v is not before to %v", from, to)
	}
	if e.cfg.DB.InTransaction(ctx) {
		return errors.New("it is called inside a transaction, and opens its own")
	}
	known, err := e.deliveries.HasSubscriber(ctx, key)
	if err == nil && !known {
		err = ErrUnknownSubscriber
	}
	return err
}
