package durable_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

func fine(context.Context, events.Event) error { return nil }

func announce(t *testing.T, r *rig.Rig) {
	t.Helper()
	if err := r.Deliveries.Announce(t.Context(), true); err != nil {
		t.Fatal(err)
	}
}

func keys(r *rig.Rig) []string {
	r.T.Helper()
	var out []string
	for _, row := range r.Rows("acme") {
		out = append(out, row.SubscriberKey)
	}
	return out
}

// contract: D-24, D-04. A process that registers nothing writes the rows of every key in the table, however long ago it
// was seen, and wakes them in the queue that the table names.
// scenario: B032
func TestPublisherWithoutSubscribers(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		worker := rig.New(t, db)
		worker.Registry.RegisterFunc("mailer", "billing.", fine, durable.WithQueue("mail"))
		worker.Registry.RegisterFunc("audit", "billing.invoice.paid", fine)
		worker.Registry.RegisterFunc("other", "crm.", fine)
		announce(t, worker)
		publisher := worker.Second()

		publisher.Publish("acme", "billing.invoice.paid", nil)
		if got := keys(worker); !slices.Equal(got, []string{"audit", "mailer"}) {
			t.Fatalf("rows for %v", got)
		}
		var queues []string
		for _, w := range worker.Wakeups.All() {
			queues = append(queues, w.Queue)
		}
		if slices.Sort(queues); !slices.Equal(queues, []string{durable.DefaultQueue, "mail"}) {
			t.Fatalf("woken in %v", queues)
		}
		worker.Work()
		for _, row := range worker.Rows("acme") {
			if row.Status != durable.Delivered {
				t.Errorf("%s is %s", row.SubscriberKey, row.Status)
			}
		}

		// A year later nobody has said the key again: its rows are written still, and parked where they are seen.
		worker.Clock.Add(365 * 24 * time.Hour)
		publisher.Publish("acme", "billing.invoice.voided", nil)
		publisher.Work()
		if row := worker.Rows("acme")[2]; row.SubscriberKey != "mailer" || row.Status != durable.Dead ||
			row.LastError != `no registered subscriber "mailer"` {
			t.Fatalf("%s: %s, %s", row.SubscriberKey, row.Status, row.LastError)
		}
	})
}

// contract: D-22, D-11. A key that another process was seen with is put back for 30 s, however old the row, without an
// attempt and without a start; the other process then runs it. Unknown everywhere, it is dead.
// scenario: B030 B175
func TestUnknownHereKnownElsewhere(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		newer := rig.New(t, db)
		runs := 0
		newer.Registry.RegisterFunc("s2", "billing.", func(context.Context, events.Event) error { runs++; return nil })
		announce(t, newer)
		older := newer.Second()
		announce(t, older)

		older.Publish("acme", "billing.invoice.paid", nil)
		newer.Clock.Add(10 * time.Minute)
		start := newer.Clock.Now()
		older.Work()
		row := newer.Row("acme", "s2")
		if row.Status != durable.Pending || row.Attempts != 0 || row.Runs != 0 || row.Unfinished != 0 ||
			!row.NextAttemptAt.Equal(database.At(start.Add(30*time.Second)).Time) {
			t.Fatalf("after the old process: %s, %d attempts, %d runs, %d unfinished, next %v", row.Status, row.Attempts, row.Runs, row.Unfinished, row.NextAttemptAt)
		}
		newer.Clock.Add(30*time.Second + time.Millisecond)
		newer.Work()
		if row := newer.Row("acme", "s2"); row.Status != durable.Delivered || runs != 1 {
			t.Fatalf("after the new process: %s, %d runs", row.Status, runs)
		}

		// Seen more than 15 minutes ago: known to nobody. Brought back, it runs.
		older.Publish("acme", "billing.invoice.voided", nil)
		newer.Clock.Add(16 * time.Minute)
		older.Work()
		dead := newer.Rows("acme")[1]
		if dead.Status != durable.Dead || dead.Attempts != 0 {
			t.Fatalf("unknown everywhere: %s, %d attempts", dead.Status, dead.Attempts)
		}
		announce(t, newer)
		if err := newer.Deliveries.Redeliver(newer.Ctx("acme"), dead.ID); err != nil {
			t.Fatal(err)
		}
		newer.Work()
		if got := newer.Rows("acme")[1].Status; got != durable.Delivered {
			t.Fatalf("registered again and redelivered: %s", got)
		}
	})
}

