package durable_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// recorder keeps the statements that a database is given, each text once.
type recorder struct {
	mu   sync.Mutex
	seen map[string]dbtest.Op
}

func record(faults *dbtest.Faults) *recorder {
	rec := &recorder{seen: map[string]dbtest.Op{}}
	faults.Before(func(op dbtest.Op) error {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		if op.SQL != "" {
			rec.seen[op.SQL] = op
		}
		return nil
	})
	return rec
}

// ops returns the statements that contain one of the parts.
func (rec *recorder) ops(parts ...string) []dbtest.Op {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var out []dbtest.Op
	for text, op := range rec.seen {
		if slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) }) {
			out = append(out, op)
		}
	}
	slices.SortFunc(out, func(a, b dbtest.Op) int { return strings.Compare(a.SQL, b.SQL) })
	return out
}

// texts returns the texts of ops.
func (rec *recorder) texts(parts ...string) []string {
	var out []string
	for _, op := range rec.ops(parts...) {
		out = append(out, op.SQL)
	}
	return out
}

// fillMany makes 20,000 deliveries of 20 tenants, acme with the most, a tenth of them pending, and their rows in the ledger.
func fillMany(t *testing.T, r *rig.Rig) {
	t.Helper()
	const columns = `id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, created_at, updated_at, delivered_at`
	at := database.At(r.Clock.Now().Add(-time.Hour))
	rig.Insert(t, r.DB, "event_deliveries", columns, 20_000, func(i int) []any {
		tenantID, status := fmt.Sprintf("tenant%d", i%20), durable.Delivered
		if i%2 == 0 {
			tenantID = "acme"
		}
		switch i % 10 {
		case 0, 1:
			status = durable.Pending
		case 2:
			status = durable.Dead
		}
		return []any{
			fmt.Sprintf("0190b8a2-0000-7000-8000-%012d", i), tenantID, fmt.Sprintf("0190b8a2-0000-7000-9000-%012d", i/3),
			fmt.Sprint("key", i%3), paid, "loam", "{}", status, at, at, at,
		}
	})
	rig.Exec(t, r.DB, `INSERT INTO processed_events
		SELECT tenant_id, event_id, subscriber_key, CASE WHEN status = 'pending' THEN 'in_progress' ELSE 'done' END, $1, $1, 'x', $1
		FROM event_deliveries WHERE status <> 'dead' AND (status <> 'pending' OR id LIKE '%01')`, r.Clock.Now().UnixMilli())
	rig.Exec(t, r.DB, `INSERT INTO loam_pauses VALUES ('acme', 'key1', '2026-01-01')`)
	rig.Exec(t, r.DB, `ANALYZE`)
}

