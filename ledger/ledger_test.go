package ledger_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/ledger"
)

var (
	// start has more digits than the ledger keeps.
	start = time.Date(2026, 3, 29, 0, 59, 58, 123_456_789, time.UTC)
	key   = ledger.Key{Tenant: "acme", EventID: "e1", Handler: "mailer"}
)

// led is the ledger of db.
func led(db *database.DB) *ledger.Ledger {
	return &ledger.Ledger{Lease: 60 * time.Second, Margin: 10 * time.Second, Dialect: db.Dialect()}
}

// candidates is a SELECT of keys.
func candidates(db *database.DB, keys ...ledger.Key) ledger.Candidates {
	list := make([][3]string, len(keys))
	for i, k := range keys {
		list[i] = [3]string{k.Tenant, k.EventID, k.Handler}
	}
	text, _ := json.Marshal(list)
	return ledger.Candidates{
		SQL:  `SELECT j.value ->> 0 AS tenant_id, j.value ->> 1 AS event_id, j.value ->> 2 AS handler FROM ` + db.Dialect().Each(1),
		Args: []any{string(text)},
	}
}

// in runs f in a transaction.
func in[T any](t *testing.T, db *database.DB, f func(ctx context.Context, tx *sql.Tx) (T, error)) T {
	t.Helper()
	var out T
	err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) (err error) {
		out, err = f(ctx, tx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func claim(t *testing.T, db *database.DB, now time.Time, owner string, keys ...ledger.Key) []ledger.Claim {
	t.Helper()
	return in(t, db, func(ctx context.Context, tx *sql.Tx) ([]ledger.Claim, error) {
		return led(db).Claim(ctx, tx, now, owner, candidates(db, keys...))
	})
}

// rows is the whole table.
func rows(t *testing.T, db *database.DB) []string {
	t.Helper()
	rs, err := db.Read().QueryContext(t.Context(), `SELECT tenant_id, event_id, handler, status, started_at, lease_until, owner,
		coalesce(processed_at, 0) FROM processed_events ORDER BY 1, 2, 3`)
	if err != nil {
		t.Fatal(err)
	}
	defer rs.Close()
	var out []string
	for rs.Next() {
		var tenant, event, handler, status, owner string
		var started, lease, processed int64
		if err := rs.Scan(&tenant, &event, &handler, &status, &started, &lease, &owner, &processed); err != nil {
			t.Fatal(err)
		}
		out = append(out, row(ledger.Key{Tenant: tenant, EventID: event, Handler: handler}, status, started, lease, owner, processed))
	}
	if err := rs.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func row(k ledger.Key, status string, started, lease int64, owner string, processed int64) string {
	return fmt.Sprint(k, status, started, lease, owner, processed)
}

// has puts a row into the table.
func has(t *testing.T, db *database.DB, k ledger.Key, status ledger.Status, started, lease int64, owner string) {
	t.Helper()
	in(t, db, func(ctx context.Context, tx *sql.Tx) (sql.Result, error) {
		return tx.ExecContext(ctx, `INSERT INTO processed_events VALUES ($1, $2, $3, $4, $5, $6, $7, NULL)
			ON CONFLICT (tenant_id, event_id, handler) DO UPDATE SET status = excluded.status, started_at = excluded.started_at,
			lease_until = excluded.lease_until, owner = excluded.owner, processed_at = NULL`,
			k.Tenant, k.EventID, k.Handler, status, started, lease, owner)
	})
}

// contract: L-01, L-08, L-05. A claim is granted where there is none, on one whose lease has been over for the margin, and on
// one's own; never on a live one of another owner, and never on what is done.
// model: 20, 23
func TestClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		now := start.UnixMilli()
		for _, tc := range []struct {
			name   string
			status ledger.Status // of the row that is there; "" is none
			lease  int64         // from now
			owner  string
			want   bool
		}{
			{"none", "", 0, "", true},
			{"live", ledger.InProgress, 60_000, "you", false},
			{"just over", ledger.InProgress, 0, "you", false},
			{"over, and the margin not", ledger.InProgress, -9_999, "you", false},
			{"over for the margin", ledger.InProgress, -10_000, "you", true},
			{"over for long", ledger.InProgress, -1e9, "you", true},
			{"one's own", ledger.InProgress, 60_000, "me", true},
			{"done", ledger.Done, -1e9, "you", false},
			{"done by oneself", ledger.Done, -1e9, "me", false},
		} {
			in(t, db, func(ctx context.Context, tx *sql.Tx) (sql.Result, error) {
				return tx.ExecContext(ctx, `DELETE FROM processed_events`)
			})
			if tc.status != "" {
				has(t, db, key, tc.status, now-70_000, now+tc.lease, tc.owner)
			}
			before := rows(t, db)
			got := claim(t, db, start, "me", key)
			want := []ledger.Claim{{Key: key, Token: ledger.Token{StartedAt: now, Owner: "me"}}}
			after := []string{row(key, "in_progress", now, now+60_000, "me", 0)}
			if !tc.want {
				want, after = nil, before
			}
			if !slices.Equal(got, want) || !slices.Equal(rows(t, db), after) {
				t.Errorf("%s: granted %v, want %v; rows %v, want %v", tc.name, got, want, rows(t, db), after)
			}
		}
	})
}

