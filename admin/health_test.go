package admin_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"

	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/health"
	"github.com/openloam/loam/tenant"
)

// The handler for load balancers: a word and a status, wherever it is mounted; the report as JSON, without a tenant's
// numbers unless the application asks for one.
func TestHealth(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		good, bad := w.engine.report(), w.engine.report()
		bad.Live, bad.Ready, bad.Problems = false, false, []string{"The engine was stopped. It delivers nothing."}
		for _, c := range []struct {
			path   string
			report health.Report
			status int
			body   string
		}{
			{"/live", good, 200, "live\n"},
			{"/ready", good, 200, "ready\n"},
			{"/admin/health/live", bad, 503, "not live\n"},
			{"/x/ready", bad, 503, "not ready\n"},
			{"/", good, 200, `"ready":true`},
			{"/admin/health/", bad, 503, `"problems":["The engine was stopped. It delivers nothing."]`},
		} {
			w.engine.report = func() health.Report { return c.report }
			out := httptest.NewRecorder()
			admin.Health(w.engine).ServeHTTP(out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil))
			if out.Code != c.status || !strings.Contains(out.Body.String(), c.body) || out.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %s", c.path, out.Code, out.Body)
			}
		}
		for _, scoped := range []bool{false, true} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if scoped {
				r = r.WithContext(tenant.With(r.Context(), "acme"))
			}
			out := httptest.NewRecorder()
			admin.Health(w.engine).ServeHTTP(out, r)
			var report map[string]any
			if err := json.Unmarshal(out.Body.Bytes(), &report); err != nil {
				t.Fatal(err)
			}
			if _, has := report["due_now"]; has != scoped {
				t.Errorf("scoped %v: %v", scoped, report)
			}
		}
	})
}

// contract: D-23. The strip says what is late, what was expected, and what it means.
func TestStrip(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		well := w.engine.report()
		for name, c := range map[string]struct {
			change func(r *health.Report)
			says   string
			late   bool
		}{
			"well":  {func(*health.Report) {}, "State Engine working Due now 12 Oldest due 41 s Last sweep 1 min ago next in 3 min Clock +0.02 s", false},
			"new":   {func(r *health.Report) { r.LastSweep, r.DueNow = time.Time{}, 0 }, "State Engine working Due now 0 Oldest due none Last sweep none yet Clock", false},
			"sweep": {func(r *health.Report) { r.LastSweep = r.At.Add(-22 * time.Minute) }, "No sweep for 22 min; one is due every 5 min. What you redeliver may wait.", true},
			"due": {
				func(r *health.Report) { r.OldestDue = 21 * time.Minute },
				"The oldest due delivery has waited 21 min; a sweep finds it within 5 min. There is more to do than workers do. What you redeliver may wait.", true,
			},
			"clock": {
				func(r *health.Report) { r.ClockDifference = -60 * time.Second },
				"This process's clock is 1 min off the database's; the limit is 5 s. It runs nothing. What you redeliver runs elsewhere, or waits.", true,
			},
			"unchecked":  {func(r *health.Report) { r.ClockDifference, r.MaxClockSkew = time.Hour, -1 }, "Clock not checked", false},
			"migrations": {func(r *health.Report) { r.MigrationsPending = 2 }, "The database lacks 2 migrations of this version. What you redeliver may not run.", true},
			"other":      {func(r *health.Report) { r.Ready, r.Problems = false, []string{"The engine was stopped."} }, "The engine was stopped.", true},
			"not ready":  {func(r *health.Report) { r.Ready = false }, "This process is not ready.", true},
		} {
			report := well
			report.At = w.Clock.Now()
			report.LastSweep = w.Clock.Now().Add(-75 * time.Second)
			c.change(&report)
			w.engine.report = func() health.Report { return report }
			strip := w.get("/dead", "mira").class("strip")[0]
			if !strings.Contains(text(strip), c.says) || hasClass(strip, "late") != c.late {
				t.Errorf("%s: %q, late %v", name, text(strip), hasClass(strip, "late"))
			}
		}
	})
}
