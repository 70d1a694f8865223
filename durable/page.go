package durable

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/tenant"
)

const (
	// PageSize is how many dead deliveries a page holds unless the query says otherwise.
	PageSize = 200
	// SampleSize is how many pending deliveries a page holds unless the query says otherwise.
	SampleSize = 50
	// CountLimit is where counting stops: a Counts value above it means more than that many.
	CountLimit = 10_000
	// ListedErrorChars is how many characters of its error a row of a page carries.
	ListedErrorChars = 600
)

// Reason says why a delivery is dead.
type Reason string

const (
	// Exhausted is dead because the last attempt failed.
	Exhausted Reason = "exhausted"
	// Parked is dead because its handler said that trying again is useless.
	Parked Reason = "parked"
	// NoHandler is dead because no process had the handler.
	NoHandler Reason = "no handler"
	// CrashLimited is dead because it was being run in too many crashes.
	CrashLimited Reason = "crash limit"
	// TenantRemoved is dead because its tenant was removed.
	TenantRemoved Reason = "tenant removed"
	// Unknown is dead by a failure; this process does not know the subscriber, and so not whether it was the last attempt.
	Unknown Reason = ""
)

// Place is where a row stands in the order of the dead: by its last change, then by its id. The zero Place is none.
type Place struct {
	At database.Time
	ID string
}

// PageQuery chooses a page of one state. At most one of Before and After is set.
type PageQuery struct {
	// Status is Dead or Pending.
	Status Status
	// Before is the last row of the page that this one follows; After is the first row of the page that it precedes. For
	// Dead only.
	Before, After Place
	// Limit is the size of the page. Defaults to PageSize, and to SampleSize for Pending.
	Limit int
}

// Page is some deliveries of one state.
type Page struct {
	Rows []Listed
	// Newer and Older say whether there are rows before and after these.
	Newer, Older bool
}

// Listed is a delivery as a list shows it.
type Listed struct {
	ID, EventID, SubscriberKey, EventName string
	Attempts                              int
	// MaxAttempts is how many attempts the subscriber has; 0 if this process does not know it.
	MaxAttempts int
	// Error is the beginning of the last error, ListedErrorChars characters at most; ErrorChars is how many it has in all.
	Error      string
	ErrorChars int
	// NextAttemptAt is when a pending row is due; zero is now.
	NextAttemptAt, UpdatedAt database.Time
	// Reason is set for the dead.
	Reason Reason
}

// Place returns where the row stands.
func (l *Listed) Place() Place { return Place{l.UpdatedAt, l.ID} }

// Page returns a page of the deliveries of the tenant in ctx. The dead come newest change first, in pages that neither
// skip nor repeat a row while others arrive or are redelivered; of the pending there is one page, those that are due now
// first, then the soonest. It reads what is committed, by an index, and no payload.
func (d *Deliveries) Page(ctx context.Context, q PageQuery) (Page, error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return Page{}, err
	}
	p := Page{}
	if q.Status == Dead {
		p, err = d.deadPage(ctx, t, q)
	} else {
		p.Rows, err = d.listed(ctx, `status = 'pending' ORDER BY next_attempt_at NULLS FIRST, id LIMIT $2`, t, defaultTo(q.Limit, SampleSize))
	}
	if err != nil {
		return Page{}, fmt.Errorf("list deliveries: %w", database.Explain(err))
	}
	return p, nil
}

