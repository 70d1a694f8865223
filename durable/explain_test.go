package durable_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// askPages asks all that the pages ask of acme's deliveries; place is that of a dead one.
func askPages(t *testing.T, r *rig.Rig, place durable.Place) {
	t.Helper()
	for _, q := range []durable.PageQuery{
		{Status: durable.Dead}, {Status: durable.Dead, Before: place}, {Status: durable.Dead, After: place}, {Status: durable.Pending},
	} {
		if _, err := r.Deliveries.Page(r.Ctx("acme"), q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Deliveries.Counts(r.Ctx("acme")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Deliveries.Inspect(r.Ctx("acme"), place.ID); err != nil {
		t.Fatal(err)
	}
}

// Each query of the pages reads an index and sorts nothing, on filled tables, with and without the planner's statistics.
// scenario: B193
func TestPagesUseIndexes(t *testing.T) {
	t.Parallel()
	db, faults := dbtest.Open(t)
	r := rig.New(t, db)
	for tenantID, prefix := range map[string]string{"acme": "a", "globex": "g"} {
		fill(r, tenantID, prefix+"done", durable.Delivered, 5000)
		fill(r, tenantID, prefix+"dead", durable.Dead, 1000)
		fill(r, tenantID, prefix+"wait", durable.Pending, 1000)
	}
	place := durable.Place{At: database.At(r.Clock.Now()), ID: "adead-000500"}
	ask := func() (queries []string) {
		faults.Before(func(op dbtest.Op) error {
			if op.Kind == "query" && strings.Contains(op.SQL, "event_deliveries") {
				queries = append(queries, op.SQL)
			}
			return nil
		})
		defer faults.Before(nil)
		askPages(t, r, place)
		return queries
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			rig.Exec(t, db, `ANALYZE`)
		}
		queries := ask()
		if len(queries) != 8 {
			t.Errorf("%d queries, want 8: %q", len(queries), queries)
		}
		for _, q := range queries {
			steps := plan(t, db, q)
			for _, step := range steps {
				if strings.HasPrefix(step, "SCAN") && step != "SCAN CONSTANT ROW" && step != "SCAN found" || strings.Contains(step, "TEMP B-TREE") {
					t.Errorf("analyzed %v: %s\n%s\nof %q", analyzed, q, step, steps)
				}
			}
			if !slices.ContainsFunc(steps, func(s string) bool { return strings.Contains(s, "USING") }) {
				t.Errorf("no index: %s\n%q", q, steps)
			}
		}
	}
}
