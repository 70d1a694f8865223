package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // so that Berlin is known everywhere

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/sweep"
)

const day = 24 * time.Hour

// pruner makes a Sweeper over a database, by a clock.
func pruner(db *database.DB, now func() time.Time, logs *rig.Logs, keep sweep.Keep) *sweep.Sweeper {
	return sweep.New(sweep.Config{DB: db, Now: now, Logger: slog.New(logs), Timeout: 30 * time.Second, Keep: keep})
}

// pruneAll prunes until nothing more is to be, and returns how many calls that took.
func pruneAll(t *testing.T, s *sweep.Sweeper) (calls int) {
	t.Helper()
	for {
		full, err := s.Prune(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if calls++; !full {
			return calls
		}
	}
}

// aged adds a row of each state of each table that was last touched at a time, and names it after its state and name.
func aged(t *testing.T, db *database.DB, tenantID, name string, at time.Time) {
	t.Helper()
	for _, status := range []string{"pending", "running", "delivered", "dead"} {
		stored, delivered := status, database.Time{}
		switch status {
		case "running":
			stored = "pending"
		case "delivered":
			delivered = database.At(at)
		}
		rig.Exec(t, db, `INSERT INTO event_deliveries
			(id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, created_at, updated_at, delivered_at)
			VALUES ($1, $2, $1, 'mailer', 'billing.invoice.paid', 'loam', '{}', $3, $4, $4, $5)`,
			status+" "+name, tenantID, stored, database.At(at), delivered)
	}
	for _, c := range []struct{ status, event string }{{"in_progress", "running"}, {"in_progress", "in_progress"}, {"done", "delivered"}, {"done", "done"}} {
		rig.Exec(t, db, `INSERT INTO processed_events VALUES ($1, $2, 'mailer', $3, $4, $4, 'x', CASE WHEN $3 = 'done' THEN CAST($4 AS bigint) END)`,
			tenantID, c.event+" "+name, c.status, at.UnixMilli())
	}
	for _, status := range []string{"pending", "processing", "done", "dead_lettered"} {
		rig.Exec(t, db, `INSERT INTO event_queue (event_id, tenant_id, event_type, payload, status, created_at)
			VALUES ($1, $2, 'billing.invoice.paid', '{}', $3, $4)`, status+" "+name, tenantID, status, database.At(at))
	}
}

// left is what is left in all three tables.
func left(t *testing.T, db *database.DB) string {
	t.Helper()
	return rig.Dump(t, db, `SELECT 'delivery ' || id FROM event_deliveries UNION ALL
		SELECT 'ledger ' || event_id FROM processed_events UNION ALL SELECT 'queue ' || event_id FROM event_queue ORDER BY 1`)
}

// contract: S-06, L-07. Rows of every state, of 31 to 40 days, and of one day: of the old ones only those go that are done. With
// KeepDead the dead and dead_lettered go too; kept for ever, nothing goes.
// scenario: B198
func TestOnlyWhatIsDoneGoes(t *testing.T) {
	t.Parallel()
	month := sweep.Keep{Delivered: 30 * day, Processed: 30 * day, Outbox: 7 * day, Dead: -1}
	withDead := month
	withDead.Dead = 30 * day
	for name, c := range map[string]struct {
		keep sweep.Keep
		gone []string
	}{
		"as by default":  {month, []string{"delivery delivered", "ledger delivered", "ledger done", "queue done"}},
		"with dead ones": {withDead, []string{"delivery delivered", "delivery dead", "ledger delivered", "ledger done", "queue done", "queue dead_lettered"}},
		"for ever":       {sweep.Keep{Delivered: -1, Processed: -1, Outbox: -1, Dead: -1}, nil},
		"unsaid":         {sweep.Keep{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				clock, logs := rig.NewClock(), &rig.Logs{}
				for d := 31; d <= 40; d++ {
					aged(t, db, []string{"acme", "globex"}[d%2], fmt.Sprint("old", d), clock.Now().Add(-time.Duration(d)*day))
				}
				aged(t, db, "acme", "young", clock.Now().Add(-day))
				var want []string
				for line := range strings.Lines(left(t, db)) {
					line = strings.TrimSpace(line)
					goes := false
					for _, g := range c.gone {
						goes = goes || strings.HasPrefix(line, g+" old")
					}
					if !goes {
						want = append(want, line)
					}
				}
				s := pruner(db, clock.Now, logs, c.keep)
				if calls := pruneAll(t, s); calls != 1 {
					t.Errorf("it took %d calls", calls)
				}
				if got := left(t, db); got != strings.Join(want, "\n") {
					t.Errorf("left:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
				}
				if got, want := len(logs.Lines("INFO", "pruned")) > 0, c.gone != nil; got != want {
					t.Errorf("logged: %q", logs.Lines())
				}
				before := left(t, db)
				if pruneAll(t, s); left(t, db) != before {
					t.Error("a second time deletes more")
				}
			})
		})
	}
}