func (d *Deliveries) deadPage(ctx context.Context, t string, q PageQuery) (Page, error) {
	const (
		first = `status = 'dead' ORDER BY updated_at DESC, id DESC LIMIT $2`
		older = `status = 'dead' AND (updated_at, id) < ($3, $4) ORDER BY updated_at DESC, id DESC LIMIT $2`
		newer = `status = 'dead' AND (updated_at, id) > ($3, $4) ORDER BY updated_at, id LIMIT $2`
	)
	limit := defaultTo(q.Limit, PageSize)
	query, from, back := first, Place{}, false
	switch {
	case q.Before != Place{}:
		query, from = older, q.Before
	case q.After != Place{}:
		query, from, back = newer, q.After, true
	}
	args := []any{t, limit + 1}
	if query != first {
		args = append(args, from.At, from.ID)
	}
	rows, err := d.listed(ctx, query, args...)
	if err != nil {
		return Page{}, err
	}
	more := len(rows) > limit
	rows = rows[:min(limit, len(rows))]
	if back {
		slices.Reverse(rows)
	}
	p := Page{Rows: rows, Newer: back && more, Older: !back && more}
	if query == first {
		return p, nil
	}
	// On the side that the reader came from, look: what was there may be gone.
	if len(rows) > 0 {
		if from = rows[0].Place(); back {
			from = rows[len(rows)-1].Place()
		}
	}
	behind, flag := newer, &p.Newer
	if back {
		behind, flag = older, &p.Older
	}
	err = d.DB.Read().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM event_deliveries WHERE tenant_id = $1 AND `+behind+`)`,
		t, 1, from.At, from.ID).Scan(flag)
	return p, err
}

// listed reads rows of the tenant $1 that meet the condition, in its order.
func (d *Deliveries) listed(ctx context.Context, where string, args ...any) ([]Listed, error) {
	rows, err := d.DB.Read().QueryContext(ctx, fmt.Sprintf(`SELECT id, event_id, subscriber_key, event_name, status, attempts,
		coalesce(substr(last_error, 1, %d), ''), coalesce(length(last_error), 0), next_attempt_at, updated_at
		FROM event_deliveries WHERE tenant_id = $1 AND %s`, ListedErrorChars, where), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Listed
	for rows.Next() {
		var l Listed
		var status Status
		if err := rows.Scan(&l.ID, &l.EventID, &l.SubscriberKey, &l.EventName, &status, &l.Attempts, &l.Error, &l.ErrorChars,
			&l.NextAttemptAt, &l.UpdatedAt); err != nil {
			return nil, err
		}
		sub, known := d.Registry.HandlerFor(l.SubscriberKey)
		l.MaxAttempts = sub.MaxAttempts
		if status == Dead {
			l.Reason = reason(l.Error, l.Attempts, sub.MaxAttempts, known)
		}
		out = append(out, l)
	}
	return out, rows.Err()
}

// reason reads from the text why a row is dead. Those of Loam itself cannot be an error's: its TYPE has no space.
func reason(lastError string, attempts, maxAttempts int, known bool) Reason {
	switch {
	case strings.HasPrefix(lastError, unknownReason):
		return NoHandler
	case strings.HasPrefix(lastError, crashReason):
		return CrashLimited
	case lastError == RemovedReason:
		return TenantRemoved
	case !known:
		return Unknown
	case attempts < maxAttempts:
		return Parked
	}
	return Exhausted
}

// Counts is how many deliveries a tenant has, up to CountLimit + 1 of each.
type Counts struct{ Dead, Pending int }

// Counts counts the deliveries of the tenant in ctx.
func (d *Deliveries) Counts(ctx context.Context) (Counts, error) {
	t, err := tenant.Require(ctx)
	if err != nil {
		return Counts{}, err
	}
	const count = `(SELECT count(*) FROM (SELECT 1 FROM event_deliveries WHERE tenant_id = $1 AND status = '%s' LIMIT $2) AS found)`
	var c Counts
	err = d.DB.Read().QueryRowContext(ctx, fmt.Sprintf(`SELECT `+count+`, `+count, Dead, Pending), t, CountLimit+1).Scan(&c.Dead, &c.Pending)
	if err != nil {
		return Counts{}, fmt.Errorf("count deliveries: %w", database.Explain(err))
	}
	return c, nil
}

func defaultTo(n, standard int) int {
	if n <= 0 {
		return standard
	}
	return n
}
