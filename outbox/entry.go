package outbox

import (
	"time"

	"github.com/openloam/loam/database"
)

// Status is the state of a row of event_queue.
type Status string

const (
	// Pending waits for a relay, until NextAttemptAt if that is set.
	Pending Status = "pending"
	// Processing is claimed by a relay whose sink is outside the database.
	Processing Status = "processing"
	// Done has been captured, or sent.
	Done Status = "done"
	// DeadLettered has failed for good; LastError says why.
	DeadLettered Status = "dead_lettered"
)

// Entry is a row of event_queue. What a foreign writer left out is empty.
type Entry struct {
	// ID ascends in the order of the inserts, not of the commits.
	ID int64
	// EventID is unique within the tenant; empty if the row came from a writer that set none.
	EventID, TenantID, EventType string
	// Payload is what was written, whether or not it can be read.
	Payload, Headers string
	Status           Status
	// Attempts are failures that were the row's own; Deferrals are those of the transport.
	Attempts, Deferrals int
	// ClaimedAt is set while a relay has the row.
	ClaimedAt, NextAttemptAt, CreatedAt database.Time
	LastError                           string
	// Origin is where a bus has the message, if the row is one that it could not bring; else it is empty.
	Origin string
}

// said is what a relay reads of a row; everything else could be a foreign writer's in a form that cannot be read.
const said = `id, coalesce(event_id, ''), coalesce(tenant_id, ''), coalesce(event_type, ''), coalesce(payload, ''), headers, status,
	CAST(attempts AS bigint), CAST(deferrals AS bigint)`

func (e *Entry) said() []any {
	return []any{&e.ID, &e.EventID, &e.TenantID, &e.EventType, &e.Payload, &e.Headers, &e.Status, &e.Attempts, &e.Deferrals}
}

// all is what an operator sees.
const all = said + `, claimed_at, next_attempt_at, created_at, coalesce(last_error, ''), coalesce(origin, '')`

func (e *Entry) all() []any {
	return append(e.said(), loose{&e.ClaimedAt}, loose{&e.NextAttemptAt}, loose{&e.CreatedAt}, &e.LastError, &e.Origin)
}

// loose reads a time; one that a foreign writer wrote in another form is as if it were not there.
type loose struct{ to *database.Time }

// Scan implements sql.Scanner.
func (l loose) Scan(v any) error {
	if l.to.Scan(v) != nil {
		*l.to = database.Time{}
	}
	return nil
}

// DefaultMaxAttempts is how many attempts a row has unless Config says otherwise.
const DefaultMaxAttempts = 5

const (
	firstWait = 5 * time.Second
	maxWait   = 300 * time.Second
)

// Backoff is how long after failure n, counted from 1, a row is tried again: 5 s, doubling, at most 300 s.
func Backoff(n int) time.Duration {
	return min(firstWait<<min(max(n-1, 0), 10), maxWait)
}

// Lease is how long a claim of a relay is its own; then another may take the row over.
const Lease = 600 * time.Second
