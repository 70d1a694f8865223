package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"

	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

// dying is a world with one dead delivery of mailer.receipt, made by running it; runs counts.
func dying(t *testing.T, kind database.Dialect) (w *world, runs *int) {
	t.Helper()
	w, runs = newWorld(t, kind), new(int)
	w.Registry.RegisterFunc("mailer.receipt", "billing.invoice.paid", func(context.Context, events.Event) error {
		*runs++
		return errors.New("no")
	}, durable.WithBackoff(0))
	w.Publish("acme", "billing.invoice.paid", nil)
	w.workAll()
	if row := w.Row("acme", "mailer.receipt"); row.Status != durable.Dead || *runs != 5 {
		t.Fatalf("%s after %d runs", row.Status, *runs)
	}
	return w, runs
}

// workAll works until nothing is woken any more. The clock goes on by a millisecond for each try.
func (w *world) workAll() {
	w.T.Helper()
	for len(w.Wakeups.All()) > 0 {
		w.Work()
		w.Clock.Add(time.Millisecond)
	}
}

// contract: A-03. A press makes the row pending with all its attempts, keeps its history, wakes it, and says so; it runs
// again five times and dies anew.
// scenario: B186
func TestRedeliver(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w, runs := dying(t, kind)
		id := w.Row("acme", "mailer.receipt").ID
		w.Clock.Add(time.Minute)
		p := w.press(w.get("/dead", "mira").forms()[0], "mira")
		if got := p.flash(); got != "Redelivered mailer.receipt for billing.invoice.paid. It is pending now, with attempt 1 of 5 due at once. Open it" {
			t.Errorf("the line says %q", got)
		}
		if open := w.get(p.link("Open it"), "mira"); !strings.HasSuffix(p.link("Open it"), "/deliveries/"+id+"?list=dead") || len(open.forms()) != 0 {
			t.Errorf("Open it leads to %s", p.link("Open it"))
		}
		row := w.Row("acme", "mailer.receipt")
		if row.Status != durable.Pending || row.Attempts != 0 || row.LastError != "" || len(row.History()) != 5 || len(w.Wakeups.All()) != 1 {
			t.Errorf("the row: %+v, %d wake-ups", row, len(w.Wakeups.All()))
		}
		if len(w.Logs.Lines("redelivered by an operator", "delivery="+id, "operator=mira@acme.example", "tenant=acme")) != 1 {
			t.Error("the log does not say who redelivered")
		}
		w.workAll()
		row = w.Row("acme", "mailer.receipt")
		if row.Status != durable.Dead || *runs != 10 || len(row.History()) != 10 || w.Clock.Now().Sub(row.UpdatedAt.Time) > time.Second {
			t.Errorf("after the runs: %s, %d runs, %d kept, changed at %v", row.Status, *runs, len(row.History()), row.UpdatedAt)
		}
	})
}

// The line after a press is made from the row as it is now, on the list and on the delivery.
func TestResultLines(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w, _ := dying(t, kind)
		id := w.Row("acme", "mailer.receipt").ID
		list, detail := w.get("/dead", "mira").forms()[0], w.get("/deliveries/"+id, "mira").forms()[0]
		w.Clock.Add(time.Minute)
		r := w.do("POST", detail.action, "mira", detail.values)
		behind := r.Header().Get("Location")
		if got := w.get(behind, "mira").flash(); got != "Redelivered. It is pending now, with attempt 1 of 5 due at once." {
			t.Errorf("on the delivery: %q", got)
		}
		// Pressed again: twice, by Back, by somebody else.
		for range 2 {
			if got := w.press(list, "tom").flash(); got != "Not redelivered: it is not dead any more. It has been pending since 01:00:58 UTC. Your press changed nothing. Open it" {
				t.Errorf("pressed again: %q", got)
			}
		}
		if n := len(w.Wakeups.All()); n != 1 {
			t.Errorf("%d wake-ups, want 1", n)
		}
		// It has died again.
		w.Clock.Add(time.Minute)
		w.workAll()
		if got := w.press(list, "mira").flash(); got != "Not redelivered: this page was too old. The delivery died again at 01:01:58 UTC, after you opened the page. "+
			"Look at the new error, then press Redeliver again. Open it" {
			t.Errorf("a page too old: %q", got)
		}
		if got := w.get(behind, "mira").flash(); got != "Redelivered. It is dead since 01:01:58 UTC." {
			t.Errorf("the same address later: %q", got)
		}
		// A forged address states the truth about the row, and no press.
		u, _ := url.Parse(behind)
		for _, forge := range []func(q url.Values){
			func(q url.Values) { q.Set("signed", "x") },
			func(q url.Values) { q.Del("signed") },
			func(q url.Values) { q.Set("result", "not-answered"); q.Set("reference", "call 555-0100") },
			func(q url.Values) { q.Set("result", "in-doubt") },
		} {
			q := u.Query()
			forge(q)
			if got := w.get(u.Path+"?"+q.Encode(), "mira").flash(); got != "Delivery. It is dead since 01:01:58 UTC." {
				t.Errorf("a forged address: %q", got)
			}
		}
		if got := w.get("/dead?of="+id, "mira").flash(); got != "Delivery mailer.receipt for billing.invoice.paid. It is dead since 01:01:58 UTC. Open it" {
			t.Errorf("a forged address of the list: %q", got)
		}
	})
}

