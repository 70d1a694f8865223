package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

// fill puts n rows of a state into acme, ids "PREFIX-000001" and up, a microsecond apart up to now, or all at now.
func (w *world) fill(prefix string, status durable.Status, n int, atOnce bool) {
	w.T.Helper()
	const columns = `id, tenant_id, event_id, subscriber_key, event_name, queue, payload, status, attempts, runs, last_error,
		delivered_at, created_at, updated_at`
	now := database.At(w.Clock.Now())
	rig.Insert(w.T, w.DB, "event_deliveries", columns, n, func(i int) []any {
		id, at := fmt.Sprintf("%s-%06d", prefix, i), now
		if !atOnce {
			at = database.At(now.Truncate(time.Second).Add(time.Duration((i-n)/1000)*time.Second + time.Duration(i)*time.Microsecond))
		}
		var lastError any
		var delivered database.Time
		if status == durable.Dead {
			lastError = timeout
		}
		if status == durable.Delivered {
			delivered = now
		}
		return []any{
			id, "acme", id, "mailer.receipt", "billing.invoice.paid", "loam",
			fmt.Sprintf(`{"invoice_id":%d,"tenant_id":"acme","actor_id":null}`, i), status, 5, 5, lastError, delivered, now, at,
		}
	})
}

// contract: A-01. The links Older and Newer lead through all pages, while rows are redelivered and others die.
// scenario: B192
func TestPaging(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		admin.SetPageSize(w.pages, 50)
		w.Registry.RegisterFunc("mailer.receipt", "billing.", nothing)
		w.fill("d", durable.Dead, 105, true)
		p := w.get("/dead", "mira")
		if !p.says("50 of 105, died between 00:59:58 and 00:59:58 UTC") || p.link("Newer") != "" {
			t.Errorf("the foot of the first page: %s", texts(p.class("foot")))
		}
		seen := map[string]int{}
		newest := ""
		for page := 1; ; page++ {
			for _, id := range p.ids() {
				seen[id]++
			}
			older := p.link("Older")
			if older == "" {
				break
			}
			for range 5 { // the line is about the press, and the page is the same one, filled up from behind
				was := p.link("Older")
				after := w.press(p.forms()[0], "mira")
				if !strings.HasPrefix(after.flash(), "Redelivered mailer.receipt") || page > 1 && after.link("Newer") == "" || after.link("Older") == was {
					t.Fatalf("after a press on page %d: %q", page, after.flash())
				}
				for _, id := range after.ids()[:45] {
					if id == p.ids()[0] {
						t.Fatalf("%s is still there", id)
					}
				}
				p = after
				seen[p.ids()[49]]++
			}
			w.Clock.Add(time.Second)
			w.fill(fmt.Sprintf("new%d", page), durable.Dead, 10, true)
			newest = fmt.Sprintf("new%d-000010", page)
			p = w.get(p.link("Older"), "mira")
		}
		for i := 1; i <= 105; i++ {
			if id := fmt.Sprintf("d-%06d", i); seen[id] != 1 {
				t.Errorf("%s was shown %d times", id, seen[id])
			}
		}
		// Back, to what is new.
		for p.link("Newer") != "" {
			p = w.get(p.link("Newer"), "mira")
		}
		if got := p.ids()[0]; got != newest {
			t.Errorf("the newest page begins with %s", got)
		}
		// The page that is named by a place where nothing is any more.
		rig.Exec(t, w.DB, `DELETE FROM event_deliveries`)
		p = w.get("/dead?before=1.x", "mira")
		if !p.says("Nothing is left on this page") || p.link("Newest dead deliveries") == "" {
			t.Errorf("an empty page: %s", text(p.Node))
		}
	})
}

// scenario: B196. Every page of an empty, just migrated database has an empty state.
func TestEmpty(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		for path, says := range map[string]string{
			"/dead":    "Nothing is dead Every delivery of acme was delivered or is still being tried. None is pending.",
			"/pending": "Nothing is pending Every delivery of acme was delivered or is dead.",
		} {
			if p := w.get(path, "mira"); !p.says(says) || len(p.tag("table")) != 0 {
				t.Errorf("%s: %s", path, text(p.Node))
			}
		}
		w.want(http.StatusNotFound, w.do("GET", "/deliveries/x", "mira", nil))
		w.seed(seed{id: "p1", status: durable.Pending, next: w.Clock.Now().Add(24 * time.Second)})
		if p := w.get("/dead", "mira"); !p.says("1 is pending, due in 24 s.") {
			t.Errorf("one pending: %s", text(p.Node))
		}
		w.seed(seed{id: "p2", status: durable.Pending})
		if p := w.get("/dead", "mira"); !p.says("2 are pending, the next now.") {
			t.Errorf("two pending: %s", text(p.Node))
		}
	})
}

// scenario: B176. A process without any subscriber lists by the stored name, and redelivers.
func TestWithoutSubscribers(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		w.fill("d", durable.Dead, 3, false)
		p := w.get("/dead", "mira")
		if len(p.ids()) != 3 || !p.says("mailer.receipt") || p.says("of 5") {
			t.Errorf("the list: %s", text(p.Node))
		}
		if got := w.press(p.forms()[0], "mira").flash(); !strings.HasPrefix(got, "Redelivered mailer.receipt for billing.invoice.paid. It is pending now, with attempt 1 due at once.") {
			t.Errorf("the line says %q", got)
		}
		if d := w.get("/deliveries/d-000001", "mira"); !strings.Contains(d.next()["If redelivered"], "no running process has this handler") {
			t.Errorf("the panel says %q", d.next())
		}
	})
}

// contract: A-01. Counts stop at 10,000; pages hold 200, samples 50.
func TestCounts(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		w.fill("d", durable.Dead, 10_001, false)
		w.fill("p", durable.Pending, 1_000, false)
		p := w.get("/dead", "mira")
		if got := texts(p.class("n")); fmt.Sprint(got) != "[10,000+ 1,000]" || len(p.ids()) != 200 {
			t.Errorf("counts %v, %d rows", got, len(p.ids()))
		}
		if title := text(p.tag("title")[0]); title != "10,000+ dead · acme · Loam" {
			t.Errorf("the title is %q", title)
		}
		if !p.says("200 of 10,000+, died between") {
			t.Errorf("the foot: %s", texts(p.class("foot")))
		}
		if p = w.get("/pending", "mira"); len(p.ids()) != 50 {
			t.Errorf("%d pending rows", len(p.ids()))
		}
	})
}
