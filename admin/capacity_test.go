package admin_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
)

// filled makes a database with deliveries, and returns where it is with the addresses of the pages over it.
func filled(tb testing.TB, kind database.Dialect, delivered, dead, pending int) (place dbtest.Place, addresses map[string]string) {
	tb.Helper()
	place = dbtest.Fresh(tb, kind)
	db, faults := dbtest.OpenPlace(tb, place)
	w := worldOver(tb, db, faults)
	w.fill("done", durable.Delivered, delivered, false)
	w.fill("dead", durable.Dead, dead, false)
	w.fill("wait", durable.Pending, pending, false)
	half, err := w.Deliveries.Page(w.Ctx("acme"), durable.PageQuery{Status: durable.Dead, Limit: dead / 2})
	if err != nil {
		tb.Fatal(err)
	}
	middle := half.Rows[dead/2-1]
	at := admin.FormatTime(middle.UpdatedAt) + "." + middle.ID
	return place, map[string]string{
		"dead, first page":  "/dead",
		"dead, middle page": "/dead?before=" + at,
		"dead, back":        "/dead?after=" + at,
		"dead, last page":   "/dead?after=0.x",
		"pending":           "/pending",
		"one delivery":      "/deliveries/" + middle.ID,
	}
}

// cold makes pages over the database as a process that has just started has them.
func cold(tb testing.TB, place dbtest.Place) http.Handler {
	tb.Helper()
	db, _ := dbtest.OpenPlace(tb, place)
	e, err := loam.New(loam.Config{DB: db, Registry: durable.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	pages, err := admin.New(admin.Config{Engine: e, Authorize: authorize, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	return pages
}

func view(tb testing.TB, pages http.Handler, address string) time.Duration {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodGet, address, nil)
	r.Header.Set("X-Operator", "mira")
	out := httptest.NewRecorder()
	begun := time.Now()
	pages.ServeHTTP(out, r)
	took := time.Since(begun)
	if out.Code != http.StatusOK {
		tb.Fatalf("%s: status %d: %s", address, out.Code, out.Body)
	}
	return took
}

// BenchmarkFirstView prints how long the first view of each page takes in a process that has just started, with 200,000
// delivered rows and 20,000 dead ones, and then how long a view takes.
func BenchmarkFirstView(b *testing.B) {
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		place, addresses := filled(b, kind, 200_000, 20_000, 2_000)
		for name, address := range addresses {
			b.Run(string(kind)+" "+name, func(b *testing.B) {
				first := view(b, cold(b, place), address)
				if first > 100*time.Millisecond*slow {
					b.Errorf("the first view took %v, more than 100 ms", first)
				}
				pages := cold(b, place)
				for b.Loop() {
					view(b, pages, address)
				}
				b.ReportMetric(float64(first.Microseconds())/1000, "ms/first-view")
			})
		}
	}
}

// With 50,000 dead rows among two million, each page answers in under a second and memory stays bounded. Not in CI: it
// takes a minute to fill.
//
//	LOAM_CAPACITY=1 go test -run TestCapacity -v -timeout 30m ./admin
//
// scenario: B193
func TestCapacity(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOAM_CAPACITY") == "" {
		t.Log("set LOAM_CAPACITY=1 to run with 2,000,000 rows")
		return
	}
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		place, addresses := filled(t, kind, 2_000_000, 50_000, 2_000)
		for name, address := range addresses {
			pages := cold(t, place)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			took := view(t, pages, address)
			runtime.ReadMemStats(&after)
			grown := (after.TotalAlloc - before.TotalAlloc) >> 20
			fmt.Printf("%-10s %-20s %8.1f ms, %d MiB allocated\n", kind, name, float64(took.Microseconds())/1000, grown)
			if took > time.Second*slow || grown > 64 {
				t.Errorf("%s took %v and %d MiB", name, took, grown)
			}
		}
	})
}
