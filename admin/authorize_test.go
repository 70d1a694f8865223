package admin_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/openloam/loam/database"

	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

// contract: A-04. Without an authorizer there is no handler; every mistake is reported at once, each by its field.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := admin.New(admin.Config{Prefix: "admin/../loam"})
	if err == nil {
		t.Fatal("an empty Config is accepted")
	}
	for _, field := range []string{"Engine: ", "Authorize: ", "Prefix: "} {
		if !strings.Contains("\n"+strings.TrimPrefix(err.Error(), "admin: Config: "), "\n"+field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}
	for _, prefix := range []string{"x", "//x", "/x//y", "/x/..", "/x/./y"} {
		if _, err := admin.New(admin.Config{Engine: &engine{}, Authorize: authorize, Prefix: prefix}); err == nil {
			t.Errorf("the prefix %q is accepted", prefix)
		}
	}
	for _, prefix := range []string{"", "/", "/x", "/x/", "/admin/loam", "/a b/ö"} {
		if _, err := admin.New(admin.Config{Engine: &engine{}, Authorize: authorize, Prefix: prefix}); err != nil {
			t.Errorf("the prefix %q is refused: %v", prefix, err)
		}
	}
}

// contract: A-04. What the application answers about who asks, on every route.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		w.seed(seed{id: "d1", lastError: "x: y"})
		before := w.snapshot()
		for _, route := range admin.Routes() {
			path := strings.NewReplacer("{id}", "d1", "{$}", "").Replace(route.Pattern)
			for who, c := range map[string]struct {
				status int
				says   string
			}{
				"":        {http.StatusUnauthorized, "Sign in to the application, then open this page again."},
				"barred":  {http.StatusForbidden, "You may not see deliveries. The application decides who may."},
				"nobody":  {http.StatusForbidden, "You may not see deliveries. The application decides who may."},
				"broken":  {http.StatusInternalServerError, "The log says why, under the reference"},
				"unknown": {http.StatusForbidden, "You may not see deliveries."},
			} {
				p := w.want(c.status, w.do(route.Method, path, who, nil))
				if !p.says(c.says) {
					t.Errorf("%s %s as %q does not say %q: %s", route.Method, path, who, c.says, text(p.Node))
				}
				if p.says("x: y") || p.says("acme") || p.says("refused") {
					t.Errorf("%s %s as %q shows what it must not: %s", route.Method, path, who, text(p.Node))
				}
			}
			r := w.do(route.Method, path, "sign-in", nil)
			if r.Code != http.StatusSeeOther || r.Header().Get("Location") != "/login?next=%2Fadmin" {
				t.Errorf("%s %s: redirect %d to %q", route.Method, path, r.Code, r.Header().Get("Location"))
			}
		}
		if w.snapshot() != before {
			t.Error("something has changed")
		}
		if len(w.Logs.Lines("connection refused", "reference")) != len(admin.Routes()) {
			t.Error("the log does not say why Authorize failed")
		}
	})
}

// An operator without a tenant sees nothing, whatever their rights.
func TestOperatorWithoutTenant(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind, func(c *admin.Config) {
			c.Authorize = func(*http.Request) (admin.Operator, error) { return admin.Operator{ID: "x", Rights: everything}, nil }
		})
		w.want(http.StatusInternalServerError, w.do("GET", "/dead", "x", nil))
		if len(w.Logs.Lines("invalid tenant id")) != 1 {
			t.Error("the log does not say what is wrong")
		}
	})
}

