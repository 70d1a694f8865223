package durable_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// node is a step of a plan of PostgreSQL's.
type node struct {
	Type  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Index string `json:"Index Name"`
	Cond  string `json:"Index Cond"`
	Plans []node `json:"Plans"`
}

// each calls f for the node and all below it. A bitmap's index counts as its table's.
func (n node) each(f func(node)) {
	if n.Type == "Bitmap Heap Scan" && len(n.Plans) == 1 {
		n.Index, n.Cond, n.Plans = n.Plans[0].Index, n.Plans[0].Cond, nil
	}
	f(n)
	for _, below := range n.Plans {
		below.each(f)
	}
}

func (n node) String() string {
	text, _ := json.MarshalIndent(n, "  ", " ")
	return string(text)
}

// explain is how PostgreSQL would do a statement: with its arguments known, and by a plan for whatever arguments. Drivers
// prepare statements, and the database then takes one or the other.
func explain(t *testing.T, db *database.DB, op dbtest.Op) map[string]node {
	t.Helper()
	args := make([]any, len(op.Args))
	nulls := strings.Repeat(", NULL", len(op.Args))
	for i, a := range op.Args {
		args[i] = a.Value
	}
	execute := "EXECUTE loam_plan"
	if nulls != "" {
		execute += "(" + nulls[2:] + ")"
	}
	conn, err := db.Own().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	out := map[string]node{}
	for kind, steps := range map[string]func() *sql.Row{
		"known arguments": func() *sql.Row { return conn.QueryRowContext(t.Context(), "EXPLAIN (FORMAT JSON) "+op.SQL, args...) },
		"any arguments": func() *sql.Row {
			for _, prepare := range []string{`SET plan_cache_mode = force_generic_plan`, "PREPARE loam_plan AS " + op.SQL} {
				if _, err := conn.ExecContext(t.Context(), prepare); err != nil {
					t.Fatalf("%s: %v", prepare, err)
				}
			}
			return conn.QueryRowContext(t.Context(), "EXPLAIN (FORMAT JSON) "+execute)
		},
	} {
		var text string
		var plans []struct{ Plan node }
		err := errors.Join(steps().Scan(&text), json.Unmarshal([]byte(text), &plans))
		if err != nil || len(plans) != 1 {
			t.Fatalf("%s: %s: %v", kind, op.SQL, err)
		}
		out[kind] = plans[0].Plan
	}
	for _, undo := range []string{`RESET plan_cache_mode`, `DEALLOCATE loam_plan`} {
		if _, err := conn.ExecContext(context.Background(), undo); err != nil {
			t.Error(err)
		}
	}
	return out
}

// misread says what is wrong with how a plan reads the two tables: with no index, by one that is not for the statement, or
// with a condition that leaves all rows of the tenant.
func misread(text string, plan node) string {
	wrong := ""
	plan.each(func(n node) {
		var by []string // the index, and what its condition must have
		switch {
		case n.Table == "" || n.Type == "ModifyTable":
			return
		case n.Table == "processed_events" && strings.Contains(text, "ORDER BY lease_until"):
			by = []string{"processed_events_lease", "lease_until <="}
		case n.Table == "processed_events":
			by = []string{"processed_events_pkey", "event_id ="}
		case n.Table != "event_deliveries":
			return
		case strings.Contains(text, "ORDER BY coalesce("):
			by = []string{"event_deliveries_due", "ROW("}
		case byID.MatchString(text):
			by = []string{"event_deliveries_pkey", "id ="}
		case strings.Contains(text, "event_id = "):
			by = []string{"event_deliveries_tenant_id_event_id_subscriber_key_key", "event_id ="}
		case strings.Contains(text, "(updated_at, id) "):
			by = []string{"event_deliveries_dead", "ROW("}
		case strings.Contains(text, "ORDER BY updated_at"):
			by = []string{"event_deliveries_dead", "tenant_id ="}
		case strings.Contains(text, "ORDER BY next_attempt_at"):
			by = []string{"event_deliveries_pending", "tenant_id ="}
		case strings.Contains(text, "count(*)"):
			by = []string{"event_deliveries_", "tenant_id ="} // of the dead, and of the pending
		default:
			wrong = "it is not known here"
			return
		}
		if !strings.HasPrefix(n.Index, by[0]) || !strings.Contains(n.Cond, by[1]) {
			wrong = fmt.Sprintf("%s is read by %q (%s), want %q (%s)", n.Table, n.Index, n.Cond, by[0], by[1])
		}
	})
	return wrong
}

