package events

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/openloam/loam/internal/txmark"
	"github.com/openloam/loam/tenant"
)

// DefaultMaxPayloadBytes is the size limit of an encoded payload unless the engine's Config says otherwise.
const DefaultMaxPayloadBytes = 64 << 10

var (
	// ErrIDReused is returned at publish when the tenant already has an event of the same id with another name or payload.
	ErrIDReused = errors.New("loam: the event id is taken by another event of this tenant")
	// ErrInvalidID is returned at publish for an id that is not a UUID.
	ErrInvalidID = errors.New("loam: invalid event id")
	// ErrInTransaction is returned by Publish (and whatever else would open a second transaction) on a context that is
	// inside one: InTx, PublishTx and their subscribers hand out such contexts.
	ErrInTransaction = txmark.ErrInTransaction
)

// Event is one event, as a subscriber sees it.
type Event struct {
	// ID is unique within the tenant: a UUIDv7, or the one that the publisher gave.
	ID string
	// Name is what happened, like billing.invoice.paid.
	Name string
	// TenantID and ActorID are those of the publisher's context, "" when it had none. A handler runs with the tenant in
	// its context; the actor is here only.
	TenantID, ActorID string
	// Payload is the subscriber's own copy.
	Payload Payload
	// Headers is what travels beside it.
	Headers Headers

	encoded []byte
	// repeatable: the id may have been published before, because the publisher gave it, or it was derived.
	repeatable bool
	undo       func()
	tx         *sql.Tx
}

// Tx returns the publisher's transaction: for an inline subscriber under PublishTx. Elsewhere it is nil.
func (e Event) Tx() *sql.Tx { return e.tx }

// WithTx returns the event with the transaction that inline subscribers reach.
func (e Event) WithTx(tx *sql.Tx) Event {
	e.tx = tx
	return e
}

// Repeatable reports whether the event may have been published before: its id was given, or derived in a handler's run.
func (e Event) Repeatable() bool { return e.repeatable }

// SameAs returns ErrIDReused if the event is not the one of the same id that is stored with a name and a payload.
func (e Event) SameAs(name, payload string) error {
	switch {
	case name != e.Name:
		return fmt.Errorf("%w: %s is a %s, now published as %s", ErrIDReused, e.ID, name, e.Name)
	case payload != string(e.encoded):
		return fmt.Errorf("%w: %s was published with another payload (or by another actor)", ErrIDReused, e.ID)
	}
	return nil
}

// Unpublished says that the event was not captured: a run that publishes it again gets the same id.
func (e Event) Unpublished() {
	if e.undo != nil {
		e.undo()
	}
}

// JSON returns the payload as it is stored. Equal payloads have equal text.
func (e Event) JSON() []byte { return bytes.Clone(e.encoded) }

// copy returns the event with a payload of its own: values are scalars, so one level is all there is.
func (e Event) copy() Event {
	e.Payload = maps.Clone(e.Payload)
	return e
}

// PublishOption changes one publish.
type PublishOption func(*options)

type options struct {
	id    string
	given bool
}

// WithID gives the event an id, a UUID in any of its usual spellings. Publishing again with the same id, name and payload
// adds no delivery for a subscriber that has one; with another name or payload it is ErrIDReused.
func WithID(id string) PublishOption {
	return func(o *options) { o.id, o.given = id, true }
}

// Limits are those that New checks.
type Limits struct {
	// PayloadBytes is the size limit of the payload as JSON.
	PayloadBytes int
	// Depth is how many events may cause each other in a row.
	Depth int
}

// New makes an event of what a publisher passes: it checks the name and the payload, stamps the tenant and the actor of
// ctx onto the payload, takes the trace and the causation of ctx, and gives the event an id. Nothing is changed in p.
func New(ctx context.Context, name string, p Payload, limits Limits, opts ...PublishOption) (Event, error) {
	if err := CheckName(name); err != nil {
		return Event{}, err
	}
	depth, err := depth(ctx, limits.Depth)
	if err != nil {
		return Event{}, err
	}
	e := Event{Name: name, TenantID: tenant.From(ctx), ActorID: tenant.Actor(ctx), Headers: headersOf(ctx, depth)}
	if e.TenantID != "" {
		if err := tenant.CheckID(e.TenantID); err != nil {
			return Event{}, err
		}
	}
	if e.Payload, err = p.normalize(); err != nil {
		return Event{}, err
	}
	if err := checkText(e.ActorID); err != nil {
		return Event{}, fmt.Errorf("%w: key %q: %w", ErrInvalidPayload, KeyActor, err)
	}
	e.Payload[KeyTenant], e.Payload[KeyActor] = orNil(e.TenantID), orNil(e.ActorID)
	if e.encoded, err = e.Payload.encode(); err != nil {
		return Event{}, err
	}
	if len(e.encoded) > limits.PayloadBytes {
		return Event{}, fmt.Errorf("%w: it has %d bytes as JSON, at most %d are allowed", ErrInvalidPayload, len(e.encoded), limits.PayloadBytes)
	}
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if !o.given {
		e.ID, e.undo, err = newID(ctx, name, e.encoded)
	} else {
		e.ID, err = givenID(o.id)
	}
	e.repeatable = o.given || e.undo != nil
	if err != nil {
		return Event{}, err
	}
	return e, nil
}

// Stored makes an event of what a row holds.
func Stored(id, name, tenantID string, payload []byte, headers string) (Event, error) {
	p, err := ParsePayload(payload)
	if err != nil {
		return Event{}, err
	}
	actor, _ := p[KeyActor].(string)
	return Event{ID: id, Name: name, TenantID: tenantID, ActorID: actor, Payload: p, Headers: ParseHeaders(headers), encoded: payload}, nil
}

func givenID(text string) (string, error) {
	id, err := uuid.Parse(text)
	if braced := len(text) == 38; err != nil || braced && (text[0] != '{' || text[37] != '}') { // which Parse does not look at
		return "", fmt.Errorf("%w: %.60q must be a UUID, like 0190b8a2-6f3e-7c41-9a55-d0f1c2b3a495", ErrInvalidID, text)
	}
	return id.String(), nil
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}
