package outbox_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

func letter(e events.Event, origin string) outbox.Letter {
	return outbox.Letter{
		Origin: origin, EventID: e.ID, EventType: e.Name, TenantID: e.TenantID, Payload: string(e.JSON()), Headers: e.Headers.JSON(),
		Attempts: 5, Why: errors.New("a bug"),
	}
}

// bury stores a letter, twice: the second time says nothing new.
func bury(t *testing.T, r *rig.Rig, l outbox.Letter) {
	t.Helper()
	for range 2 {
		if err := r.Queue.DeadLetter(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
}

// A message that is given up is a row that an operator sees, once. Requeued, it is captured here, and goes to no sink; a repeat
// of the message's end does not bury it again.
//
// contract: N-03
// model: 223, 224, 225, 226
func TestALetterIsRequeued(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", nothing)
		e := received(t, r, "acme", paid, 1)[0]
		bury(t, r, letter(e, "LOAM:7"))
		dead := entries(t, r, outbox.DeadLettered)
		if len(dead) != 1 || dead[0].EventID != e.ID || dead[0].TenantID != "acme" || dead[0].EventType != paid || dead[0].Payload != string(e.JSON()) ||
			dead[0].Attempts != 5 || dead[0].LastError != "a bug" || dead[0].Origin != "LOAM:7" {
			t.Fatalf("dead_lettered: %+v", dead)
		}
		if n := r.Count("loam.outbox.dead_lettered"); n != 1 {
			t.Errorf("%d were counted", n)
		}
		s := &sink{}
		q := r.WithSink(s)
		if err := q.Requeue(t.Context(), dead[0].ID); err != nil {
			t.Fatal(err)
		}
		rounds(t, q)
		bury(t, r, letter(e, "LOAM:7"))
		if sent, _ := s.count(); sent != 0 || len(r.Rows("acme")) != 1 || len(entries(t, r, outbox.Done)) != 1 {
			t.Errorf("%d were sent, %d deliveries, done: %+v", sent, len(r.Rows("acme")), entries(t, r, outbox.Done))
		}
		if err := q.Requeue(t.Context(), dead[0].ID); !errors.Is(err, outbox.ErrNotDeadLettered) {
			t.Errorf("a second time: %v", err)
		}
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != durable.Delivered || row.EventID != e.ID {
			t.Errorf("%+v", row)
		}
	})
}

// The letter of an event that this service sent itself is the row that it sent.
//
// contract: N-03
// model: 227
func TestALetterOfOnesOwn(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		e := r.Enqueue("acme", paid, events.Payload{"n": 1})
		rounds(t, r.WithSink(&sink{}))
		bury(t, r, letter(e, "LOAM:8"))
		dead := entries(t, r, outbox.DeadLettered)
		if len(dead) != 1 || dead[0].Origin != "LOAM:8" || dead[0].LastError != "a bug" || len(entries(t, r, outbox.Done)) != 0 {
			t.Errorf("dead_lettered: %+v", dead)
		}
	})
}

// It is so while a relay has the row in its hands, too: the bus was quicker than the answer to the relay, whose mark says nothing
// any more.
//
// contract: N-03, O-03
// model: 228
func TestALetterOfARowThatIsBeingSent(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		e := r.Enqueue("acme", paid, events.Payload{"n": 1})
		s := &sink{during: func(time.Time) { bury(t, r, letter(e, "LOAM:9")) }}
		q := r.WithSink(s)
		rounds(t, q)
		r.Clock.Add(2 * outbox.Lease)
		rounds(t, q)
		dead := entries(t, r, outbox.DeadLettered)
		if sent, _ := s.count(); sent != 1 || len(dead) != 1 || dead[0].Origin != "LOAM:9" || !dead[0].ClaimedAt.IsZero() || !dead[0].NextAttemptAt.IsZero() {
			t.Errorf("%d sent, dead_lettered: %+v", sent, dead)
		}
	})
}

