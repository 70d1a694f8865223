package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// sink is outside the database: it remembers what was sent, and may refuse.
type sink struct {
	mu     sync.Mutex
	sent   map[string]int // by event id
	order  []string
	refuse func(events.Event) error
	during func(limit time.Time) // while it sends
}

func (s *sink) Send(ctx context.Context, evs []events.Event) []error {
	if s.during != nil {
		limit, _ := ctx.Deadline()
		s.during(limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(evs))
	for i, e := range evs {
		if s.refuse != nil {
			if errs[i] = s.refuse(e); errs[i] != nil {
				continue
			}
		}
		if s.sent == nil {
			s.sent = map[string]int{}
		}
		s.sent[e.ID]++
		s.order = append(s.order, e.ID)
	}
	return errs
}

func (s *sink) count() (n, twice int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.sent {
		if n++; k > 1 {
			twice++
		}
	}
	return n, twice
}

func rounds(t *testing.T, q *outbox.Queue) int {
	t.Helper()
	all := 0
	for {
		n, err := q.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all += n
	}
}

// A sink's errors: one that is the event's own spends an attempt and waits, a permanent one is final at once, and one of the
// transport spends none, however long it lasts: two days of it dead-letter nothing. While it lasts, one row is tried at a time.
//
// contract: O-03, O-04, O-06
func TestWhatASinkSays(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		s := &sink{}
		q := r.WithSink(s)
		good := r.Enqueue("acme", paid, events.Payload{"n": 1})
		bad := r.Enqueue("acme", paid, events.Payload{"n": 2})
		never := r.Enqueue("acme", paid, events.Payload{"n": 3})
		s.refuse = func(e events.Event) error {
			switch e.ID {
			case bad.ID:
				return errors.New("not now")
			case never.ID:
				return outbox.Permanent(errors.New("too large"))
			default:
				return nil
			}
		}
		rounds(t, q)
		if n, twice := s.count(); n != 1 || twice != 0 || s.sent[good.ID] != 1 {
			t.Errorf("%d were sent, %d of them twice", n, twice)
		}
		if dead := entries(t, r, outbox.DeadLettered); len(dead) != 1 || dead[0].EventID != never.ID || dead[0].LastError != "too large" {
			t.Errorf("dead_lettered: %+v", dead)
		}
		left := entries(t, r, outbox.Pending)
		if len(left) != 1 || left[0].Attempts != 1 || left[0].Deferrals != 0 || !left[0].ClaimedAt.IsZero() {
			t.Fatalf("pending: %+v", left)
		}

		asked := 0
		s.refuse = func(events.Event) error {
			asked++
			return outbox.Unavailable(errors.New("no route"))
		}
		for i := range 50 {
			r.Enqueue("acme", paid, events.Payload{"n": 10 + i})
		}
		end := r.Clock.Now().Add(48 * time.Hour)
		first := true
		for r.Clock.Now().Before(end) {
			before := asked
			if _, err := q.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !first && asked-before > 1 {
				t.Fatalf("%d rows were tried in one round of an outage", asked-before)
			}
			first = false
			r.Clock.Add(10 * time.Minute)
		}
		if asked < 100 {
			t.Fatalf("it tried %d times in two days", asked)
		}
		for _, e := range entries(t, r, outbox.Pending) {
			if e.Attempts > 1 || e.Deferrals == 0 && e.Attempts != 0 {
				t.Errorf("after the outage: %+v", e)
			}
		}
		if n := len(entries(t, r, outbox.DeadLettered)); n != 1 {
			t.Errorf("%d rows are dead_lettered, want the one of before", n)
		}
		s.refuse = nil
		r.Clock.Add(10 * time.Minute)
		rounds(t, q)
		if n, twice := s.count(); n != 52 || twice != 0 {
			t.Errorf("in the end %d were sent, %d of them twice, want 52 and 0", n, twice)
		}
	})
}

// A relay whose sending takes longer than its claim loses the rows: another one takes them over after 600 s, not before, and
// the marks of the first change nothing. Its sink is told to end before that.
//
// contract: O-03
// scenario: B112, B114
func TestAClaimThatIsOver(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		for n := range 10 { // each with a claim that outlives its lease
			r := rig.New(t, db)
			for i := range 20 {
				r.Enqueue("acme", paid, events.Payload{"n": i})
			}
			second := &sink{}
			other := r.WithSink(second)
			s := &sink{during: func(limit time.Time) {
				if time.Until(limit) <= 0 || time.Until(limit) > outbox.Lease-20*time.Second {
					t.Errorf("the sink may send until %v, the claim is over in %v", time.Until(limit), outbox.Lease)
				}
				r.Clock.Add(outbox.Lease - time.Millisecond)
				if k := rounds(t, other); k != 0 {
					t.Errorf("%d rows were taken over before the claim was over", k)
				}
				r.Clock.Add(2 * time.Millisecond)
				if k := rounds(t, other); k != 20 {
					t.Errorf("%d rows were taken over, want 20", k)
				}
			}}
			s.refuse = func(events.Event) error { // half of what it says is bad
				if n%2 == 0 {
					return errors.New("too late")
				}
				return nil
			}
			if _, err := r.WithSink(s).Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			if done := entries(t, r, outbox.Done); len(done) != 20 || done[0].Attempts != 0 || done[0].LastError != "" {
				t.Errorf("%d rows are done: %+v", len(done), done[0])
			}
			if k, twice := second.count(); k != 20 || twice != 0 {
				t.Errorf("the second sent %d, %d of them twice", k, twice)
			}
			if lost := r.Count("loam.outbox.claims_lost"); lost != 20 {
				t.Errorf("%d marks were refused, want 20", lost)
			}
			rig.Exec(t, db, `DROP TABLE test_wakeups`)
			rig.Exec(t, db, `DELETE FROM event_queue`)
			rig.Exec(t, db, `DELETE FROM loam_tenants`)
		}
	})
}