// contract: D-22, D-20. A suspect that a process does not know stays a suspect.
func TestPutBackKeepsTheCrashCount(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		newer := rig.New(t, db)
		newer.Registry.RegisterFunc("s2", "billing.", fine)
		announce(t, newer)
		older := newer.Second()
		newer.Publish("acme", "billing.invoice.paid", nil)
		id := newer.Row("acme", "s2").ID
		rig.Exec(t, db, `UPDATE event_deliveries SET unfinished = 7`)
		if err := older.Deliveries.DeliverAlone(older.Ctx("acme"), id); err != nil {
			t.Fatal(err)
		}
		if row := newer.Row("acme", "s2"); row.Unfinished != 7 || row.Status != durable.Pending {
			t.Fatalf("%d unfinished, %s", row.Unfinished, row.Status)
		}
	})
}

// contract: D-21, D-24. After a rename with an alias, old and new processes write one row for an event between them, and
// a row under either key is run once.
func TestRenameWithAlias(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		older := rig.New(t, db)
		var runs atomic.Int32
		count := func(context.Context, events.Event) error { runs.Add(1); return nil }
		older.Registry.RegisterFunc("old", "billing.", count)
		announce(t, older)
		newer := older.Second()
		newer.Registry.RegisterFunc("new", "billing.", count, durable.WithAliases("old"))
		announce(t, newer)
		neither := older.Second()

		id := events.WithID("0190b8a2-6f3e-7c41-9a55-d0f1c2b3a495")
		older.Publish("acme", "billing.invoice.paid", nil, id)
		newer.Publish("acme", "billing.invoice.paid", nil, id) // again, by the new process: the old row is its own
		newer.Publish("acme", "billing.invoice.voided", nil)
		neither.Publish("acme", "billing.invoice.sent", nil)
		if got := keys(older); !slices.Equal(got, []string{"old", "new", "new"}) {
			t.Fatalf("rows for %v", got)
		}
		newer.Work()
		for _, row := range newer.Rows("acme") {
			if row.Status != durable.Delivered {
				t.Errorf("%s is %s", row.SubscriberKey, row.Status)
			}
		}
		if runs.Load() != 3 {
			t.Errorf("%d runs", runs.Load())
		}
		// The ledger knows the row's stored key, so that both exclude each other.
		var handlers int
		rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE handler = 'old' AND status = 'done'`, nil, &handlers)
		if handlers != 1 {
			t.Errorf("the ledger has %d rows for the old key, want 1", handlers)
		}
	})
}

// contract: D-24. A retired key gets no more rows; what is there ends dead. The refresh of a process that still has it does
// not bring it back; a start does.
func TestRetire(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		older := rig.New(t, db)
		older.Registry.RegisterFunc("gone", "billing.", fine)
		announce(t, older)
		newer := older.Second()
		newer.Registry.Retire("gone")
		newer.Publish("acme", "billing.invoice.paid", nil)
		announce(t, newer)
		newer.Publish("acme", "billing.invoice.paid", nil)
		if err := older.Deliveries.Announce(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		newer.Publish("acme", "billing.invoice.paid", nil)
		if n := len(newer.Rows("acme")); n != 1 {
			t.Fatalf("%d rows, want the one from before it was retired", n)
		}
		newer.Work()
		if row := newer.Row("acme", "gone"); row.Status != durable.Dead {
			t.Fatalf("the old row is %s", row.Status)
		}
		announce(t, older)
		newer.Publish("acme", "billing.invoice.paid", nil)
		if n := len(newer.Rows("acme")); n != 2 {
			t.Fatalf("%d rows after a start that registers the key again, want 2", n)
		}
	})
}

// contract: D-24, D-02. Explain says who would get an event, and from where it knows.
func TestExplain(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		other := rig.New(t, db)
		other.Registry.RegisterFunc("theirs", "billing.", fine, durable.WithQueue("slow"))
		announce(t, other)
		r := other.Second()
		r.Registry.RegisterFunc("ours", "billing.invoice.paid", fine)
		got, err := r.Deliveries.Explain(t.Context(), "billing.invoice.paid")
		if err != nil {
			t.Fatal(err)
		}
		want := []durable.Explanation{
			{Key: "ours", Pattern: "billing.invoice.paid", Queue: durable.DefaultQueue, Here: true},
			{Key: "theirs", Pattern: "billing.", Queue: "slow", LastSeen: database.At(r.Clock.Now()).Time},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
		if _, err := r.Deliveries.Explain(t.Context(), "billing"); err == nil {
			t.Error("a bad name is explained")
		}
	})
}