// scenario: B183, B185. A row that is not dead is never redelivered, whatever form is sent.
func TestOnlyTheDead(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		seedStates(w)
		values := w.get("/deliveries/01-exhausted", "mira").forms()[0].values
		before := w.snapshot()
		for id, want := range map[string]string{
			"11-due":       "Not redelivered: it is not dead any more. It has been pending since 00:59:57 UTC. Your press changed nothing.",
			"13-running":   "Not redelivered: it is not dead any more. It has been pending since 00:58:58 UTC. Your press changed nothing.",
			"21-delivered": "Not redelivered: it is not dead any more. It was delivered at 00:59:57 UTC. Your press changed nothing.",
		} {
			for _, seen := range []string{values.Get("updated_at"), timeOf(w, id)} {
				form := form{action: "/deliveries/" + id + "/redeliver", values: url.Values{"status": {"dead"}, "updated_at": {seen}, "on": {"delivery"}}}
				if got := w.press(form, "mira").flash(); got != want {
					t.Errorf("%s: %q", id, got)
				}
			}
		}
		if w.snapshot() != before {
			t.Error("something has changed")
		}
	})
}

// contract: A-03. Two operators press at once, on one row, many times: one succeeds, the other is told, one more run.
// scenario: B183
func TestTwoOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w, runs := dying(t, kind)
		for round := range 20 {
			w.Clock.Add(time.Second)
			form := w.get("/dead", "mira").forms()[0]
			var wg sync.WaitGroup
			lines := make([]string, 2)
			for i, who := range []string{"mira", "tom"} {
				wg.Go(func() {
					r := w.do("POST", form.action, who, form.values)
					lines[i] = w.get(r.Header().Get("Location"), who).flash()
				})
			}
			wg.Wait()
			told := strings.Join(lines, "\n")
			if strings.Count(told, "Redelivered mailer.receipt") != 1 || strings.Count(told, "Not redelivered: it is not dead any more.") != 1 {
				t.Fatalf("round %d:\n%s", round, told)
			}
			before := *runs
			if n := len(w.Wakeups.All()); n != 1 {
				t.Fatalf("%d wake-ups, want 1", n)
			}
			w.workAll()
			if *runs != before+5 {
				t.Fatalf("%d runs, want 5", *runs-before)
			}
		}
	})
}

// scenario: B182. A dead row whose wake-up still waits, beside nine others: each press is answered in words, each handler
// runs once.
func TestRedeliverWithLiveWakeup(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		runs := map[string]int{}
		w.Registry.RegisterFunc("mailer.receipt", "billing.", func(_ context.Context, e events.Event) error {
			runs[e.ID]++
			return nil
		})
		w.fill("d", durable.Dead, 10, false)
		if _, err := w.Deliveries.Wake(w.Ctx("acme"), "acme", []durable.Ref{{ID: "d-000004", Key: "mailer.receipt"}}); err != nil {
			t.Fatal(err)
		}
		for _, f := range w.get("/dead", "mira").forms() {
			if got := w.press(f, "mira").flash(); !strings.HasPrefix(got, "Redelivered mailer.receipt") {
				t.Errorf("%s: %q", f.action, got)
			}
		}
		w.Work()
		for i := 1; i <= 10; i++ {
			if id := fmt.Sprintf("d-%06d", i); runs[id] != 1 {
				t.Errorf("%s ran %d times", id, runs[id])
			}
		}
	})
}

// timeOf is a row's last change, as a form has it.
func timeOf(w *world, id string) string {
	w.T.Helper()
	in, err := w.Deliveries.Get(w.Ctx("acme"), id)
	if err != nil {
		w.T.Fatal(err)
	}
	return admin.FormatTime(in.UpdatedAt)
}
