package sweep_test

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/sweep"
)

// plans is how the database would do a statement, a line for each step: on PostgreSQL with its arguments known, and by a plan for
// whatever arguments.
func plans(t *testing.T, db *database.DB, op dbtest.Op) []string {
	t.Helper()
	args, nulls := make([]any, len(op.Args)), "NULL"+strings.Repeat(", NULL", len(op.Args)-1)
	for i, a := range op.Args {
		args[i] = a.Value
	}
	set := `SET enable_sort = on`
	if strings.Contains(op.SQL, "DELETE") { // as their transactions do
		set = `SET enable_sort = off`
	}
	if db.Dialect() == database.SQLite {
		return []string{rig.Dump(t, db, `EXPLAIN QUERY PLAN `+op.SQL, args...)}
	}
	conn, err := db.Own().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var out []string
	for _, c := range []struct {
		before  []string
		explain string
		args    []any
	}{
		{[]string{set}, op.SQL, args},
		{[]string{`SET plan_cache_mode = force_generic_plan`, `PREPARE p AS ` + op.SQL}, `EXECUTE p (` + nulls + `)`, nil},
		{[]string{`RESET plan_cache_mode`, `RESET enable_sort`, `DEALLOCATE p`}, "", nil},
	} {
		for _, statement := range c.before {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		if c.explain == "" {
			continue
		}
		var text string
		if err := conn.QueryRowContext(t.Context(), `EXPLAIN (FORMAT JSON) `+c.explain, c.args...).Scan(&text); err != nil {
			t.Fatalf("%s: %v", c.explain, err)
		}
		out = append(out, text)
	}
	return out
}

// byNoIndex is a step that reads a whole table, or the whole index of what is sorted.
var byNoIndex = regexp.MustCompile(`SCAN (r|d|event_deliveries|processed_events|event_queue)\b|TEMP B-TREE FOR ORDER|Seq Scan|Sort`)

// contract: S-06. On filled tables, with the planner's statistics and with those of an empty database, each state is pruned by
// its own index, and what is deleted is found by its key.
func TestPrunePlans(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		clock := rig.NewClock()
		rows := prunedBeside
		if db.Dialect() == database.PostgreSQL {
			rows = 60_000
			for _, table := range []string{"event_deliveries", "processed_events", "event_queue"} {
				rig.Exec(t, db, `ALTER TABLE `+table+` SET (autovacuum_enabled = false)`)
			}
		}
		rig.Exec(t, db, `ANALYZE`)
		manyOld(t, db, clock.Now().Add(-day/2), rows)
		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'dead', tenant_id = 'globex' WHERE id LIKE '%7'`)
		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'pending' WHERE id LIKE '%3' OR id LIKE '%4'`)
		rig.Exec(t, db, `INSERT INTO event_queue (event_id, tenant_id, event_type, payload, status, created_at)
			SELECT event_id, tenant_id, event_name, '{}', CASE status WHEN 'delivered' THEN 'done' WHEN 'dead' THEN 'dead_lettered' ELSE 'pending' END, created_at
			FROM event_deliveries`)

		var mu sync.Mutex
		seen := map[string]dbtest.Op{}
		faults.Before(func(op dbtest.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if op.SQL != "" {
				seen[op.SQL] = op
			}
			return nil
		})
		pruner := pruner(db, clock.Now, &rig.Logs{}, sweep.Keep{Delivered: day, Processed: day, Outbox: day, Dead: day})
		pruneAll(t, pruner)
		clock.Add(day)
		rig.Exec(t, db, `UPDATE event_deliveries SET updated_at = delivered_at WHERE status = 'dead'`)
		if _, err := pruner.Prune(t.Context()); err != nil { // so that the tenant's statement is seen
			t.Fatal(err)
		}
		faults.Before(nil)
		if _, set := seen[`SET LOCAL enable_sort = off`]; set != (db.Dialect() == database.PostgreSQL) {
			t.Error("it sorts, or does not, as the other database")
		}
		check := func(when string) {
			t.Helper()
			for part, indexes := range map[string][]string{
				"WHERE status = 'delivered'":        {"event_deliveries_delivered", "event_deliveries_pkey|sqlite_autoindex_event_deliveries_1 (id=?)"},
				"WHERE status = 'done' AND process": {"processed_events_done", "processed_events_pkey|USING PRIMARY KEY (tenant_id=? AND event_id=? AND handler=?)", "event_deliveries_tenant_id_event_id_subscriber_key_key|(tenant_id=? AND event_id=? AND subscriber_key=?)"},
				"WHERE status = 'done' AND created": {"event_queue_done", "event_queue_pkey|USING INTEGER PRIMARY KEY (rowid=?)"},
				"WHERE tenant_id = $2":              {"event_deliveries_dead", "event_deliveries_pkey|sqlite_autoindex_event_deliveries_1 (id=?)"},
				"WHERE status = 'dead_lettered'":    {"event_queue_dead", "event_queue_pkey|USING INTEGER PRIMARY KEY (rowid=?)"},
				"WITH RECURSIVE":                    {"event_deliveries_dead|event_deliveries_fingerprint", "event_deliveries_dead"},
			} {
				n := 0
				for text, op := range seen {
					if !strings.Contains(text, part) || strings.HasPrefix(text, "INSERT") {
						continue
					}
					n++
					for _, plan := range plans(t, db, op) {
						if wrong := byNoIndex.FindString(strings.ReplaceAll(plan, "SCAN r USING INDEX event_queue_dead", "")); wrong != "" { // all are few
							t.Errorf("%s: %s:\n%s\n%s", when, wrong, text, plan)
						}
						for _, index := range indexes {
							if !slices.ContainsFunc(strings.Split(index, "|"), func(s string) bool { return strings.Contains(plan, s) }) {
								t.Errorf("%s: not by %s:\n%s\n%s", when, index, text, plan)
							}
						}
					}
				}
				if n != 1 {
					t.Errorf("%d statements have %q", n, part)
				}
			}
		}
		check("with statistics of an empty database")
		rig.Exec(t, db, `ANALYZE`)
		check("with statistics")
	})
}