// work makes process p do all that it can do to a row, and returns its statements. r looks and meddles.
func work(t *testing.T, r, p *rig.Rig, faults *dbtest.Faults) *recorder {
	t.Helper()
	ctx, h := r.Ctx("acme"), newHeld(t)
	var result error
	p.Registry.Register("held", "billing.invoice.sent", h)
	p.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error { return result }, durable.WithMaxAttempts(2))
	rec := record(faults)
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	loseAnswers := func(n int) { // of the next commits
		faults.After(func(op dbtest.Op) error {
			if op.Kind == "commit" {
				if n--; n >= 0 {
					return errors.New("the answer is lost")
				}
			}
			return nil
		})
	}
	var ids []string
	deliver := func() { check(p.Deliveries.Deliver(ctx, ids...)) }
	find := func(where string) { // rows of acme
		ids = nil
		rows, err := r.DB.Read().QueryContext(ctx, `SELECT id FROM event_deliveries WHERE tenant_id = 'acme' AND `+where+` LIMIT 3`)
		check(err)
		defer rows.Close()
		for rows.Next() {
			var id string
			check(rows.Scan(&id))
			ids = append(ids, id)
		}
		check(rows.Err())
	}
	const mailer, held = `subscriber_key = 'mailer'`, `subscriber_key = 'held'`
	e := p.Publish("acme", paid, nil)
	p.Publish("acme", paid, nil, events.WithID(e.ID))
	find(mailer)
	for _, result = range []error{errors.New("no"), errors.New("no")} {
		deliver()
		r.Clock.Add(2 * time.Minute)
	}
	check(p.Deliveries.Redeliver(ctx, ids[0]))
	result = nil
	loseAnswers(2) // of the claim and of its repeat
	deliver()
	rig.Exec(t, r.DB, `UPDATE event_deliveries SET status = 'pending' WHERE `+mailer)
	deliver() // done
	find(`subscriber_key = 'key0' AND status = 'pending'`)
	deliver() // unknown

	p.Publish("acme", "billing.invoice.sent", nil)
	find(held)
	for _, gone := range []bool{false, true} {
		done := background(p, ids...)
		within(t, h.started, "the run")
		check(p.Deliveries.Renew(t.Context()))
		if gone {
			rig.Exec(t, r.DB, `DELETE FROM processed_events WHERE handler = 'held'`)
			check(p.Deliveries.Renew(t.Context()))
		} else {
			loseAnswers(1) // of the outcome
		}
		h.result <- nil
		ended(t, done, "the outcome")
		rig.Exec(t, r.DB, `UPDATE event_deliveries SET status = 'pending' WHERE `+held)
		rig.Exec(t, r.DB, `DELETE FROM processed_events WHERE handler = 'held'`)
	}
	p.Publish("acme", "billing.invoice.sent", nil)
	find(held)
	crash(t, p, ids[0])
	crash(t, p, ids[1])
	rig.Exec(t, r.DB, `DELETE FROM event_deliveries WHERE id = $1`, ids[1])
	r.Clock.Add(time.Hour)
	_, err := p.Sweeper.LostClaims(t.Context())
	check(err)
	_, err = p.Sweeper.RedeliverStuck(ctx, r.Clock.Now(), 500)
	check(err)
	_, err = p.Deliveries.Get(ctx, ids[0])
	check(err)
	for _, part := range []string{ // what must have been seen
		"INSERT INTO event_deliveries", "original_payload", "ORDER BY d.id", "INSERT INTO processed_events",
		"AS d SET runs", "SELECT id, tenant_id", "coalesce((SELECT p.status", "(SELECT p.status = 'done'", "duration_ms = $4, updated_at = $3",
		"SET attempts", "SET status = $3", "SET status = 'dead'", "SET status = 'pending', attempts = 0",
		"handler) IN", "SET status = 'done'", "status <> 'in_progress' AND started_at", "p.owner = j.c4",
		"SELECT count(*) FROM processed_events", "ORDER BY lease_until", "lease_until <= $6", "d.event_id = j.value ->> 0", "LIMIT $6",
	} {
		if len(rec.texts(part)) == 0 {
			t.Errorf("no statement with %q was seen", part)
		}
	}
	return rec
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// plan is how SQLite would do a statement.
func plan(t *testing.T, db *database.DB, text string) []string {
	t.Helper()
	n := 0
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		i, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		n = max(n, i)
	}
	rows, err := db.Read().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, make([]any, n)...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		out = append(out, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

var (
	byID   = regexp.MustCompile(`\bid (= |IN )`)
	scoped = regexp.MustCompile(`tenant_id (\|\| '' )?= (\$1|'acme'|j\.(value|c[01]))|\(tenant_id, event_id, handler`)
)

// contract: S-01, T-03. On a filled database no statement of the hot paths reads more of the two tables than it needs: one by
// id goes by the primary key, the ledger by its key, and the sweep and the lost claims by their indexes. Each names its
// tenant, but for the search for lost claims, which crosses them.
func TestPlans(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.Open(t)
	r := rig.New(t, db)
	fillMany(t, r)
	p, faults := process(t, r)
	rec := work(t, r, p, faults)
	for _, text := range rec.texts("event_deliveries", "processed_events") {
		steps := plan(t, p.DB, text)
		wrong, ofDeliveries := "", false
		for _, step := range steps {
			switch table, how, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(step, "SCAN "), "SEARCH "), " "); table {
			case "event_deliveries", "d":
				ofDeliveries = true
				if how == "" || !strings.HasPrefix(step, "SEARCH") || strings.HasSuffix(how, "(tenant_id=?)") {
					wrong = "it reads all rows, or all of a tenant"
				}
			case "processed_events", "p":
				if !strings.Contains(how, "USING PRIMARY KEY (tenant_id=? AND event_id=?") && !strings.Contains(how, "processed_events_lease (lease_until<?)") {
					wrong = "it does not go by the ledger's key"
				}
			}
		}
		if ofDeliveries && byID.MatchString(text) && !strings.Contains(strings.Join(steps, "\n"), "sqlite_autoindex_event_deliveries_1 (id=?)") {
			wrong = "it does not go by the row's id"
		}
		if !scoped.MatchString(text) && !strings.Contains(text, "INSERT INTO") && !strings.Contains(text, "ORDER BY lease_until LIMIT") {
			wrong = "it names no tenant"
		}
		if wrong != "" {
			t.Errorf("%s:\n%s\n  %s", wrong, text, strings.Join(steps, "\n  "))
		}
	}
}