// checkPlans checks the plans of statements. Those of the pages, and the sweep's, sort nothing.
func checkPlans(t *testing.T, db *database.DB, when string, ops []dbtest.Op) {
	t.Helper()
	for _, op := range ops {
		for kind, plan := range explain(t, db, op) {
			wrong := misread(op.SQL, plan)
			plan.each(func(n node) {
				if strings.HasSuffix(n.Type, "Sort") && strings.Contains(op.SQL, "LIMIT") {
					wrong = "it sorts"
				}
			})
			if wrong != "" {
				t.Errorf("%s, with %s: %s:\n%s\n  %s", when, kind, wrong, op.SQL, plan)
			}
		}
	}
}

// fillPostgres makes 300,000 deliveries of 20 tenants, acme with half of them, a third of its rows pending, and their rows in
// the ledger. Nothing takes statistics but the test.
func fillPostgres(t *testing.T, r *rig.Rig) {
	t.Helper()
	for _, statement := range []string{
		`ALTER TABLE event_deliveries SET (autovacuum_enabled = false)`,
		`ALTER TABLE processed_events SET (autovacuum_enabled = false)`,
		`INSERT INTO event_deliveries (id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, created_at, updated_at, delivered_at)
		 SELECT '0190b8a2-0000-7000-8000-' || lpad(i::text, 12, '0'), CASE WHEN i % 2 = 0 THEN 'acme' ELSE 'tenant' || (i % 20) END,
			'0190b8a2-0000-7000-9000-' || lpad((i / 3)::text, 12, '0'), 'key' || (i % 3), 'billing.invoice.paid', 'loam', '{}',
			CASE WHEN i % 10 < 4 THEN 'pending' WHEN i % 10 = 4 THEN 'dead' ELSE 'delivered' END, t, t, t
		   FROM generate_series(1, 300000) AS i, (SELECT CAST('2026-03-28' AS timestamptz) AS t) AS t`,
		`INSERT INTO processed_events SELECT tenant_id, event_id, subscriber_key, CASE WHEN status = 'pending' THEN 'in_progress' ELSE 'done' END, 1, 1, 'x', 1
		   FROM event_deliveries WHERE status <> 'dead' AND (status <> 'pending' OR id LIKE '%001')`,
		`INSERT INTO loam_pauses VALUES ('acme', 'key1', '2026-01-01')`,
	} {
		rig.Exec(t, r.DB, statement)
	}
	analyze(t, r.DB)
}

// analyze does what autovacuum does.
func analyze(t *testing.T, db *database.DB) {
	t.Helper()
	if _, err := db.Write().ExecContext(t.Context(), `VACUUM ANALYZE event_deliveries, processed_events`); err != nil {
		t.Fatal(err)
	}
}

// contract: S-01, T-03. TestPlans on PostgreSQL, whose plans go by statistics: right after they are taken with many rows
// pending, and when they were taken with nothing pending, which makes an index of pending rows look empty.
// scenario: B204
func TestPlansOnPostgres(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.OpenPlace(t, dbtest.Fresh(t, database.PostgreSQL))
	r := rig.New(t, db)
	fillPostgres(t, r)
	p, faults := process(t, r)
	ops := work(t, r, p, faults).ops("event_deliveries", "processed_events")
	rec := record(faults)
	page, err := p.Deliveries.Page(p.Ctx("acme"), durable.PageQuery{Status: durable.Dead, Limit: 5000})
	if err != nil {
		t.Fatal(err)
	}
	askPages(t, p, page.Rows[4000].Place())
	ops = append(ops, rec.ops("event_deliveries", "processed_events")...)
	ops = slices.DeleteFunc(ops, func(op dbtest.Op) bool { return strings.HasPrefix(op.SQL, "INSERT INTO event_deliveries") })
	checkPlans(t, r.DB, "with many pending", ops)

	rig.Exec(t, db, `UPDATE event_deliveries SET status = 'delivered' WHERE status = 'pending'`)
	rig.Exec(t, db, `UPDATE processed_events SET status = 'done' WHERE status = 'in_progress'`)
	analyze(t, db)
	checkPlans(t, r.DB, "with nothing pending", ops)
	rig.Exec(t, db, `UPDATE event_deliveries SET status = 'pending' WHERE substr(id, 36, 1) < '4'`)
	rig.Exec(t, db, `UPDATE processed_events SET status = 'in_progress' WHERE event_id LIKE '%7'`)
	checkPlans(t, r.DB, "with many pending, after statistics taken with none", ops)
}