// While one relay is in the middle of a long call to its sink, another sends other rows, and nobody's transaction is open.
//
// contract: O-05
// scenario: B115
func TestALongCallBlocksNobody(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Enqueue("acme", paid, events.Payload{"n": 1})
		second := &sink{}
		s := &sink{during: func(time.Time) {
			began := time.Now()
			r.Enqueue("acme", paid, events.Payload{"n": 2})
			if n := rounds(t, r.WithSink(second)); n != 1 {
				t.Errorf("the second relay sent %d rows meanwhile, want 1", n)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("that took %v", took)
			}
			if db.Dialect() == database.PostgreSQL {
				var open int
				rig.Scan(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
					AND state LIKE 'idle in transaction%'`, nil, &open)
				if open != 0 {
					t.Errorf("%d transactions are open while a sink is called", open)
				}
			}
		}}
		if n := rounds(t, r.WithSink(s)); n != 1 {
			t.Errorf("the first relay sent %d rows, want 1", n)
		}
		if n := len(entries(t, r, outbox.Done)); n != 2 {
			t.Errorf("%d rows are done, want 2", n)
		}
	})
}

// A mark whose transaction fails, or whose answer is lost, is made again; sent again is nothing meanwhile.
//
// contract: O-03
func TestAMarkThatFails(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		for _, after := range []bool{false, true} {
			r := rig.New(t, db)
			r.Enqueue("acme", paid, nil)
			sent, failed := false, false
			s := &sink{during: func(time.Time) { sent = true }}
			hook := func(op dbtest.Op) error {
				if op.Kind == "commit" && sent && !failed {
					failed = true
					return errors.New("lost")
				}
				return nil
			}
			if after {
				faults.After(func(op dbtest.Op) error { return hook(op) })
			} else {
				faults.Before(hook)
			}
			if n := rounds(t, r.WithSink(s)); n != 1 || !failed {
				t.Errorf("%d rows, failed %v", n, failed)
			}
			if n, twice := s.count(); n != 1 || twice != 0 || len(entries(t, r, outbox.Done)) != 1 {
				t.Errorf("%d sent, %d twice", n, twice)
			}
			faults.Before(func(dbtest.Op) error { return nil })
			faults.After(func(dbtest.Op) error { return nil })
			rig.Exec(t, db, `DROP TABLE test_wakeups`)
			rig.Exec(t, db, `DELETE FROM event_queue`)
			rig.Exec(t, db, `DELETE FROM loam_tenants`)
		}
	})
}

// A backlog after an outage is drained in batches, oldest first, in bounded memory, and an event that comes meanwhile does not
// wait for more than what was there before it.
//
// scenario: B203
func TestABacklog(t *testing.T) {
	t.Parallel()
	n := backlog()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		numbers := `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)`
		rig.Exec(t, db, numbers+` INSERT INTO event_queue (event_id, tenant_id, event_type, payload, created_at)
			SELECT '00000000-0000-7000-8000-' || substr('00000000000' || i, length('00000000000' || i) - 11), 'acme', $2, '{"actor_id":null,"tenant_id":"acme"}', $3 FROM n`,
			n, paid, database.At(r.Clock.Now()))
		s := &sink{}
		q := r.WithSink(s)
		var peak uint64
		for {
			k, err := q.Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if k == 0 {
				break
			}
			if k > 500 {
				t.Fatalf("a round took %d rows", k)
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
		}
		if len(s.order) != n {
			t.Fatalf("%d were sent, want %d", len(s.order), n)
		}
		for i, id := range s.order {
			if want := fmt.Sprintf("%012d", i+1); !strings.HasSuffix(id, want) {
				t.Fatalf("event %d is %s: not the oldest first", i, id)
			}
		}
		t.Logf("%d rows drained, heap at most %d MB", n, peak>>20)
		if peak > 200<<20 {
			t.Errorf("the heap had %d MB", peak>>20)
		}
	})
}