// contract: A-04, T-05. Another tenant's delivery is not found on any route, exactly like one that there is not, and no
// list shows it.
func TestOtherTenant(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		seedStates(w)
		before := w.snapshot()
		form := w.get("/deliveries/01-exhausted", "mira").forms()[0]
		withID := 0
		for _, route := range admin.Routes() {
			if !strings.Contains(route.Pattern, "{id}") {
				p := w.want(map[bool]int{true: 303, false: 200}[route.Pattern == "/{$}"], w.do(route.Method, strings.Replace(route.Pattern, "{$}", "", 1), "globex", nil))
				for _, id := range p.ids() {
					if id != "91-globex" {
						t.Errorf("%s shows %s to globex", route.Pattern, id)
					}
				}
				continue
			}
			withID++
			answers := map[string]string{}
			for _, id := range []string{"01-exhausted", "no-such-id"} {
				r := w.do(route.Method, strings.Replace(route.Pattern, "{id}", id, 1), "globex", form.values)
				answers[id] = strings.ReplaceAll(r.Body.String(), id, "")
				if p := w.want(http.StatusNotFound, r); !p.says("No such delivery in globex. It may have been removed after its time of keeping.") {
					t.Errorf("%s says %s", route.Pattern, text(p.Node))
				}
			}
			if answers["01-exhausted"] != answers["no-such-id"] {
				t.Errorf("%s tells another tenant's delivery from none", route.Pattern)
			}
		}
		if withID < 2 {
			t.Errorf("only %d routes with an id", withID)
		}
		// Nor does the line about a press, or a cursor.
		if p := w.get("/dead?of=01-exhausted&result=redelivered&signed=x", "globex"); p.flash() != "" {
			t.Errorf("globex reads %q", p.flash())
		}
		if got := w.get("/dead?before=9999999999999999.zz", "globex").ids(); len(got) != 1 || got[0] != "91-globex" {
			t.Errorf("a cursor shows globex %v", got)
		}
		if w.snapshot() != before {
			t.Error("something has changed")
		}
	})
}

// contract: A-04. A viewer sees no button, and no payload, and a forged form is refused with the reason.
func TestViewer(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		seedStates(w)
		before := w.snapshot()
		const why = "You can look at deliveries but not redeliver them. The application decides who may."
		for _, path := range []string{"/dead", "/deliveries/01-exhausted"} {
			p := w.get(path, "viewer")
			if len(p.forms()) != 0 || len(p.tag("button")) != 0 || !p.says(why) {
				t.Errorf("%s has %d buttons for a viewer", path, len(p.tag("button")))
			}
		}
		p := w.get("/deliveries/01-exhausted", "viewer")
		if !p.says("You may not see payloads.") || p.says("inv_1") || p.says("7731") {
			t.Errorf("a viewer's page: %s", text(p.Node))
		}
		if !w.get("/deliveries/01-exhausted", "mira").says("by actor 7731") {
			t.Error("who may see payloads does not see who published")
		}
		form := w.get("/dead", "mira").forms()[0]
		if p := w.want(http.StatusForbidden, w.do("POST", form.action, "viewer", form.values)); !p.says(why) {
			t.Errorf("a forged form is answered with %s", text(p.Node))
		}
		if w.snapshot() != before {
			t.Error("something has changed")
		}
	})
}

// Errors are shown as the handlers returned them, secrets and all, to those with the right to view and to nobody else
// (docs/admin.md says so).
// scenario: B197
func TestSecretsInErrors(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		const secret = "*errors.errorString: postgres://u:s3cret@h/db: Authorization: Bearer abc" //nolint:gosec // that is what it is about
		w.seed(seed{id: "d1", lastError: secret, errors: history(durable.Failure{Run: 1, Error: secret})})
		for who, sees := range map[string]bool{"mira": true, "viewer": true, "nobody": false, "barred": false, "": false, "globex": false} {
			for _, path := range []string{"/dead", "/deliveries/d1"} {
				if body := w.do("GET", path, who, nil).Body.String(); strings.Contains(body, "s3cret") != sees {
					t.Errorf("%q sees the error on %s: %v", who, path, !sees)
				}
			}
		}
		if len(w.Logs.Lines("s3cret")) != 0 {
			t.Error("the pages log an error's text")
		}
	})
}