// contract: S-06, L-07. A row is kept for exactly as long as was said, to the unit of its column: also by a clock whose zone changes to
// summer time in between.
// scenario: B100
func TestKeptToTheMinute(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, zone := range map[string]*time.Location{"UTC": time.UTC, "Berlin": berlin} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				now := time.Date(2026, 4, 10, 12, 0, 0, 123_456_000, zone) // the clocks go forward on 29 March
				const hours = 720 * time.Hour
				for name, age := range map[string]time.Duration{
					"29d23h59m": hours - time.Minute, "30d": hours, "30d00h01m": hours + time.Minute,
					"30d and 2ms": hours + 2*time.Millisecond, "40d": 40 * day,
				} {
					aged(t, db, "acme", name, now.Add(-age))
				}
				all := sweep.Keep{Delivered: hours, Processed: hours, Outbox: hours, Dead: hours}
				pruneAll(t, pruner(db, func() time.Time { return now }, &rig.Logs{}, all))
				for _, line := range []string{"delivery dead", "delivery delivered", "ledger delivered", "ledger done", "queue dead_lettered", "queue done"} {
					got := strings.Count(left(t, db), line+" ")
					if got != 2 || !strings.Contains(left(t, db), line+" 29d23h59m") || !strings.Contains(left(t, db)+"\n", line+" 30d\n") {
						t.Errorf("%s: %d are left of\n%s", line, got, left(t, db))
					}
				}
				for _, line := range []string{"delivery pending", "delivery running", "ledger running", "ledger in_progress", "queue pending", "queue processing"} {
					if got := strings.Count(left(t, db), line+" "); got != 5 {
						t.Errorf("%s: %d of 5 are left", line, got)
					}
				}
			})
		})
	}
}

// contract: L-05, L-07. What the ledger says is done stays while a delivery of it is pending: that is what keeps the handler from a
// second run. It goes when the delivery is through.
func TestAMarkStaysForAPendingDelivery(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		calls := mailer(r)
		e := r.Publish("acme", paid, nil)
		at := r.Clock.Now()
		for _, k := range []ledger.Key{
			{Tenant: "acme", EventID: e.ID, Handler: "mailer"}, {Tenant: "globex", EventID: e.ID, Handler: "mailer"}, {Tenant: "acme", EventID: e.ID, Handler: "other"},
		} {
			rig.Exec(t, db, `INSERT INTO processed_events VALUES ($1, $2, $3, 'done', $4, $4, 'once', $4)`, k.Tenant, k.EventID, k.Handler, at.UnixMilli())
		}
		marks := func() string {
			return rig.Dump(t, db, `SELECT tenant_id || ' ' || handler FROM processed_events ORDER BY 1`)
		}
		r.Clock.Add(31 * day)
		s := pruner(db, r.Clock.Now, r.Logs, sweep.Keep{Processed: 30 * day})
		if pruneAll(t, s); marks() != "acme mailer" {
			t.Errorf("the marks are %q", marks())
		}
		r.Work()
		if row := r.Row("acme", "mailer"); row.Status != "delivered" || len(calls) > 0 {
			t.Errorf("the row is %s, the handler was called for %v", row.Status, calls)
		}
		if pruneAll(t, s); marks() != "" {
			t.Errorf("the marks are %q when the delivery is through", marks())
		}
	})
}

