package durable_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: L-01, L-05, D-07. The conditions of the statements hold in each alone, whatever the one before it has seen: on a
// database with many writers a row can change between two of them.
// model: 10, 72
func TestEachStatementHoldsItsConditions(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		p, faults := process(t, r)
		p.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { return nil })
		p.Publish("acme", paid, nil)
		row := r.Row("acme", "mailer")
		rec := record(faults)
		for range 2 { // the second finds it done
			p.Deliver(durable.Wakeup{Tenant: "acme", IDs: []string{row.ID}})
			rig.Exec(t, db, `UPDATE event_deliveries SET status = 'pending'`)
		}
		now := r.Clock.Now()
		ms := now.UnixMilli()
		statements := []struct {
			name, text string
			args       []any
		}{
			{"the claim", "INSERT INTO processed_events", []any{3: ms, 4: ms + 60_000, 5: "me", 6: ms - 10_000}},
			{"its count", "AS d SET runs", []any{3: "me"}},
			{"the mark", "AND (SELECT p.status = 'done'", []any{2: nil}},
		}
		for i, st := range statements {
			texts := rec.texts(st.text)
			if len(texts) != 1 {
				t.Fatalf("%s was not seen: %q", st.name, texts)
			}
			statements[i].text = texts[0]
		}
		const early, paused = `next_attempt_at = '9999-01-01 00:00:00.000000'`, `subscriber_key = 'paused'`
		for _, tc := range []struct {
			row, ledger, owner string
			lease              int64 // from now
			tenant             string
			want               [3]int // rows that the claim, its count and the mark change
		}{
			{`status = 'pending'`, "", "", 0, "acme", [3]int{1, 0, 0}},
			{`next_attempt_at = '2026-01-01 00:00:00.000000'`, "", "", 0, "acme", [3]int{1, 0, 0}},
			{early, "", "", 0, "acme", [3]int{}},
			{paused, "", "", 0, "acme", [3]int{}},
			{`status = 'dead'`, "", "", 0, "acme", [3]int{}},
			{`status = 'delivered'`, "", "", 0, "acme", [3]int{}},
			{`status = 'pending'`, "in_progress", "me", 60_000, "acme", [3]int{1, 1, 0}},
			{early, "in_progress", "me", 60_000, "acme", [3]int{}},
			{paused, "in_progress", "me", 60_000, "acme", [3]int{}},
			{`status = 'dead'`, "in_progress", "me", 60_000, "acme", [3]int{}},
			{`status = 'delivered'`, "in_progress", "me", 60_000, "acme", [3]int{}},
			{`status = 'pending'`, "in_progress", "you", -9_999, "acme", [3]int{}},
			{`status = 'pending'`, "in_progress", "you", -10_000, "acme", [3]int{1, 0, 0}},
			{`status = 'pending'`, "done", "me", -10_000, "acme", [3]int{0, 0, 1}},
			{`status = 'pending'`, "done", "you", -10_000, "acme", [3]int{0, 0, 1}},
			{`status = 'dead'`, "done", "you", -10_000, "acme", [3]int{}},
			{`subscriber_key = 'other'`, "done", "you", -10_000, "acme", [3]int{1, 0, 0}},
			{`event_id = 'other'`, "done", "you", -10_000, "acme", [3]int{1, 0, 0}},
			{`status = 'pending'`, "", "", 0, "globex", [3]int{}},
			{`status = 'pending'`, "in_progress", "me", 60_000, "globex", [3]int{}},
			{`status = 'pending'`, "done", "me", 0, "globex", [3]int{}},
		} {
			for i, st := range statements {
				args := slices.Clone(st.args)
				args[0], args[1], args[2] = tc.tenant, database.List([]string{row.ID}), database.At(now)
				undo, n := errors.New("undo"), 0
				err := db.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, err1 := tx.ExecContext(ctx, `DELETE FROM processed_events`)
					_, err2 := tx.ExecContext(ctx, `INSERT INTO loam_pauses VALUES ('acme', 'paused', '2026-01-01')`)
					if tc.ledger != "" {
						_, err := tx.ExecContext(ctx, `INSERT INTO processed_events VALUES ('acme', $1, 'mailer', $2, $3, $3, $4, $3)`,
							row.EventID, tc.ledger, ms+tc.lease, tc.owner)
						err1 = errors.Join(err1, err)
					}
					_, err3 := tx.ExecContext(ctx, `UPDATE event_deliveries SET `+tc.row)
					if err := errors.Join(err1, err2, err3); err != nil {
						return err
					}
					var err error
					n, err = changes(ctx, tx, st.text, args)
					return cmp.Or(err, undo)
				})
				if !errors.Is(err, undo) {
					t.Fatal(err)
				}
				if n != tc.want[i] {
					t.Errorf("%s, ledger %q of %q, for %s: %s changes %d rows, want %d", tc.row, tc.ledger, tc.owner, tc.tenant, st.name, n, tc.want[i])
				}
			}
		}
	})
}

// changes runs a statement and returns how many rows it changes.
func changes(ctx context.Context, tx *sql.Tx, text string, args []any) (n int, err error) {
	if !strings.Contains(text, "RETURNING") {
		res, err := tx.ExecContext(ctx, text, args...)
		if err != nil {
			return 0, err
		}
		changed, err := res.RowsAffected()
		return int(changed), err
	}
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}
