package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/openloam/loam"
	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/tenant"
)

// contract. The whole path, with an engine that works: a dead delivery, its page, a press, delivered.
func TestChromiumRedeliver(t *testing.T) {
	t.Parallel()
	chromium(t)
	ctx := tenant.With(t.Context(), "acme")
	db, _ := dbtest.Open(t)
	registry := durable.NewRegistry()
	var repaired atomic.Bool
	registry.RegisterFunc("mailer.receipt", "billing.invoice.paid", func(context.Context, events.Event) error {
		if repaired.Load() {
			return nil
		}
		return errors.New("dial tcp 10.2.0.17:587: i/o timeout")
	}, durable.WithMaxAttempts(1))
	e, err := loam.New(loam.Config{DB: db, Registry: registry, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = errors.Join(e.Migrate(ctx), e.AddTenant(ctx, "acme"), e.Start(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := e.Publish(ctx, "billing.invoice.paid", events.Payload{"invoice_id": 42}); err != nil {
		t.Fatal(err)
	}
	pages, err := admin.New(admin.Config{Engine: e, Authorize: authorize, Prefix: prefix, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, "mira")
	b.goTo(serve(t, pages) + prefix + "/dead")
	b.see("*errors.errorString: dial tcp 10.2.0.17:587: i/o timeout")
	b.follow(clickFirst)
	b.see("Dead since")
	b.see("1 of 1 attempts failed.")
	b.shot("e2e-1-dead")
	repaired.Store(true)
	b.click("button", "Redeliver")
	if line := b.read(".flash"); !strings.HasPrefix(line, "Redelivered.") {
		t.Errorf("the line says %q", line)
	}
	if focus := ask[string](b, `document.activeElement.className`); !strings.HasPrefix(focus, "flash") {
		t.Errorf("the focus is on %q, not on the line", focus)
	}
	b.see("Delivered at")
	b.see("Run 2 succeeded")
	b.shot("e2e-2-delivered")
	b.follow(chromedp.Click(chromedp.CSS(".crumb a")))
	b.see("Nothing is dead")
	b.shot("e2e-3-nothing-dead")
	b.obeyed()
}

// contract: A-01. Pages 1 to 3 of 500 dead deliveries, while more die, hold each of the 500 once.
// scenario: B192
func TestChromiumPaging(t *testing.T) {
	t.Parallel()
	chromium(t)
	w := newWorld(t, database.SQLite)
	w.Registry.RegisterFunc("mailer.receipt", "billing.", nothing)
	w.fill("d", durable.Dead, 500, false)
	b := open(t, "mira")
	b.goTo(serve(t, w.pages) + prefix + "/dead")
	seen := map[string]int{}
	for n, want := range []int{200, 200, 100} {
		ids := ask[[]string](b, `[...document.querySelectorAll("a.name")].map(a => a.pathname.split("/").pop())`)
		if len(ids) != want {
			t.Errorf("page %d has %d rows, want %d", n+1, len(ids), want)
		}
		for _, id := range ids {
			seen[id]++
		}
		if n == 0 {
			b.shot("paging-first")
		}
		if n == 2 {
			break
		}
		w.Clock.Add(time.Second)
		w.fill(fmt.Sprint("new", n), durable.Dead, 30, false)
		b.follow(chromedp.Click(chromedp.CSS(`a[rel="next"]`)))
	}
	for i := 1; i <= 500; i++ {
		if id := fmt.Sprintf("d-%06d", i); seen[id] != 1 {
			t.Errorf("%s was shown %d times", id, seen[id])
		}
	}
	if foot := b.read(".foot"); !strings.HasPrefix(foot, "100 of 560, died between 00:59:58 and 00:59:58 UTC") {
		t.Errorf("the foot says %q", foot)
	}
	if got := ask[string](b, `document.querySelector("[aria-disabled]").textContent`); got != "Older" {
		t.Errorf("%q is off on the last page", got)
	}
	// A press on the last page comes back to it.
	b.click("button", "Redeliver")
	if n := ask[int](b, `document.querySelectorAll("a.name").length`); n != 99 || !strings.HasPrefix(b.read(".flash"), "Redelivered mailer.receipt") {
		t.Errorf("after a press on the last page: %d rows, %q", n, b.read(".flash"))
	}
	b.obeyed()
}

// contract: A-04. A viewer sees no button; a form that they forge in the page is refused. Not signed in, and another
// tenant's delivery.
func TestChromiumRights(t *testing.T) {
	t.Parallel()
	chromium(t)
	w := newWorld(t, database.SQLite)
	seedStates(w)
	before := w.snapshot()
	site := serve(t, w.pages) + prefix
	b := open(t, "viewer")
	for _, path := range []string{"/dead", "/deliveries/01-exhausted"} {
		b.goTo(site + path)
		if n := ask[int](b, `document.querySelectorAll("button, form").length`); n != 0 {
			t.Errorf("%s has %d buttons for a viewer", path, n)
		}
		b.see("You can look at deliveries but not redeliver them. The application decides who may.")
	}
	b.shot("viewer")
	forge := fmt.Sprintf(`(() => { const f = document.createElement("form"); f.method = "post"; f.action = %q;
		for (const [k, v] of [["status", "dead"], ["updated_at", %q]]) { const i = document.createElement("input"); i.name = k; i.value = v; f.append(i) }
		document.body.append(f); f.submit() })()`, prefix+"/deliveries/01-exhausted/redeliver", timeOf(w, "01-exhausted"))
	resp, err := chromedp.RunResponse(b.ctx, chromedp.Evaluate[chromedp.Void](forge))
	if err != nil || resp.Status != http.StatusForbidden {
		t.Errorf("a forged form: %v, %v", resp, err)
	}
	b.do(ready)
	b.see("You can look at deliveries but not redeliver them.")
	b.shot("viewer-forged")

	b.as("")
	b.goTo(site + "/dead")
	b.see("Not signed in")
	b.shot("not-signed-in")
	b.as("globex")
	b.goTo(site + "/deliveries/01-exhausted")
	b.see("No such delivery in globex.")
	b.shot("not-found")
	if w.snapshot() != before {
		t.Error("something has changed")
	}
	b.obeyed()
}

// contract: A-05. Another site's page posts to ours with the operator's session; nothing happens. And the check of the
// policy sees what it is for.
// scenario: B179
func TestChromiumCrossSite(t *testing.T) {
	t.Parallel()
	chromium(t)
	w := newWorld(t, database.SQLite)
	seedStates(w)
	before := w.snapshot()
	var statuses []int
	site := serve(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		w.pages.ServeHTTP(rec, r)
		if r.Method == http.MethodPost {
			statuses = append(statuses, rec.Code)
		}
		for k, v := range rec.Header() {
			out.Header()[k] = v
		}
		out.WriteHeader(rec.Code)
		_, _ = out.Write(rec.Body.Bytes())
	}))
	target := strings.Replace(site, "127.0.0.1", "localhost", 1) + prefix + "/deliveries/01-exhausted/redeliver"
	seen := timeOf(w, "01-exhausted")
	values := "status=dead&updated_at=" + seen
	evil := serve(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/violates" {
			out.Header().Set("Content-Security-Policy", "default-src 'none'")
			_, _ = fmt.Fprint(out, `<h1 style="color:red">x</h1><script>1</script>`)
			return
		}
		_, _ = fmt.Fprintf(out, `<h1>evil</h1><form method="post" action="%[1]s"><input name="status" value="dead"><input name="updated_at" value="%[2]s"><button>x</button></form>
			<form id="plain" method="post" enctype="text/plain" action="%[1]s"><input name="status" value="dead"></form>`, target, seen)
	}))
	b := open(t, "mira")
	b.goTo(evil)
	ask[int](b, fmt.Sprintf(`fetch(%q, {method: "POST", mode: "no-cors", credentials: "include", headers: {"Content-Type": "text/plain"}, body: %q}).then(() => 1)`, target, values))
	b.follow(chromedp.Submit(chromedp.CSS("#plain")))
	b.see("This form came from another site, so nothing was changed.")
	b.shot("cross-site")
	b.goTo(evil)
	b.click("button", "x")
	b.see("This form came from another site, so nothing was changed.")
	if fmt.Sprint(statuses) != "[403 403 403]" {
		t.Errorf("the three posts were answered with %v", statuses)
	}
	if w.snapshot() != before {
		t.Error("something has changed")
	}
	b.obeyed()
	b.goTo(evil + "/violates")
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.reported) < 2 {
		t.Errorf("a page that does what it may not is reported as %q", b.reported)
	}
}