// contract: S-06. A table that fails does not keep the others from their turn; the error names it, and the next call makes up for it.
// So it is when the answer of a commit is lost.
// scenario: B200
func TestPruneWhenATableFails(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		clock := rig.NewClock()
		keep := sweep.Keep{Delivered: day, Processed: day, Outbox: day, Dead: day}
		s := pruner(db, clock.Now, &rig.Logs{}, keep)
		down := errors.New("down")
		for _, c := range []struct{ part, what, kept string }{
			{"status = 'delivered'", "delivered deliveries", "delivery delivered x"},
			{"status = 'done' AND processed_at", "what the ledger remembers", "ledger delivered x\nledger done x"},
			{"status = 'done' AND created_at", "done rows of event_queue", "queue done x"},
			{"WITH RECURSIVE", "dead deliveries", "delivery dead x"},
			{"$2 AND status = 'dead'", "dead deliveries", "delivery dead x"},
			{"status = 'dead_lettered'", "dead_lettered rows", "queue dead_lettered x"},
		} {
			for _, table := range []string{"event_deliveries", "processed_events", "event_queue"} {
				rig.Exec(t, db, `DELETE FROM `+table)
			}
			aged(t, db, "acme", "x", clock.Now().Add(-2*day))
			const rest = "delivery pending x\ndelivery running x\nledger in_progress x\nledger running x\nqueue pending x\nqueue processing x"
			faults.Before(func(op dbtest.Op) error {
				if strings.Contains(op.SQL, c.part) {
					return down
				}
				return nil
			})
			full, err := s.Prune(t.Context())
			faults.Before(nil)
			if full || !errors.Is(err, down) || strings.Count(err.Error(), "down") != 1 || !strings.Contains(err.Error(), c.what) {
				t.Errorf("%s fails: full %v, %v", c.what, full, err)
			}
			for _, line := range append(strings.Split(rest, "\n"), strings.Split(c.kept, "\n")...) {
				if !strings.Contains(left(t, db), line) {
					t.Errorf("%s fails: %s has gone", c.what, line)
				}
			}
			if got, want := strings.Count(left(t, db), "\n"), strings.Count(rest+"\n"+c.kept, "\n"); got != want {
				t.Errorf("%s fails: left is\n%s", c.what, left(t, db))
			}
			if pruneAll(t, s); left(t, db) != rest {
				t.Errorf("%s failed before: left is\n%s", c.what, left(t, db))
			}
		}
		aged(t, db, "acme", "y", clock.Now().Add(-2*day))
		faults.After(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				return down
			}
			return nil
		})
		_, err := s.Prune(t.Context())
		faults.After(nil)
		if !errors.Is(err, down) || strings.Contains(left(t, db), "done y") {
			t.Errorf("answers are lost: %v, left is\n%s", err, left(t, db))
		}
	})
}

// A Prune whose context ends stops with the transaction that it is in: what that had deleted is there, or it is not.
func TestPruneStops(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		clock := rig.NewClock()
		manyOld(t, db, clock.Now().Add(-2*day), 2000)
		ctx, cancel := context.WithCancel(t.Context())
		faults.After(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				cancel()
			}
			return nil
		})
		full, err := pruner(db, clock.Now, &rig.Logs{}, sweep.Keep{Delivered: day, Processed: day}).Prune(ctx)
		faults.After(nil)
		var n, marks int
		rig.Scan(t, db, `SELECT (SELECT count(*) FROM event_deliveries), (SELECT count(*) FROM processed_events)`, nil, &n, &marks)
		if !full || !errors.Is(err, context.Canceled) || n != 1500 || marks != 2000 {
			t.Errorf("full %v, %v, %d rows and %d marks are left", full, err, n, marks)
		}
	})
}
