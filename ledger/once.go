package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/tenant"
)

// ErrBusy is returned by Once while a durable delivery runs the same handler for the same event, or did a moment ago. Nothing
// was written: roll back, and try again later.
var ErrBusy = errors.New("loam: a delivery is running this handler for this event")

// Once runs f in the caller's transaction, unless the handler is done with the event: for code that is handed events without
// deliveries, like a webhook or the consumer of another queue. ran says that f was called. The mark is a row of the ledger
// in tx, so it is there if and only if what f wrote in tx is. On any error the caller rolls back, and the event can come again.
//
// The event id is any text that the sender never gives to another event; with the tenant and the handler it makes the key. Each
// has 1 to 200 bytes. It is the key of deliveries too: a subscriber of that key and an event of that id exclude Once and
// each other. While a delivery of that key is being run, or its process has died and nobody has taken it over, it is ErrBusy.
//
// f gets ctx with the tenant. Of two transactions at once the second waits for the end of the first (on SQLite, for its turn to
// write at all), so keep them short. A conflict leaves the transaction as it was. On PostgreSQL above READ COMMITTED the
// second is database.ErrConflict instead.
//
// The times in the row are time.Now's. It is deleted when it is older than the engine's Config.KeepProcessed, 30 days by
// default: an event that comes again after that is run again.
func Once(ctx context.Context, tx *sql.Tx, tenantID, eventID, handler string, f func(ctx context.Context) error) (ran bool, err error) {
	if tx == nil || f == nil {
		return false, errors.New("loam: Once: the transaction or the function is nil")
	}
	if err := errors.Join(tenant.CheckID(tenantID), checkKey("event id", eventID), checkKey("handler", handler)); err != nil {
		return false, fmt.Errorf("loam: Once: %w", err)
	}
	now := database.Millis(time.Now())
	first, err := changed(tx.ExecContext(ctx, `INSERT INTO processed_events
		(tenant_id, event_id, handler, status, started_at, lease_until, owner, processed_at) VALUES ($1, $2, $3, 'done', $4, $4, $5, $4)
		ON CONFLICT (tenant_id, event_id, handler) DO NOTHING`, tenantID, eventID, handler, now, NewOwner()))
	if err != nil {
		return false, fmt.Errorf("loam: Once: %w", database.Explain(err))
	}
	if first {
		return true, f(tenant.With(ctx, tenantID))
	}
	var status Status
	err = tx.QueryRowContext(ctx, `SELECT status FROM processed_events WHERE tenant_id = $1 AND event_id = $2 AND handler = $3`,
		tenantID, eventID, handler).Scan(&status)
	switch {
	case err == nil && status == Done:
		return false, nil
	case err == nil, errors.Is(err, sql.ErrNoRows): // its run, or its retention, has ended since the statement before
		return false, fmt.Errorf("%w: %s, %s", ErrBusy, handler, eventID)
	}
	return false, fmt.Errorf("loam: Once: %w", database.Explain(err))
}

// checkKey reports what is wrong with a part of a key; what names it.
func checkKey(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("the %s is empty", what)
	case len(text) > tenant.MaxIDBytes:
		return fmt.Errorf("the %s has %d bytes, at most %d are allowed", what, len(text), tenant.MaxIDBytes)
	case !utf8.ValidString(text), strings.ContainsRune(text, 0):
		return fmt.Errorf("the %s %q is not valid UTF-8, or contains NUL", what, text)
	}
	return nil
}
