package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/pgserver"
)

// migrated is a database that the program has brought to its schema.
func migrated(t *testing.T) dbtest.Place {
	t.Helper()
	place := dbtest.Empty(t, database.PostgreSQL)
	start(t, place.At, "-migrate").succeeds()
	return place
}

// receipts counts what each process has delivered.
func receipts(t *testing.T, db *database.DB) map[string]int {
	t.Helper()
	rows, err := db.Read().QueryContext(t.Context(), `SELECT sent_by, count(*) FROM shop_receipts GROUP BY sent_by`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	by := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		by[name] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return by
}

func count(t *testing.T, db *database.DB, query string) int {
	t.Helper()
	var n int
	if err := db.Read().QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// clients counts the River clients that have worked deliveries: those of started engines.
const clients = `SELECT count(DISTINCT client) FROM river_job, unnest(attempted_by) AS client WHERE kind = 'loam_event_delivery'`

// Three processes over one database: every order is delivered once, by both workers and never by the publisher.
//
// contract: J-04
func TestThreeProcesses(t *testing.T) {
	t.Parallel()
	const orders = 200
	place := migrated(t)
	args := func(role, name string) []string {
		return []string{"-role", role, "-name", name, "-run", "test", "-once", "-orders", strconv.Itoa(orders), "-every", "5ms"}
	}
	one, two := start(t, place.At, args("work", "worker-1")...), start(t, place.At, args("work", "worker-2")...)
	one.says("works")
	two.says("works")
	publisher := start(t, place.At, args("publish", "publisher")...)
	said := publisher.succeeds()
	db, _ := dbtest.OpenPlace(t, place)
	by := receipts(t, db)
	if len(by) != 2 || by["worker-1"] == 0 || by["worker-2"] == 0 || by["worker-1"]+by["worker-2"] != orders {
		t.Errorf("%d orders were delivered by %v, want all, by both workers", orders, by)
	}
	for p, name := range map[*process]string{one: "worker-1", two: "worker-2"} {
		if out := p.succeeds(); !strings.Contains(out, fmt.Sprintf("has delivered %d\n", by[name])) {
			t.Errorf("%s has delivered %d, and says:\n%s", name, by[name], out)
		}
		if line := fmt.Sprintf("\n%s  %d\n", name, by[name]); !strings.Contains(said, line) {
			t.Errorf("the publisher's table lacks %q:\n%s", line, said)
		}
	}
	if n := count(t, db, `SELECT count(*) FROM event_deliveries WHERE status = 'delivered' AND runs = 1`); n != orders {
		t.Errorf("%d rows are delivered in one run, want %d", n, orders)
	}
	if n := count(t, db, `SELECT count(*) FROM event_deliveries`); n != orders {
		t.Errorf("there are %d rows, want %d", n, orders)
	}
	if n := count(t, db, clients); n != 2 {
		t.Errorf("%d processes have worked jobs, want the two workers", n)
	}
	if strings.Contains(said, "has delivered") || strings.Contains(said, "works") {
		t.Errorf("the publisher works:\n%s", said)
	}
}

// With nobody else there the publisher delivers nothing, and leads nothing; a worker that comes later delivers all.
//
// contract: J-04, D-24
func TestPublisherAlone(t *testing.T) {
	t.Parallel()
	place := migrated(t)
	args := []string{"-run", "test", "-once", "-orders", "20", "-every", "1ms"}
	publisher := start(t, place.At, append(args, "-role", "publish", "-name", "publisher")...)
	publisher.says("has published 20")
	db, _ := dbtest.OpenPlace(t, place)
	if n := count(t, db, `SELECT count(*) FROM event_deliveries WHERE status = 'pending' AND runs = 0`); n != 20 {
		t.Errorf("%d rows wait, want 20", n)
	}
	if n := count(t, db, clients); n != 0 {
		t.Errorf("%d processes have worked jobs before there was a worker", n)
	}
	if n := count(t, db, `SELECT count(*) FROM river_leader`); n != 0 {
		t.Error("the publisher leads")
	}
	worker := start(t, place.At, append(args, "-role", "work", "-name", "late")...)
	publisher.succeeds()
	worker.succeeds()
	if by := receipts(t, db); len(by) != 1 || by["late"] != 20 {
		t.Errorf("delivered by %v, want 20 by the worker", by)
	}
}

// run.sh migrates an empty database, starts all three, ends well, and says which worker delivered how many.
func TestScript(t *testing.T) {
	t.Parallel()
	place := dbtest.Empty(t, database.PostgreSQL)
	temp := t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("temporary files are left: %v, %v", left, err)
		}
	})
	script, err := filepath.Abs("run.sh")
	if err != nil {
		t.Fatal(err)
	}
	out := startFile(t, "env", place.At, "TMPDIR="+temp, script, "-once", "-orders", "30").succeeds()
	if !strings.Contains(out, "has published 30\n") || !strings.Contains(out, "\nPROCESS   DELIVERED\n") {
		t.Errorf("it says:\n%s", out)
	}
	db, _ := dbtest.OpenPlace(t, place)
	total := 0
	for name, n := range receipts(t, db) {
		if total += n; !strings.HasPrefix(name, "worker-") || !strings.Contains(out, fmt.Sprintf("\n%s  %d\n", name, n)) {
			t.Errorf("%q delivered %d:\n%s", name, n, out)
		}
	}
	if total != 30 {
		t.Errorf("%d were delivered, want 30", total)
	}
}

// The server goes away and comes back under one process that does both: it waits, and goes on.
//
// scenario: B074
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t)
	start(t, server.URL(), "-migrate").succeeds()
	p := start(t, server.URL(), "-name", "both", "-run", "test", "-once", "-orders", "100", "-every", "50ms")
	p.says("works")
	server.Down()
	p.says("waits: ")
	server.Up()
	p.says("has published 100")
	p.says("\nboth     100\n")
	<-p.ended
	if p.err != nil { // what it logs meanwhile is right
		t.Errorf("%v\n%s%s", p.err, p.out, &p.errs)
	}
}

// Ctrl-C is a good end for each role.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	place := migrated(t)
	worker := start(t, place.At, "-role", "work", "-name", "worker")
	both := start(t, place.At, "-name", "both", "-every", "10ms")
	publisher := start(t, place.At, "-role", "publish", "-name", "publisher", "-every", "10ms")
	worker.says("order ")
	both.says("order ")
	for _, p := range []*process{publisher, both, worker} {
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		p.succeeds()
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	start(t, "postgres://127.0.0.1:1/x", "-role", "rest").fails(`-role: "rest" is not known, it must be publish, work or both`)
	start(t, "").fails("LOAM_DATABASE_URL: is empty")
	start(t, "app.db").fails("for SQLite see examples/quickstart")
	start(t, "postgres://me:secret@127.0.0.1:1/x").fails(database.ErrUnreachable.Error())
	start(t, dbtest.Empty(t, database.PostgreSQL).At, "-role", "work").fails("loam: Start: ")
}