// contract: A-01. It is mounted anywhere, with http.StripPrefix and without, under names that its own pages have too.
// scenario: B180
func TestPrefix(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		w.Registry.RegisterFunc("mailer.receipt", "billing.", nothing)
		for _, prefix := range []string{"", "/x", "/admin/loam", "/dead", "/deliveries/dead", "/a b/ö%"} {
			for _, strip := range []bool{false, true} {
				rig.Exec(t, w.DB, `DELETE FROM event_deliveries`)
				w.seed(seed{id: "d1", attempts: 5, lastError: "x: y"})
				mux := http.NewServeMux()
				pages, err := admin.New(admin.Config{Engine: w.engine, Authorize: authorize, Prefix: prefix, Now: w.Clock.Now})
				if err != nil {
					t.Fatal(err)
				}
				if strip {
					pages = http.StripPrefix(prefix, pages)
				}
				mux.Handle(strings.NewReplacer(" ", "%20").Replace(prefix)+"/", pages)
				ask := func(method, address string, form url.Values) *httptest.ResponseRecorder {
					r := httptest.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
					r.Header.Set("X-Operator", "mira")
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					out := httptest.NewRecorder()
					mux.ServeHTTP(out, r)
					return out
				}
				home := (&url.URL{Path: prefix + "/"}).EscapedPath()
				r := ask("GET", home, nil)
				if r.Code != http.StatusSeeOther {
					t.Fatalf("prefix %q, strip %v: home is %d", prefix, strip, r.Code)
				}
				list := w.want(http.StatusOK, ask("GET", r.Header().Get("Location"), nil))
				detail := w.want(http.StatusOK, ask("GET", list.link("mailer.receipt"), nil))
				for _, address := range []string{
					detail.link("Dead deliveries"), detail.link("Refresh"), list.link("Pending 0"), list.link("Loam"),
					attr(list.tag("link")[0], "href"),
				} {
					if got := ask("GET", address, nil); got.Code != http.StatusOK {
						t.Errorf("prefix %q, strip %v: %s is %d", prefix, strip, address, got.Code)
					}
				}
				f := detail.forms()[0]
				r = ask("POST", f.action, f.values)
				if after := w.want(http.StatusOK, ask("GET", r.Header().Get("Location"), nil)); !strings.HasPrefix(after.flash(), "Redelivered.") {
					t.Errorf("prefix %q, strip %v: %q", prefix, strip, after.flash())
				}
			}
		}
	})
}

// What every page sends beside itself.
func TestHeaders(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		seedStates(w)
		for _, path := range []string{"/dead", "/pending", "/deliveries/01-exhausted", "/deliveries/nothing", "/nowhere"} {
			head := w.do("GET", path, "mira", nil).Header()
			if got := head.Get("Content-Security-Policy"); got != "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'" {
				t.Errorf("%s: policy %q", path, got)
			}
			if head.Get("Cache-Control") != "no-store" || head.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(head.Get("Content-Type"), "text/html") {
				t.Errorf("%s: %v", path, head)
			}
		}
		sheet := w.do("GET", admin.SheetPath(), "", nil)
		if sheet.Code != http.StatusOK || !strings.Contains(sheet.Header().Get("Cache-Control"), "immutable") || !strings.HasPrefix(sheet.Header().Get("Content-Type"), "text/css") {
			t.Errorf("the sheet: %d %v", sheet.Code, sheet.Header())
		}
		if got := w.do("GET", "/sheet/loam-000000.css", "", nil).Code; got != http.StatusNotFound {
			t.Errorf("another sheet is %d", got)
		}
		for _, path := range []string{"/dead/", "//dead", "/deliveries/", "/deliveries/x/y", "/./dead", "/dead?list=x", "/dead?before=x", "/dead?after=1.x&before=1"} {
			if got := w.do("GET", path, "mira", nil).Code; got < 400 || got >= 500 {
				t.Errorf("%s is %d", path, got)
			}
		}
		if strings.Contains(w.do("GET", "/dead", "mira", nil).Body.String(), "style=") {
			t.Error("a page has an inline style")
		}
		rig.Exec(t, w.DB, `DROP TABLE loam_pauses`)
		p := w.want(http.StatusInternalServerError, w.do("GET", "/deliveries/01-exhausted", "mira", nil))
		if p.says("loam_pauses") || len(w.Logs.Lines("operator's page failed", "loam_pauses")) != 1 {
			t.Errorf("a failure shows its detail, or is not logged: %s", text(p.Node))
		}
	})
}
