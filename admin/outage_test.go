package admin_test

import (
	"database/sql/driver"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
)

// What the operator reads when the database fails, and what has happened then.
func TestDatabaseFails(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		lost := errors.New("connection lost")
		for name, c := range map[string]struct {
			broken  func(f *dbtest.Faults)
			says    string
			changed bool
		}{
			"busy": {
				func(f *dbtest.Faults) {
					f.Before(func(op dbtest.Op) error {
						if op.Kind == "begin" {
							return database.ErrBusy
						}
						return nil
					})
				}, "Not redelivered: the database did not answer within 10 s. Nothing was changed. Try again; if it goes on, look at the health page. Reference ", false,
			},
			"full": {
				func(f *dbtest.Faults) {
					f.Before(func(op dbtest.Op) error {
						if strings.HasPrefix(op.SQL, "UPDATE event_deliveries") {
							return database.ErrFull
						}
						return nil
					})
				}, "Not redelivered: the database did not take it. Nothing was changed. The log says why, under the reference ", false,
			},
			"the answer of the commit is lost": {
				func(f *dbtest.Faults) {
					f.After(func(op dbtest.Op) error {
						if op.Kind == "commit" {
							return errors.Join(lost, driver.ErrBadConn)
						}
						return nil
					})
				}, "We do not know whether it was redelivered. The database failed on the way. It is pending now, with attempt 1 of 5 due at once. Reference ", true,
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w, _ := dying(t, kind)
				form := w.get("/dead", "mira").forms()[0]
				before := w.snapshot()
				c.broken(w.faults)
				r := w.do("POST", form.action, "mira", form.values)
				w.faults.Before(nil)
				w.faults.After(nil)
				if r.Code != http.StatusSeeOther {
					t.Fatalf("status %d: %s", r.Code, r.Body)
				}
				got := w.get(r.Header().Get("Location"), "mira").flash()
				if !strings.HasPrefix(got, c.says) {
					t.Errorf("the line says %q", got)
				}
				reference, _, _ := strings.Cut(got[strings.LastIndex(strings.ToLower(got), "reference ")+len("reference "):], ".")
				if len(reference) != 6 || len(w.Logs.Lines("redelivery by an operator failed", reference)) != 1 {
					t.Errorf("the reference %q is not in the log", reference)
				}
				if changed := w.snapshot() != before; changed != c.changed {
					t.Errorf("changed: %v", changed)
				}
			})
		}
	})
}

// A database that answers nothing gives a page that says so, not an empty one.
func TestDatabaseGone(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w, _ := dying(t, kind)
		w.faults.Before(func(dbtest.Op) error { return database.ErrBusy })
		for _, route := range admin.Routes() {
			if strings.HasPrefix(route.Pattern, "/{$}") || route.Method == http.MethodPost {
				continue
			}
			p := w.want(http.StatusServiceUnavailable, w.do(route.Method, strings.Replace(route.Pattern, "{id}", "x", 1), "mira", nil))
			if !p.says("It did not answer within 10 s. Try again; if it goes on, look at the health page. Reference ") {
				t.Errorf("%s: %s", route.Pattern, text(p.Node))
			}
		}
	})
}
