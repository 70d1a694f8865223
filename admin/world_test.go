package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/openloam/loam"
	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/health"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

var (
	_ admin.Engine   = (*loam.Engine)(nil)
	_ admin.Reporter = (*loam.Engine)(nil)
)

// engine is what the pages need, over a rig.
type engine struct {
	*durable.Deliveries
	report func() health.Report
}

func (e *engine) DeliveryPage(ctx context.Context, q durable.PageQuery) (durable.Page, error) {
	return e.Page(ctx, q)
}

func (e *engine) DeliveryCounts(ctx context.Context) (durable.Counts, error) { return e.Counts(ctx) }

func (e *engine) InspectDelivery(ctx context.Context, id string) (durable.Inspection, error) {
	return e.Inspect(ctx, id)
}

func (e *engine) Health(context.Context) health.Report { return e.report() }

// prefix is where a world's pages are mounted.
const prefix = "/admin/loam"

// world is a rig with pages over it. Who asks is said by the header X-Operator.
type world struct {
	*rig.Rig
	engine *engine
	pages  http.Handler
	faults *dbtest.Faults
}

var everything = []admin.Right{admin.View, admin.ViewPayloads, admin.Redeliver}

// operators are who X-Operator can name.
var operators = map[string]admin.Operator{
	"mira":   {ID: "mira@acme.example", Tenant: "acme", Rights: everything},
	"tom":    {ID: "tom@acme.example", Tenant: "acme", Rights: everything},
	"viewer": {ID: "viewer@acme.example", Tenant: "acme", Rights: []admin.Right{admin.View}},
	"nobody": {ID: "nobody@acme.example", Tenant: "acme"},
	"globex": {ID: "gus@globex.example", Tenant: "globex", Rights: everything},
}

func authorize(r *http.Request) (admin.Operator, error) {
	switch who := r.Header.Get("X-Operator"); who {
	case "":
		return admin.Operator{}, admin.ErrUnauthenticated
	case "barred":
		return admin.Operator{}, fmt.Errorf("policy: %w", admin.ErrForbidden)
	case "sign-in":
		return admin.Operator{}, &admin.Redirect{URL: "/login?next=%2Fadmin"}
	case "broken":
		return admin.Operator{}, errors.New("session store: dial tcp 10.0.0.7:6379: connection refused")
	default:
		return operators[who], nil
	}
}

// eachKind runs f as a parallel subtest for every kind of database.
func eachKind(t *testing.T, f func(t *testing.T, kind database.Dialect)) {
	t.Helper()
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f(t, kind)
		})
	}
}

func newWorld(tb testing.TB, kind database.Dialect, change ...func(*admin.Config)) *world {
	tb.Helper()
	db, faults := dbtest.OpenPlace(tb, dbtest.Fresh(tb, kind))
	return worldOver(tb, db, faults, change...)
}

func worldOver(tb testing.TB, db *database.DB, faults *dbtest.Faults, change ...func(*admin.Config)) *world {
	tb.Helper()
	w := &world{Rig: rig.New(tb, db), faults: faults}
	w.engine = &engine{Deliveries: w.Deliveries, report: func() health.Report {
		return health.Report{
			At: w.Clock.Now(), Live: true, Ready: true, DueNow: 12, OldestDue: 41 * time.Second,
			LastSweep: w.Clock.Now().Add(-75 * time.Second), SweepEvery: 5 * time.Minute,
			ClockDifference: 20 * time.Millisecond, MaxClockSkew: 5 * time.Second,
		}
	}}
	cfg := admin.Config{Engine: w.engine, Authorize: authorize, Prefix: prefix, Logger: slog.New(w.Logs), Now: w.Clock.Now}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if w.pages, err = admin.New(cfg); err != nil {
		tb.Fatal(err)
	}
	return w
}

// do makes a request to a path below the prefix, or to an address that a page gave.
func (w *world) do(method, path, who string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	w.T.Helper()
	if !strings.HasPrefix(path, prefix+"/") {
		path = prefix + path
	}
	r := httptest.NewRequestWithContext(w.T.Context(), method, path, strings.NewReader(form.Encode()))
	if who != "" {
		r.Header.Set("X-Operator", who)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	w.pages.ServeHTTP(out, r)
	return out
}

// get gets a page as somebody and parses it; the status must be 200.
func (w *world) get(path, who string) page {
	w.T.Helper()
	return w.want(http.StatusOK, w.do(http.MethodGet, path, who, nil))
}

// want parses an answer that must have a status.
func (w *world) want(status int, r *httptest.ResponseRecorder) page {
	w.T.Helper()
	if r.Code != status {
		w.T.Fatalf("status %d, want %d: %s", r.Code, status, r.Body)
	}
	root, err := html.Parse(r.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	return page{root}
}

// press sends the form and follows the redirect to the page behind it.
func (w *world) press(f form, who string) page {
	w.T.Helper()
	r := w.do(http.MethodPost, f.action, who, f.values)
	if r.Code != http.StatusSeeOther {
		w.T.Fatalf("pressing %s: status %d, want 303: %s", f.action, r.Code, r.Body)
	}
	return w.get(r.Header().Get("Location"), who)
}

// seed is a delivery put into the table by hand. Zero fields get something sensible.
type seed struct {
	id, tenant, event, key, name, payload, headers, lastError, errors string
	status                                                            durable.Status
	attempts, runs, unfinished                                        int
	next, delivered, created, updated                                 time.Time
	took                                                              int64
}

func (w *world) seed(seeds ...seed) {
	w.T.Helper()
	for _, s := range seeds {
		for _, f := range []struct {
			to *string
			or string
		}{
			{&s.tenant, "acme"},
			{&s.event, "ev-" + s.id},
			{&s.key, "mailer.receipt"},
			{&s.name, "billing.invoice.paid"},
			{&s.payload, `{"invoice_id":42,"tenant_id":"acme","actor_id":"7731"}`},
			{&s.headers, "{}"},
			{&s.errors, "[]"},
		} {
			if *f.to == "" {
				*f.to = f.or
			}
		}
		if s.status == "" {
			s.status = durable.Dead
		}
		if s.created.IsZero() {
			s.created = w.Clock.Now().Add(-3 * time.Hour)
		}
		if s.updated.IsZero() {
			s.updated = w.Clock.Now().Add(-4 * time.Minute)
		}
		var lastError any
		if s.lastError != "" {
			lastError = s.lastError
		}
		rig.Exec(w.T, w.DB, `INSERT INTO event_deliveries (id, tenant_id, event_id, subscriber_key, event_name, queue, payload, headers,
			status, attempts, runs, unfinished, last_error, errors, next_attempt_at, delivered_at, duration_ms, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, 'loam', $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)`,
			s.id, s.tenant, s.event, s.key, s.name, s.payload, s.headers, s.status, s.attempts, s.runs, s.unfinished, lastError, s.errors,
			database.At(s.next), database.At(s.delivered), s.took, database.At(s.created), database.At(s.updated))
	}
}

// snapshot is the whole table, to see that nothing has changed.
func (w *world) snapshot() string {
	w.T.Helper()
	return rig.Dump(w.T, w.DB, `SELECT * FROM event_deliveries ORDER BY id`) + fmt.Sprint(w.Wakeups.All())
}

func nothing(context.Context, events.Event) error { return nil }
