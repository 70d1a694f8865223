package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/health"
)

// Route is a route of the pages, for tests that go through all of them.
type Route struct{ Method, Pattern string }

// Routes returns all.
func Routes() []Route {
	var out []Route
	for _, r := range routes {
		out = append(out, Route{r.method, r.pattern})
	}
	return out
}

// SetPageSize makes a handler's pages smaller.
func SetPageSize(h http.Handler, n int) { h.(*handler).pageSize = n }

// SheetPath is where the style sheet is.
func SheetPath() string { return sheetDir + sheetName }

// What pages do to texts and times.
var (
	FormatTime = formatTime
	Hidden     = hidden
	Number     = number
)

// PlaceAgain reads a place and writes it again.
func PlaceAgain(s string) (string, bool) {
	p, ok := parsePlace(s)
	return formatPlace(p), ok
}

// canned is an engine that has one text in every field.
type canned struct {
	text string
	now  time.Time
}

func (c canned) DeliveryPage(_ context.Context, q durable.PageQuery) (durable.Page, error) {
	return durable.Page{Newer: true, Older: true, Rows: []durable.Listed{{
		ID: c.text, EventID: c.text, SubscriberKey: c.text, EventName: c.text, Error: c.text, ErrorChars: 1000, Reason: durable.Reason(q.Status),
		UpdatedAt: database.At(c.now), NextAttemptAt: database.At(c.now.Add(time.Hour)),
	}}}, nil
}

func (c canned) DeliveryCounts(context.Context) (durable.Counts, error) { return durable.Counts{}, nil }

func (c canned) InspectDelivery(context.Context, string) (durable.Inspection, error) {
	return durable.Inspection{EventDelivery: durable.EventDelivery{
		ID: c.text, TenantID: c.text, EventID: c.text, SubscriberKey: c.text, EventName: c.text, Queue: c.text, Payload: c.text, Headers: c.text,
		Status: durable.Dead, LastError: c.text, Errors: c.text, UpdatedAt: database.At(c.now), CreatedAt: database.At(c.now),
	}, Reason: durable.NoHandler, Alive: true, LastSeen: c.now}, nil
}

func (c canned) RedeliverSeen(context.Context, string, database.Time) error { return nil }

func (c canned) Health(context.Context) health.Report {
	return health.Report{Problems: []string{c.text}}
}

// RenderAll returns every page with one text in every field.
func RenderAll(tb testing.TB, now time.Time, text string) map[string]string {
	tb.Helper()
	h, err := New(Config{
		Engine: canned{text, now}, Now: func() time.Time { return now }, Prefix: "/p",
		Authorize: func(*http.Request) (Operator, error) {
			return Operator{ID: text, Tenant: "acme", Rights: []Right{View, ViewPayloads, Redeliver}}, nil
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range []string{"/p/dead?of=x", "/p/pending", "/p/deliveries/x", "/p/deliveries/x/y"} {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, path, nil))
		out[path] = r.Body.String()
	}
	return out
}
