package ledger_test

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/ledger"
)

// operation is what an owner does with its claim; it reports whether the claim was its own.
type operation struct {
	name string
	do   func(ctx context.Context, db *database.DB, tx *sql.Tx, now time.Time, c ledger.Claim) (bool, error)
	on   ledger.Status // the state in which it succeeds
	row  string        // the row afterwards, "" for none
}

func operations() []operation {
	started, later := start.UnixMilli(), start.UnixMilli()+5000
	same := row(key, "in_progress", started, started+60_000, "me", 0)
	return []operation{
		{"Done", func(ctx context.Context, db *database.DB, tx *sql.Tx, now time.Time, c ledger.Claim) (bool, error) {
			return led(db).Done(ctx, tx, now, c)
		}, ledger.InProgress, row(key, "done", started, started+60_000, "me", later)},
		{"Release", func(ctx context.Context, db *database.DB, tx *sql.Tx, _ time.Time, c ledger.Claim) (bool, error) {
			return led(db).Release(ctx, tx, c)
		}, ledger.InProgress, ""},
		{"Renew", func(ctx context.Context, db *database.DB, tx *sql.Tx, now time.Time, c ledger.Claim) (bool, error) {
			got, err := led(db).Renew(ctx, tx, now, []ledger.Claim{c})
			return len(got) == 1 && got[0] == c, err
		}, ledger.InProgress, row(key, "in_progress", started, later+60_000, "me", 0)},
		{"Held", func(ctx context.Context, db *database.DB, _ *sql.Tx, _ time.Time, c ledger.Claim) (bool, error) {
			return led(db).Held(ctx, db, c)
		}, ledger.InProgress, same},
		{"DoneBy", func(ctx context.Context, db *database.DB, tx *sql.Tx, _ time.Time, c ledger.Claim) (bool, error) {
			return led(db).DoneBy(ctx, tx, c)
		}, ledger.Done, row(key, "done", started, started+60_000, "me", 0)},
	}
}

// contract: L-03, L-08, T-03. Everything that an owner does with its claim is conditional on the whole of it: the key with its
// tenant, the millisecond and the owner, and the state. With any part another it changes nothing, and says so.
// model: 12, 13, 15, 63
func TestTheTokenIsTheWholeOfIt(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		right := ledger.Claim{Key: key, Token: ledger.Token{StartedAt: start.UnixMilli(), Owner: "me"}}
		other := map[string]func(*ledger.Claim){
			"tenant":  func(c *ledger.Claim) { c.Tenant = "globex" },
			"event":   func(c *ledger.Claim) { c.EventID = "e2" },
			"handler": func(c *ledger.Claim) { c.Handler = "other" },
			"earlier": func(c *ledger.Claim) { c.StartedAt-- },
			"later":   func(c *ledger.Claim) { c.StartedAt++ },
			"owner":   func(c *ledger.Claim) { c.Owner = "you" },
		}
		for _, op := range operations() {
			call := func(c ledger.Claim) bool {
				return in(t, db, func(ctx context.Context, tx *sql.Tx) (bool, error) {
					return op.do(ctx, db, tx, start.Add(5*time.Second), c)
				})
			}
			for _, status := range []ledger.Status{ledger.InProgress, ledger.Done} {
				has(t, db, key, status, start.UnixMilli(), start.UnixMilli()+60_000, "me")
				before := rows(t, db)
				for what, change := range other {
					wrong := right
					change(&wrong)
					if call(wrong) || !slices.Equal(rows(t, db), before) {
						t.Errorf("%s, %s row, another %s: taken for its own; %v, %v", op.name, status, what, before, rows(t, db))
					}
				}
				want, after := status == op.on, before
				if want {
					after = []string{op.row}
				}
				if got := call(right); got != want {
					t.Errorf("%s, %s row: %v, want %v", op.name, status, got, want)
				}
				if op.row == "" && want {
					after = nil
				}
				if !slices.Equal(rows(t, db), after) {
					t.Errorf("%s, %s row: afterwards %v, want %v", op.name, status, rows(t, db), after)
				}
			}
		}
	})
}