// contract: L-01, L-03. Of several candidates those are granted that can be, each by its own key.
func TestClaimMany(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		keys := []ledger.Key{key, {"acme", "e1", "other"}, {"acme", "e2", "mailer"}, {"globex", "e1", "mailer"}}
		has(t, db, keys[1], ledger.InProgress, 1, start.UnixMilli(), "you")
		got := claim(t, db, start, "me", keys...)
		var granted []ledger.Key
		for _, c := range got {
			granted = append(granted, c.Key)
		}
		if want := []ledger.Key{keys[0], keys[2], keys[3]}; len(granted) != 3 || !slices.Contains(granted, want[0]) ||
			!slices.Contains(granted, want[1]) || !slices.Contains(granted, want[2]) {
			t.Errorf("granted %v, want %v", granted, want)
		}
		if none := claim(t, db, start, "me"); none != nil {
			t.Errorf("without candidates: %v", none)
		}
	})
}

// contract: L-02, L-01. Of many processes that claim one key at once, one gets it.
func TestClaimIsExclusive(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		const n = 20
		got := make(chan []ledger.Claim, n)
		for range n {
			go func() {
				var claims []ledger.Claim
				err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) (err error) {
					claims, err = led(db).Claim(ctx, tx, start, ledger.NewOwner(), candidates(db, key))
					return err
				})
				if err != nil {
					t.Error(err)
				}
				got <- claims
			}()
		}
		granted := 0
		for range n {
			granted += len(<-got)
		}
		if granted != 1 {
			t.Errorf("granted %d times", granted)
		}
	})
}

// contract: L-03. A repeat after a lost answer finds the claims of its owner among the candidates: their token stays, their lease
// is fresh. Others', and what is done, it leaves alone.
func TestReclaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		mine, over := key, ledger.Key{Tenant: "acme", EventID: "e2", Handler: "mailer"}
		yours, done := ledger.Key{Tenant: "acme", EventID: "e3", Handler: "mailer"}, ledger.Key{Tenant: "acme", EventID: "e4", Handler: "mailer"}
		notAsked, globex := ledger.Key{Tenant: "acme", EventID: "e5", Handler: "mailer"}, ledger.Key{Tenant: "globex", EventID: "e1", Handler: "mailer"}
		now := start.UnixMilli()
		has(t, db, mine, ledger.InProgress, now-5, now+59_995, "me")
		has(t, db, over, ledger.InProgress, now-80_000, now-20_000, "me")
		has(t, db, yours, ledger.InProgress, now-80_000, now-20_000, "you")
		has(t, db, done, ledger.Done, now-5, now, "me")
		has(t, db, notAsked, ledger.InProgress, now-5, now, "me")
		has(t, db, globex, ledger.InProgress, now-5, now, "me")
		want := rows(t, db)
		got := in(t, db, func(ctx context.Context, tx *sql.Tx) ([]ledger.Claim, error) {
			return led(db).Reclaim(ctx, tx, start, "me", candidates(db, mine, over, yours, done, ledger.Key{Tenant: "acme", EventID: "gone", Handler: "x"}))
		})
		slices.SortFunc(got, func(a, b ledger.Claim) int { return int(b.StartedAt - a.StartedAt) })
		if !slices.Equal(got, []ledger.Claim{{mine, ledger.Token{StartedAt: now - 5, Owner: "me"}}, {over, ledger.Token{StartedAt: now - 80_000, Owner: "me"}}}) {
			t.Errorf("found %v", got)
		}
		want[0] = row(mine, "in_progress", now-5, now+60_000, "me", 0)
		want[1] = row(over, "in_progress", now-80_000, now+60_000, "me", 0)
		if !slices.Equal(rows(t, db), want) {
			t.Errorf("rows\n%v, want\n%v", rows(t, db), want)
		}
	})
}

// contract: L-03. Owners are random: none comes twice.
func TestNewOwner(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 10_000 {
		o := ledger.NewOwner()
		if len(o) < 20 || seen[o] {
			t.Fatalf("the owner %q", o)
		}
		seen[o] = true
	}
}
