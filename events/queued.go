package events

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/openloam/loam/tenant"
)

// Queued makes an event of a row that may be any writer's, by the rules of New: a valid name, an object of scalars, a tenant.
// Without an id it gets a random one. Without a tenant it is that of its payload; two that differ are refused. What Publish
// stamps onto a payload is added where it is missing.
func Queued(id, name, tenantID, payload, headers string) (Event, error) {
	if err := CheckName(name); err != nil {
		return Event{}, err
	}
	p, err := ParsePayload([]byte(payload))
	if err != nil {
		return Event{}, err
	}
	stamped, _ := p[KeyTenant].(string)
	if tenantID == "" {
		tenantID = stamped
	}
	switch err := tenant.CheckID(tenantID); {
	case err != nil:
		return Event{}, fmt.Errorf("neither the row nor its payload (%s) names a tenant: %w", KeyTenant, err)
	case stamped != "" && stamped != tenantID:
		return Event{}, fmt.Errorf("the row is of tenant %q, its payload says %q", tenantID, stamped)
	}
	if id == "" {
		v7, err := uuid.NewV7()
		if err != nil {
			return Event{}, fmt.Errorf("make an event id: %w", err)
		}
		id = v7.String()
	} else if id, err = givenID(id); err != nil {
		return Event{}, err
	}
	actor, _ := p[KeyActor].(string)
	_, actorSaid := p[KeyActor]
	e := Event{ID: id, Name: name, TenantID: tenantID, ActorID: actor, Payload: p, Headers: ParseHeaders(headers), encoded: []byte(payload), repeatable: true}
	if stamped == "" || !actorSaid {
		p[KeyTenant], p[KeyActor] = tenantID, orNil(actor)
		if e.encoded, err = p.encode(); err != nil {
			return Event{}, err
		}
	}
	return e, nil
}