// contract: L-08. One renewal takes all claims of a process, over tenants, and returns those that are its own.
func TestRenewMany(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		now := start.UnixMilli()
		keys := []ledger.Key{key, {"acme", "e2", "mailer"}, {"globex", "e1", "mailer"}}
		mine := claim(t, db, start, "me", keys...)
		yours := claim(t, db, start, "you", ledger.Key{Tenant: "acme", EventID: "e3", Handler: "mailer"})
		// Renewed long after its lease, a claim that nobody took over is still its owner's.
		later := start.Add(time.Hour)
		stale := yours[0]
		stale.Owner = "me"
		got := in(t, db, func(ctx context.Context, tx *sql.Tx) ([]ledger.Claim, error) {
			return led(db).Renew(ctx, tx, later, append([]ledger.Claim{stale}, mine...))
		})
		slices.SortFunc(got, compare)
		slices.SortFunc(mine, compare)
		if !slices.Equal(got, mine) {
			t.Errorf("renewed %v, want %v", got, mine)
		}
		want := []string{
			row(keys[0], "in_progress", now, later.UnixMilli()+60_000, "me", 0),
			row(keys[1], "in_progress", now, later.UnixMilli()+60_000, "me", 0),
			row(yours[0].Key, "in_progress", now, now+60_000, "you", 0),
			row(keys[2], "in_progress", now, later.UnixMilli()+60_000, "me", 0),
		}
		if !slices.Equal(rows(t, db), want) {
			t.Errorf("rows\n%v, want\n%v", rows(t, db), want)
		}
		none := in(t, db, func(ctx context.Context, tx *sql.Tx) ([]ledger.Claim, error) {
			return led(db).Renew(ctx, tx, later, nil)
		})
		if none != nil || !slices.Equal(rows(t, db), want) {
			t.Errorf("without claims: %v", none)
		}
	})
}

func compare(a, b ledger.Claim) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.EventID, b.EventID))
}

// contract: L-08, T-03. Lost are the claims of all tenants that may be taken over, the oldest first, and no others.
// model: 20, 23
func TestLost(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		now := start.UnixMilli()
		older, oldest := ledger.Key{Tenant: "globex", EventID: "e9", Handler: "mailer"}, ledger.Key{Tenant: "acme", EventID: "e8", Handler: "mailer"}
		has(t, db, key, ledger.InProgress, now-70_000, now-10_000, "a")
		has(t, db, older, ledger.InProgress, now-80_000, now-20_000, "b")
		has(t, db, oldest, ledger.InProgress, now-90_000, now-30_000, "c")
		has(t, db, ledger.Key{Tenant: "acme", EventID: "e7", Handler: "m"}, ledger.InProgress, now-69_999, now-9_999, "d")
		has(t, db, ledger.Key{Tenant: "acme", EventID: "e6", Handler: "m"}, ledger.InProgress, now, now+60_000, "e")
		has(t, db, ledger.Key{Tenant: "acme", EventID: "e5", Handler: "m"}, ledger.Done, now-90_000, now-30_000, "f")
		all := []ledger.Claim{
			{oldest, ledger.Token{StartedAt: now - 90_000, Owner: "c"}},
			{older, ledger.Token{StartedAt: now - 80_000, Owner: "b"}},
			{key, ledger.Token{StartedAt: now - 70_000, Owner: "a"}},
		}
		for limit, want := range map[int][]ledger.Claim{10: all, 3: all, 2: all[:2], 1: all[:1]} {
			got, err := led(db).Lost(t.Context(), db, start, limit)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("limit %d: %v, %v; want %v", limit, got, err, want)
			}
		}
	})
}

// contract: L-08, D-25. Drop deletes exactly a claim that may be taken over; Forget deletes the row of its key, whatever it says.
func TestDropAndForget(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		now := start.UnixMilli()
		c := ledger.Claim{Key: key, Token: ledger.Token{StartedAt: now - 70_000, Owner: "me"}}
		drop := func(c ledger.Claim) {
			t.Helper()
			in(t, db, func(ctx context.Context, tx *sql.Tx) (bool, error) { return true, led(db).Drop(ctx, tx, start, c) })
		}
		for _, live := range []struct {
			status ledger.Status
			lease  int64
			gone   bool
		}{
			{ledger.InProgress, now + 1, false},
			{ledger.InProgress, now - 9_999, false},
			{ledger.Done, now - 10_000, false},
			{ledger.InProgress, now - 10_000, true},
		} {
			has(t, db, key, live.status, c.StartedAt, live.lease, "me")
			wrong := c
			wrong.Owner = "you"
			drop(wrong)
			wrong = c
			wrong.StartedAt++
			drop(wrong)
			if len(rows(t, db)) != 1 {
				t.Fatalf("%+v: dropped by another token", live)
			}
			if drop(c); (len(rows(t, db)) == 0) != live.gone {
				t.Errorf("%+v: afterwards %v", live, rows(t, db))
			}
		}
		others := []ledger.Key{{"acme", "e2", "mailer"}, {"acme", "e1", "other"}, {"globex", "e1", "mailer"}}
		for _, k := range others {
			has(t, db, k, ledger.InProgress, now, now+60_000, "me")
		}
		before := rows(t, db)
		for _, status := range []ledger.Status{ledger.InProgress, ledger.Done, ""} {
			if status != "" {
				has(t, db, key, status, now, now+60_000, "me")
			}
			in(t, db, func(ctx context.Context, tx *sql.Tx) (bool, error) { return true, led(db).Forget(ctx, tx, key) })
			if !slices.Equal(rows(t, db), before) {
				t.Errorf("forgotten %q: afterwards %v, want %v", status, rows(t, db), before)
			}
		}
	})
}