// The pages are usable with the keyboard alone.
func TestChromiumKeyboard(t *testing.T) {
	t.Parallel()
	chromium(t)
	w := newWorld(t, database.SQLite)
	seedStates(w)
	b := open(t, "mira")
	b.goTo(serve(t, w.pages) + prefix + "/dead")
	var order []string
	for range 9 {
		b.do(chromedp.KeyEvent(kb.Tab))
		f := ask[[]string](b, `(a => [a.textContent.trim(), getComputedStyle(a).outlineStyle, getComputedStyle(a).outlineWidth, "" + (a.getBoundingClientRect().top >= 0)])(document.activeElement)`)
		order = append(order, f[0])
		if f[1] != "solid" || f[2] != "2px" || f[3] != "true" {
			t.Errorf("the focus on %q is drawn %s %s, in view: %s", f[0], f[1], f[2], f[3])
		}
	}
	want := []string{
		"Skip to the deliveries", "Loam", "Dead 7", "Pending 8", "Refresh",
		"mailer.receipt", "Redeliver mailer.receipt for billing.invoice.paid, delivery xhausted",
		"ledger.post", "Redeliver ledger.post for billing.invoice.paid, delivery 2-parked",
	}
	if fmt.Sprintf("%q", order) != fmt.Sprintf("%q", want) {
		t.Errorf("the order is\n%q, want\n%q", order, want)
	}
	b.follow(chromedp.KeyEvent(kb.Enter))
	if line := b.read(".flash"); !strings.HasPrefix(line, "Redelivered ledger.post") {
		t.Errorf("Enter on the button: %q", line)
	}
	b.do(chromedp.KeyEvent(kb.Tab)) // the next stop after the line is its link
	if got := ask[string](b, `document.activeElement.textContent`); got != "Open it" {
		t.Errorf("after the line comes %q", got)
	}
	b.obeyed()
}
