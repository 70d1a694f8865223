package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openloam/loam/database"

	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/durable"
)

// contract: A-05. Each route that changes something refuses what another site sends: a form, text/plain, a fetch without
// CORS, and whatever has another Origin.
// scenario: B179
func TestCrossSite(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		seedStates(w)
		form := w.get("/deliveries/01-exhausted", "mira").forms()[0].values
		before := w.snapshot()
		unsafe := 0
		for _, route := range admin.Routes() {
			if route.Method == http.MethodGet {
				continue
			}
			unsafe++
			path := strings.Replace(route.Pattern, "{id}", "01-exhausted", 1)
			for name, headers := range map[string][]string{
				"a form":                  {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Origin", "https://evil.example"},
				"a form from a subdomain": {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Origin", "https://user.example.com"},
				"text/plain":              {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Content-Type", "text/plain"},
				"fetch without CORS":      {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Content-Type", "text/plain"},
				"an old browser":          {"Sec-Fetch-Site", "", "Origin", "https://evil.example"},
				"a sandbox":               {"Sec-Fetch-Site", "", "Origin", "null"},
			} {
				p := w.want(http.StatusForbidden, w.do(route.Method, path, "mira", form, headers...))
				if !p.says("This form came from another site, so nothing was changed. Open the page and press the button there.") {
					t.Errorf("%s, %s: %s", path, name, text(p.Node))
				}
			}
		}
		if unsafe == 0 {
			t.Error("no route changes anything")
		}
		if w.snapshot() != before {
			t.Error("something has changed")
		}
	})
}

// contract: A-05. A GET, as of an image's address, and every other method that a route does not have, is refused and
// changes nothing; so is a form that no page of ours makes.
// scenario: B179, B185
func TestWrongMethods(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		seedStates(w)
		form := w.get("/deliveries/01-exhausted", "mira").forms()[0].values
		before := w.snapshot()
		for _, route := range admin.Routes() {
			path := strings.NewReplacer("{id}", "01-exhausted", "{$}", "").Replace(route.Pattern)
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
				if method == route.Method || method == "HEAD" && route.Method == "GET" {
					continue
				}
				r := w.do(method, path, "mira", form, "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
				if r.Code != http.StatusMethodNotAllowed || r.Header().Get("Allow") != route.Method {
					t.Errorf("%s %s: status %d, Allow %q", method, path, r.Code, r.Header().Get("Allow"))
				}
			}
		}
		// A form in the query of a GET, of a real page, does nothing either.
		for _, path := range []string{"/dead?", "/deliveries/01-exhausted?"} {
			w.get(path+form.Encode(), "mira")
		}
		for name, change := range map[string]func(){
			"no state":        func() { form.Del("status") },
			"another state":   func() { form.Set("status", "delivered") },
			"pending":         func() { form.Set("status", "pending") },
			"no time":         func() { form.Set("status", "dead"); form.Del("updated_at") },
			"a bad time":      func() { form.Set("updated_at", "0x10") },
			"a time too big":  func() { form.Set("updated_at", "99999999999999999999") },
			"a damaged place": func() { form.Set("before", "x") },
			"too long":        func() { form.Set("before", strings.Repeat("1", 1<<20)) },
		} {
			good := w.get("/deliveries/01-exhausted", "mira").forms()[0].values
			form = good
			change()
			p := w.want(http.StatusBadRequest, w.do("POST", "/deliveries/01-exhausted/redeliver", "mira", form))
			if !p.says("Nothing was changed.") {
				t.Errorf("%s: %s", name, text(p.Node))
			}
		}
		if w.snapshot() != before {
			t.Error("something has changed")
		}
	})
}

// A form works from a second tab, and without either header: that is no browser, and rests on Authorize.
// scenario: B180
func TestSameSite(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		w.fill("d", durable.Dead, 8, false)
		for name, headers := range map[string][]string{
			"same origin":    {"Sec-Fetch-Site", "same-origin", "Origin", "http://example.com"},
			"typed by hand":  {"Sec-Fetch-Site", "none"},
			"an old browser": {"Sec-Fetch-Site", "", "Origin", "http://example.com"},
			"no browser":     {"Sec-Fetch-Site", ""},
		} {
			before := len(w.get("/dead", "mira").ids())
			first, second := w.get("/dead", "mira").forms()[0], w.get("/dead", "mira").forms()[1]
			for _, f := range []form{second, first} {
				if r := w.do("POST", f.action, "mira", f.values, headers...); r.Code != http.StatusSeeOther {
					t.Errorf("%s: status %d", name, r.Code)
				}
			}
			if got := len(w.get("/dead", "mira").ids()); got != before-2 {
				t.Errorf("%s: %d are dead, want %d", name, got, before-2)
			}
		}
	})
}

// The health handler changes nothing and answers to GET alone; see health_test.go for what it says.
func TestHealthMethods(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			out := httptest.NewRecorder()
			admin.Health(w.engine).ServeHTTP(out, httptest.NewRequestWithContext(t.Context(), method, "/health/live", nil))
			if out.Code != http.StatusMethodNotAllowed || out.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s: %d", method, out.Code)
			}
		}
	})
}
