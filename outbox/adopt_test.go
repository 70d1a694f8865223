package outbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/migrations"
	"github.com/openloam/loam/outbox"
)

// unmigrated calls f with a database of each kind in which there is nothing yet.
func unmigrated(t *testing.T, f func(t *testing.T, db *database.DB)) {
	t.Helper()
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			db, _, err := dbtest.Connect(dbtest.Empty(t, kind))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
			f(t, db)
		})
	}
}

// An older event_queue with a thousand rows in every status is adopted: nothing is lost, each row has an event id, and the
// relay drains it. What cannot be read is dead_lettered; what some process was at is taken over when its claim is over.
//
// contract: O-02, O-03, O-07, M-03
func TestAnOlderQueueIsAdopted(t *testing.T) {
	t.Parallel()
	unmigrated(t, func(t *testing.T, db *database.DB) {
		script, err := os.ReadFile(filepath.Join("testdata", "old_queue_"+string(db.Dialect())+".sql"))
		if err != nil {
			t.Fatal(err)
		}
		rig.Exec(t, db, string(script))
		clock := rig.NewClock()
		if _, err := migrations.Migrate(t.Context(), db, clock.Now()); err != nil {
			t.Fatal(err)
		}
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", paid, nothing)
		ids := map[string]bool{}
		for status, want := range map[outbox.Status]int{outbox.Pending: 250, outbox.Processing: 250, outbox.Done: 250, outbox.DeadLettered: 250} {
			rows := entries(t, r, status)
			if len(rows) != want {
				t.Fatalf("%d rows are %s, want %d", len(rows), status, want)
			}
			for _, e := range rows {
				if e.EventID == "" || ids[e.EventID] || e.ID%10 != 0 || !e.CreatedAt.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
					t.Fatalf("%+v", e)
				}
				ids[e.EventID] = true
				if status == outbox.DeadLettered && e.LastError != "it was refused" {
					t.Errorf("%+v", e)
				}
			}
		}
		r.Enqueue("acme", paid, events.Payload{"new": true})
		if n := r.Relay(); n != 251 {
			t.Errorf("at once the relay dealt with %d rows, want the 250 that were pending and the new one", n)
		}
		if n := len(r.Rows("acme")); n != 231 {
			t.Errorf("acme has %d deliveries, want 231: 10 rows could not be read, and 10 name no tenant", n)
		}
		for _, e := range entries(t, r, outbox.Done) {
			if e.ID > 10000 && e.ID != 10001 {
				t.Errorf("the new row has number %d", e.ID)
			}
		}
		r.Clock.Add(outbox.Lease)
		if n := r.Relay(); n != 250 {
			t.Errorf("after their claims were over the relay dealt with %d rows, want 250", n)
		}
		if n, dead := len(r.Rows("acme")), len(entries(t, r, outbox.DeadLettered)); n != 481 || dead != 270 {
			t.Errorf("in the end %d deliveries, %d rows dead_lettered; want 481 and 270", n, dead)
		}
		left := 0
		if rig.Scan(t, db, `SELECT count(*) FROM event_queue WHERE status IN ('pending', 'processing')`, nil, &left); left != 0 {
			t.Errorf("%d rows are left", left)
		}
	})
}

// A table of that name that is something else is refused with a reason, and not altered; nothing is migrated.
//
// contract: O-02
func TestWhatIsNoQueueIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ table, row, want string }{
		"other":  {`id INTEGER PRIMARY KEY, title TEXT`, `1, 'a concert'`, "no column event_type"},
		"more":   {`id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT, status TEXT, attempts INTEGER, created_at TEXT, priority INTEGER`, `1, 'a.b.c', '{}', 'done', 0, '2026-01-02', 7`, `"priority"`},
		"status": {`id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT, status TEXT, attempts INTEGER, created_at TEXT`, `1, 'a.b.c', '{}', 'failed', 0, '2026-01-02'`, `"failed"`},
		"id":     {`id TEXT PRIMARY KEY, event_type TEXT, payload TEXT, status TEXT, attempts INTEGER, created_at TEXT`, `'x', 'a.b.c', '{}', 'done', 0, '2026-01-02'`, "its id is text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unmigrated(t, func(t *testing.T, db *database.DB) {
				rig.Exec(t, db, `CREATE TABLE event_queue (`+c.table+`)`)
				rig.Exec(t, db, `INSERT INTO event_queue VALUES (`+c.row+`)`)
				before := rig.Dump(t, db, `SELECT count(*) || ' rows' FROM event_queue`)
				_, err := migrations.Migrate(t.Context(), db, time.Now())
				if !errors.Is(err, migrations.ErrNotAQueue) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if after := rig.Dump(t, db, `SELECT count(*) || ' rows' FROM event_queue`); after != before {
					t.Errorf("the table has %s, had %s", after, before)
				}
				pending, err := migrations.Pending(t.Context(), db)
				if err != nil || !strings.Contains(strings.Join(pending, " "), "0003_outbox") {
					t.Errorf("pending are %q, %v", pending, err)
				}
			})
		})
	}
}
