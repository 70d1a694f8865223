package events_test

import (
	"database/sql"
	"errors"
	"maps"
	"testing"

	"github.com/google/uuid"

	"github.com/openloam/loam/events"
)

// contract: E-10. Every event has an id of its own, a UUIDv7, later ones greater.
func TestEventsHaveIDs(t *testing.T) {
	t.Parallel()
	last := ""
	for range 1000 {
		e, err := events.New(t.Context(), name, nil, limits(1000))
		if err != nil {
			t.Fatal(err)
		}
		id, err := uuid.Parse(e.ID)
		if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 || e.ID != id.String() {
			t.Fatalf("the id is %q (%v)", e.ID, err)
		}
		if e.ID <= last {
			t.Fatalf("%s came after %s", e.ID, last)
		}
		if last = e.ID; e.Repeatable() {
			t.Fatal("an id of ours counts as given")
		}
	}
}

// contract: E-10. A caller may give the id, in any usual spelling of a UUID, and it is one id in all of them.
func TestRepeatables(t *testing.T) {
	t.Parallel()
	const id = "0190b8a2-6f3e-7c41-9a55-d0f1c2b3a495"
	for _, spelled := range []string{
		id, "0190B8A2-6F3E-7C41-9A55-D0F1C2B3A495", "0190b8a26f3e7c419a55d0f1c2b3a495", "{" + id + "}", "urn:uuid:" + id,
	} {
		e, err := events.New(t.Context(), name, nil, limits(1000), events.WithID(spelled))
		if err != nil || e.ID != id || !e.Repeatable() {
			t.Errorf("%s: got %q, %v", spelled, e.ID, err)
		}
	}
	for _, bad := range []string{"1", "order-42", id + "0", id[1:], "0190b8a2-6f3e-7c41-9a55-d0f1c2b3a49g", "x" + id + "y", "{" + id + "]", "0190b8a2_6f3e_7c41_9a55_d0f1c2b3a495"} {
		if e, err := events.New(t.Context(), name, nil, limits(1000), events.WithID(bad)); !errors.Is(err, events.ErrInvalidID) {
			t.Errorf("%s: got %q, %v, want ErrInvalidID", bad, e.ID, err)
		}
	}
}

// contract: E-10. A caller that gives an empty id has lost it, and with it the protection from publishing twice: refused.
func TestAnEmptyRepeatableIsRefused(t *testing.T) {
	t.Parallel()
	if e, err := events.New(t.Context(), name, nil, limits(1000), events.WithID("")); !errors.Is(err, events.ErrInvalidID) {
		t.Errorf("got %q, %v, want ErrInvalidID", e.ID, err)
	}
}

// contract: E-13. The caller's map is neither changed nor kept.
func TestTheCallersPayloadStaysTheCallers(t *testing.T) {
	t.Parallel()
	p := events.Payload{"id": 1, "tenant_id": "forged"}
	before := maps.Clone(p)
	e, err := events.New(t.Context(), name, p, limits(1000))
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(p, before) {
		t.Errorf("the caller's payload became %v", p)
	}
	p["id"] = 2
	if e.Payload["id"] != int64(1) {
		t.Errorf("the event's payload changed with the caller's: %v", e.Payload)
	}
}

// contract: E-16. An event hands on the transaction it was given, and no other event has one.
func TestEventTx(t *testing.T) {
	t.Parallel()
	e, stored := publish(t, nil)
	tx := &sql.Tx{}
	if with := e.WithTx(tx); with.Tx() != tx || with.ID != e.ID {
		t.Errorf("the transaction is %p, want %p", with.Tx(), tx)
	}
	if e.Tx() != nil || stored.Tx() != nil {
		t.Error("an event without a transaction has one")
	}
}

// contract: E-08. A row that a foreign hand has damaged is an error, not a panic or a half-read event.
func TestStoredRefusesDamage(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "null", "{", `{"a":[]}`, "\xff"} {
		if _, err := events.Stored("id", name, "acme", []byte(text), "{}"); !errors.Is(err, events.ErrInvalidPayload) {
			t.Errorf("%q: got %v, want ErrInvalidPayload", text, err)
		}
	}
}