// A letter can hold anything. What cannot be captured stays a letter, and the operator is told why; when the reason is gone,
// it can.
//
// contract: N-03, O-07
func TestALetterThatCannotBeRequeued(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", nothing)
		if err := r.Queue.DeadLetter(t.Context(), outbox.Letter{}); err == nil || !strings.Contains(err.Error(), "Origin") {
			t.Errorf("without an origin: %v", err)
		}
		e := received(t, r, "later", paid, 1)[0]
		odd := strings.Repeat("x", 3000)
		for _, l := range []outbox.Letter{
			{Origin: "LOAM:1", Payload: "\x00\xff not JSON", Headers: "\x00", EventType: "\xff"},
			{Origin: "LOAM:2", EventID: odd, EventType: odd, TenantID: odd, Payload: "{}"},
			{Origin: "LOAM:3"},
			letter(e, "LOAM:4"),
		} {
			bury(t, r, l)
		}
		dead := entries(t, r, outbox.DeadLettered)
		if len(dead) != 4 {
			t.Fatalf("dead_lettered: %+v", dead)
		}
		for i, d := range dead {
			err := r.Queue.Requeue(t.Context(), d.ID)
			if err == nil || errors.Is(err, durable.ErrUnknownTenant) != (i == 3) {
				t.Errorf("row %d: %v", i, err)
			}
		}
		if n := len(entries(t, r, outbox.DeadLettered)); n != 4 {
			t.Fatalf("%d are still letters", n)
		}
		rig.Exec(t, db, `INSERT INTO loam_tenants (id, created_at) VALUES ('later', $1)`, database.At(r.Clock.Now()))
		if err := r.Queue.Requeue(t.Context(), dead[3].ID); err != nil || len(r.Rows("later")) != 1 {
			t.Errorf("once its tenant is there: %v, %d deliveries", err, len(r.Rows("later")))
		}
	})
}

// Two messages with one id that are not the same event: a foreign producer's ids are unique for it alone. Each has its letter,
// once.
//
// contract: N-03
func TestLettersWithOneID(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		for range 2 {
			for origin, payload := range map[string]string{"LOAM:1": `{"n":1}`, "LOAM:2": `{"n":2}`} {
				bury(t, r, outbox.Letter{Origin: origin, EventID: "1", EventType: "odd", Payload: payload, Headers: "{}", Attempts: 1, Why: errors.New("no tenant")})
			}
		}
		got := map[string]string{}
		dead := entries(t, r, outbox.DeadLettered)
		for _, e := range dead {
			got[e.Origin] = e.Payload
		}
		if len(dead) != 2 || got["LOAM:1"] != `{"n":1}` || got["LOAM:2"] != `{"n":2}` || r.Count("loam.outbox.dead_lettered") != 2 {
			t.Errorf("dead_lettered: %+v", dead)
		}
	})
}

// The second of them, which is without its id, comes again when the first, which has it, has been deleted: it is known by where
// the bus has it.
//
// contract: N-03
func TestALetterOutlivesAnother(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		first := outbox.Letter{Origin: "LOAM:1", EventID: "1", EventType: "odd", Payload: `{"n":1}`, Headers: "{}"}
		second := first
		second.Origin, second.Payload = "LOAM:2", `{"n":2}`
		bury(t, r, first)
		bury(t, r, second)
		rig.Exec(t, db, `DELETE FROM event_queue WHERE origin = 'LOAM:1'`)
		bury(t, r, second)
		if dead := entries(t, r, outbox.DeadLettered); len(dead) != 1 || dead[0].Origin != "LOAM:2" || dead[0].EventID != "" {
			t.Errorf("dead_lettered: %+v", dead)
		}
	})
}

// Consumers that hear of the same messages at once store each once.
//
// contract: N-03
func TestLettersAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		const letters, consumers = 20, 4
		var group sync.WaitGroup
		for range consumers {
			group.Go(func() {
				for i := range letters {
					l := outbox.Letter{Origin: fmt.Sprintf("LOAM:%d", i), EventID: strconv.Itoa(i), EventType: "odd", Payload: "{}", Headers: "{}"}
					if i%2 == 1 {
						l.EventID = ""
					}
					if err := r.Queue.DeadLetter(t.Context(), l); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if n, counted := len(entries(t, r, outbox.DeadLettered)), r.Count("loam.outbox.dead_lettered"); n != letters || counted != letters {
			t.Errorf("%d letters, %d counted", n, counted)
		}
	})
}
