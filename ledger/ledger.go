package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"time"

	"github.com/openloam/loam/database"
)

// Status is the state of a row of processed_events.
type Status string

const (
	// InProgress is a claim: live until its lease is over.
	InProgress Status = "in_progress"
	// Done is a handler that has succeeded for this event. It is never run again, unless an operator asks.
	Done Status = "done"
)

// Key names a row: what the ledger excludes.
type Key struct{ Tenant, EventID, Handler string }

// Token is what an owner must show to change its claim.
type Token struct {
	// StartedAt is when the claim was taken, in milliseconds.
	StartedAt int64
	// Owner is random, made before the first try to claim and kept over repeats.
	Owner string
}

// Claim is a claim that was granted.
type Claim struct {
	Key
	Token
}

// NewOwner makes a random owner.
func NewOwner() string { return rand.Text() }

// Ledger has the times of the protocol; the rows are in the database that each call is given.
type Ledger struct {
	// Lease is how long a claim is exclusive without a renewal.
	Lease time.Duration
	// Margin is how long after its lease a claim is taken over at the earliest: what clocks may differ by.
	Margin time.Duration
	// Dialect is the database's.
	Dialect database.Dialect
}

// Candidates is a SELECT of tenant_id, event_id, handler with parameters numbered from $1.
type Candidates struct {
	SQL  string
	Args []any
}

// Claim inserts a claim for each candidate, or takes over one whose lease has been over for the margin, or takes again
// one that owner has. It returns the keys that are now owner's.
func (l *Ledger) Claim(ctx context.Context, tx *sql.Tx, now time.Time, owner string, c Candidates) ([]Claim, error) {
	n, ms := len(c.Args), database.Millis(now)
	rows, err := tx.QueryContext(ctx, fmt.Sprintf(`
		INSERT INTO processed_events (tenant_id, event_id, handler, status, started_at, lease_until, owner)
		SELECT tenant_id, event_id, handler, 'in_progress', CAST($%d AS bigint), CAST($%d AS bigint), $%d FROM (%s) AS c WHERE true
		 ORDER BY event_id, handler
		ON CONFLICT (tenant_id, event_id, handler) DO UPDATE
		   SET started_at = excluded.started_at, lease_until = excluded.lease_until, owner = excluded.owner
		 WHERE processed_events.status = 'in_progress'
		   AND (processed_events.lease_until <= $%d OR processed_events.owner = excluded.owner)
		RETURNING tenant_id, event_id, handler, started_at, owner`, n+1, n+2, n+3, c.SQL, n+4),
		append(c.Args[:n:n], ms, ms+l.Lease.Milliseconds(), owner, l.takeover(now))...)
	return scanClaims(rows, err)
}

// Reclaim finds the claims of owner among the candidates and gives them a fresh lease. It is the first step of a repeat
// after a commit whose answer was lost; none found means that the first try did not commit.
func (l *Ledger) Reclaim(ctx context.Context, tx *sql.Tx, now time.Time, owner string, c Candidates) ([]Claim, error) {
	n := len(c.Args)
	rows, err := tx.QueryContext(ctx, fmt.Sprintf(`
		UPDATE processed_events SET lease_until = $%d
		 WHERE (tenant_id, event_id, handler) IN (%s) AND status <> 'done' AND owner = $%d
		RETURNING tenant_id, event_id, handler, started_at, owner`, n+1, c.SQL, n+2),
		append(c.Args[:n:n], database.Millis(now)+l.Lease.Milliseconds(), owner)...)
	return scanClaims(rows, err)
}

// A statement that goes by the key says what the status is not: told what it is, PostgreSQL may read the index of all rows
// of that status, which looks empty to it when its statistics were taken at a quiet time.

// Done marks the claim's event as done by its handler. It reports false, and changes nothing, if the claim is not held.
func (l *Ledger) Done(ctx context.Context, tx *sql.Tx, now time.Time, c Claim) (bool, error) {
	return changed(tx.ExecContext(ctx, `UPDATE processed_events SET status = 'done', processed_at = $6
		WHERE tenant_id = $1 AND event_id = $2 AND handler = $3 AND status <> 'done' AND started_at = $4 AND owner = $5`,
		c.Tenant, c.EventID, c.Handler, c.StartedAt, c.Owner, database.Millis(now)))
}

// DoneAll is Done for several claims, in one statement; it returns those that were held.
func (l *Ledger) DoneAll(ctx context.Context, tx *sql.Tx, now time.Time, claims []Claim) ([]Claim, error) {
	return l.change(ctx, tx, `status = 'done', processed_at = $1`, database.Millis(now), claims, l.Dialect.LockSorted("p", "p.tenant_id, p.event_id, p.handler"))
}

// DoneBy reports whether exactly this claim was marked done: after a commit whose answer was lost.
func (l *Ledger) DoneBy(ctx context.Context, tx *sql.Tx, c Claim) (bool, error) {
	var n int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM processed_events
		WHERE tenant_id = $1 AND event_id = $2 AND handler = $3 AND status <> 'in_progress' AND started_at = $4 AND owner = $5`,
		c.Tenant, c.EventID, c.Handler, c.StartedAt, c.Owner).Scan(&n)
	return n > 0, err
}

// Release deletes the claim. It reports false, and changes nothing, if the claim is not held.
func (l *Ledger) Release(ctx context.Context, tx *sql.Tx, c Claim) (bool, error) {
	return changed(tx.ExecContext(ctx, `DELETE FROM processed_events
		WHERE tenant_id = $1 AND event_id = $2 AND handler = $3 AND status <> 'done' AND started_at = $4 AND owner = $5`,
		c.Tenant, c.EventID, c.Handler, c.StartedAt, c.Owner))
}

// Forget deletes the row whatever it says: for an operator's decision about the delivery. An owner there may be has lost
// its token.
func (l *Ledger) Forget(ctx context.Context, tx *sql.Tx, k Key) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM processed_events WHERE tenant_id = $1 AND event_id = $2 AND handler = $3`,
		k.Tenant, k.EventID, k.Handler)
	return err
}

// Seize takes the row from whoever has it, or makes it, for a transaction that then makes the delivery final and deletes
// it again by Forget: a claim that begins meanwhile waits for that transaction's end.
func (l *Ledger) Seize(ctx context.Context, tx *sql.Tx, k Key) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO processed_events (tenant_id, event_id, handler, status, started_at, lease_until, owner)
		VALUES ($1, $2, $3, 'in_progress', 0, 0, $4)
		ON CONFLICT (tenant_id, event_id, handler) DO UPDATE SET status = 'in_progress', started_at = 0, lease_until = 0, owner = excluded.owner`,
		k.Tenant, k.EventID, k.Handler, NewOwner())
	return err
}

// takeover is the latest lease_until, in milliseconds, of a claim that may be taken over now.
func (l *Ledger) takeover(now time.Time) int64 { return database.Millis(now) - l.Margin.Milliseconds() }

func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

func scanClaims(rows *sql.Rows, err error) ([]Claim, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Claim
	for rows.Next() {
		var c Claim
		if err := rows.Scan(&c.Tenant, &c.EventID, &c.Handler, &c.StartedAt, &c.Owner); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}
