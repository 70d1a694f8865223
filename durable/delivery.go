package durable

import (
	"encoding/json"
	"log/slog"

	"github.com/uptrace/bun"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/ledger"
)

// Status is the state of a delivery. That it is being run is not a state of the row: the ledger says so.
type Status string

const (
	// Pending is to be run when it is due.
	Pending Status = "pending"
	// Delivered is final: its handler has succeeded.
	Delivered Status = "delivered"
	// Dead is final until an operator redelivers it.
	Dead Status = "dead"
)

// EventDelivery is one event for one subscriber: a row of event_deliveries.
type EventDelivery struct {
	bun.BaseModel `bun:"table:event_deliveries,alias:d"`

	// ID is a UUIDv7.
	ID string `bun:"id,pk"`
	// TenantID, EventID and SubscriberKey are unique together.
	TenantID      string `bun:"tenant_id"`
	EventID       string `bun:"event_id"`
	SubscriberKey string `bun:"subscriber_key"`
	EventName     string `bun:"event_name"`
	// Queue is the River queue of the subscriber at capture.
	Queue string `bun:"queue"`
	// Payload is JSON.
	Payload string `bun:"payload"`
	// OriginalPayload is what was published, when an operator has edited the payload.
	OriginalPayload string `bun:"original_payload"`
	// Headers is JSON, see events.Headers.
	Headers string `bun:"headers"`
	Status  Status `bun:"status"`
	// Attempts counts failures since the last redelivery.
	Attempts int `bun:"attempts"`
	// Runs counts all starts, those that a shutdown cut before the handler was called included.
	Runs int `bun:"runs"`
	// Unfinished counts the starts in a row that had no outcome: crashes.
	Unfinished int `bun:"unfinished"`
	// LastError is "TYPE: message" of the last failure, or why the row was parked.
	LastError string `bun:"last_error"`
	// Errors is JSON, see History.
	Errors string `bun:"errors"`
	// NextAttemptAt is when it is due; zero is now.
	NextAttemptAt database.Time `bun:"next_attempt_at"`
	DeliveredAt   database.Time `bun:"delivered_at"`
	// DiscardedAt is when an operator gave it up; its status stays dead.
	DiscardedAt database.Time `bun:"discarded_at"`
	// DurationMS is how long the last run took, in milliseconds.
	DurationMS int64         `bun:"duration_ms"`
	CreatedAt  database.Time `bun:"created_at"`
	UpdatedAt  database.Time `bun:"updated_at"`
}

// columns are those of EventDelivery, for statements that return rows.
const columns = `id, tenant_id, event_id, subscriber_key, event_name, queue, payload, original_payload, headers, status, attempts, runs, unfinished,
	last_error, errors, next_attempt_at, delivered_at, discarded_at, duration_ms, created_at, updated_at`

// key is the row's key in the ledger.
func (e *EventDelivery) key() ledger.Key {
	return ledger.Key{Tenant: e.TenantID, EventID: e.EventID, Handler: e.SubscriberKey}
}

// attrs are what every log line about a delivery has.
func (e *EventDelivery) attrs() []any {
	return []any{
		slog.String("delivery", e.ID), slog.String("subscriber", e.SubscriberKey),
		slog.String("event", e.EventName), slog.String("tenant", e.TenantID),
	}
}

// Failure is one failed run in a delivery's history.
type Failure struct {
	// At is when the run started.
	At database.Time `json:"at"`
	// Run is its number among all starts.
	Run int `json:"run"`
	// Error is "TYPE: message".
	Error string `json:"error"`
	// Stack is set when the handler panicked.
	Stack string `json:"stack,omitempty"`
	// DurationMS is how long it took, in milliseconds.
	DurationMS int64 `json:"duration_ms"`
}

// historyLimit is how many failed runs a row keeps.
const historyLimit = 20

// History returns the last failed runs, oldest first. Redelivery keeps them.
func (e *EventDelivery) History() []Failure {
	var h []Failure
	_ = json.Unmarshal([]byte(e.Errors), &h) // what a foreign hand has damaged is no history
	return h
}
