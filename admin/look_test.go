package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"

	"github.com/chromedp/chromedp"

	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/health"
)

// seedLook adds rows as they come: long names, long and hostile errors.
func seedLook(w *world) {
	now := w.Clock.Now()
	for i, e := range []struct{ key, name, text string }{
		{"mailer.receipt", "billing.invoice.paid", "*textproto.Error: 421 4.7.0 mx1.acme.example: too many connections from your host, try again later (queue id 4Vq1Zc2Xk1z9)"},
		{"search.index", "catalog.product.changed", "*search.BulkError: 48 of 48 documents refused: [mapper_parsing_exception] failed to parse field [price.amount]; token=" + strings.Repeat("eyJhbGciOiJub25lIn0", 400)},
		{"webhooks.partner", "orders.order.shipped", `*partner.StatusError: 502 Bad Gateway: <script>alert("paid")</script><img src=x onerror=alert(1)>` + "\u202e\x1b[31m txt.exe"},
		{"warehouse.replenishment.forecast_recalculation", "warehouse.stock_level.recounted_after_inventory", "*json.SyntaxError: invalid character '<' looking for beginning of value"},
	} {
		at := now.Add(-time.Duration(60+i) * time.Second)
		w.seed(seed{id: fmt.Sprintf("01a22a6d-12a8-7b%02d-96d3-e0678846%04d", i, i), event: fmt.Sprintf("01a22a6d-12a8-78%02d-aacc-b28f2182%04d", i, 656+i), key: e.key, name: e.name, attempts: 5, runs: 5, lastError: e.text, updated: at})
	}
}

// contrast returns the texts whose contrast to what is behind them is under 4.5, by WCAG's formula.
const contrast = `(() => {
	const rgb = c => c.match(/[\d.]+/g).map(Number);
	const lum = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
	const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
	const out = [];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) {
		const e = n.parentElement;
		if (!n.data.trim() || e.closest(".vh, .id > span, .sprite") || !e.checkVisibility()) continue;
		const a = lum(rgb(getComputedStyle(e).color)), b = lum(behind(e)), c = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (c < 4.5) out.push(n.data.trim() + " " + c.toFixed(2));
	}
	return out;
})()`

// small returns the controls that are under a size, but for links in sentences.
const small = `(min => [...document.querySelectorAll("a.btn, a.name, button, summary, .tabs a, .crumb a")]
	.filter(e => { const r = e.getBoundingClientRect(); return r.height > 0 && (r.height < min || r.width < min) })
	.map(e => e.textContent.trim() + " " + e.getBoundingClientRect().width + "x" + e.getBoundingClientRect().height))`

// Every page, light and dark, wide and narrow: no text under AA, nothing to scroll sideways, nothing too small to hit,
// nothing that the policy forbids. The pictures are for people to look at.
func TestChromiumLook(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		chromium(t)
		w := newWorld(t, kind)
		admin.SetPageSize(w.pages, 40) // what is looked at does not get slower to measure
		site := serve(t, w.pages) + prefix
		b := open(t, "mira")
		look := func(name, path string) {
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				widths := []int64{1280, 360}
				if scheme == "light" { // it changes colours alone
					widths = []int64{1280, 1000, 360, 320}
				}
				for _, width := range widths {
					b.size(width, 900)
					b.goTo(site + path)
					where := fmt.Sprintf("%s-%s-%d", name, scheme, width)
					b.fits(where)
					if low := ask[[]string](b, contrast); len(low) > 0 {
						t.Errorf("%s has text under 4.5:1: %q", where, low)
					}
					if tiny := ask[[]string](b, small+`(24)`); len(tiny) > 0 {
						t.Errorf("%s has targets under 24 px: %q", where, tiny)
					}
					if (width == 1280 || width == 360) && (scheme == "light" || name == "dead" || name == "exhausted") {
						b.shot(where)
					}
				}
			}
		}
		look("empty", "/dead")
		w.fill("01a2295f-c928-737e-b4b1-6443774f", durable.Dead, 300, false)
		w.Clock.Add(5 * time.Hour)
		seedStates(w)
		seedLook(w)
		look("dead", "/dead")
		look("pending", "/pending")
		for _, id := range []string{"01-exhausted", "03-no-handler", "04-crash-limit", "13-running", "21-delivered", "01a22a6d-12a8-7b02-96d3-e06788460002"} {
			look(strings.TrimLeft(strings.ReplaceAll(id, "01a22a6d-12a8-7b02-96d3-e06788460002", "hostile"), "0123456789-"), "/deliveries/"+id)
		}
		report := w.engine.report()
		report.LastSweep, report.DueNow, report.OldestDue = w.Clock.Now().Add(-22*time.Minute), 4310, 21*time.Minute
		w.engine.report = func() health.Report { return report }
		b.scheme("light")
		form := w.get("/dead", "mira").forms()[0]
		redelivered := w.do("POST", form.action, "mira", form.values).Header().Get("Location")
		again := w.do("POST", form.action, "mira", form.values).Header().Get("Location")
		look("late", strings.TrimPrefix(redelivered, prefix))
		look("pressed-twice", strings.TrimPrefix(again, prefix))
		look("no-such-page", "/nowhere")

		// An error is unfolded without a script, and nothing else moves but what is below it.
		b.size(1280, 900)
		b.goTo(site + "/dead")
		before := ask[float64](b, `document.querySelector(".clamp").getBoundingClientRect().height`)
		b.do(chromedp.Click(chromedp.CSS("summary")))
		if got := ask[float64](b, `document.querySelector("details[open] + .clamp").getBoundingClientRect().height`); got <= before {
			t.Errorf("an unfolded error is %v px high", got)
		}
		if rows := ask[[]float64](b, `[...new Set([...document.querySelectorAll("tbody tr")].slice(25, -1).map(r => r.getBoundingClientRect().height))]`); len(rows) != 1 || rows[0] != 56 {
			t.Errorf("rows are %v px high, want 56", rows)
		}
		if got := ask[string](b, `getSelection().selectAllChildren(document.querySelector(".id")), getSelection().toString()`); !strings.HasPrefix(got, "01a22a6d-12a8-78") {
			t.Errorf("a copy of an id yields %q", got)
		}
		b.obeyed()
	})
}
