package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

// The pictures of docs/img: run it with LOAM_SCREENSHOTS, and copy docs-*.png.
func TestChromiumDocs(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		chromium(t)
		w := newWorld(t, kind)
		w.Clock.Add(3*time.Hour + 12*time.Minute)
		for _, key := range []string{"mailer.receipt", "search.index", "webhooks.partner", "ledger.post", "crm.sync"} {
			w.Registry.RegisterFunc(key, "billing.", nothing)
		}
		now := w.Clock.Now()
		ago := func(d time.Duration) time.Time { return now.Add(-d) }
		failed := func(n int, before time.Duration, text string, ms int64) durable.Failure {
			return durable.Failure{At: database.At(ago(before)), Run: n, Error: text, DurationMS: ms}
		}
		const busy = "*textproto.Error: 421 4.7.0 mx1.acme.example: too many connections from your host, try again later (queue id 4Vq1Zc2Xk1z9)"
		id := func(n int) string { return fmt.Sprintf("01a229dd-caf8-798c-8c23-7274ca%06x", 0x567ccc+n*4391) }
		w.seed(
			seed{
				id: id(0), attempts: 5, runs: 5, lastError: timeout, created: ago(157*time.Minute + time.Second), updated: ago(33 * time.Second),
				headers: `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","depth":1}`,
				payload: `{"invoice_id":"inv_2026_118204","customer_id":90071992547409931,"amount_cents":1250,"currency":"EUR","tenant_id":"acme","actor_id":"7731"}`,
				errors: history(failed(1, 157*time.Minute, timeout, 30_000), failed(2, 156*time.Minute, busy, 240), failed(3, 151*time.Minute, timeout, 30_000),
					failed(4, 121*time.Minute, timeout, 30_000), failed(5, 63*time.Second, timeout, 30_000)),
			},
			seed{id: id(1), attempts: 5, runs: 5, lastError: timeout, updated: ago(34 * time.Second)},
			seed{id: id(2), attempts: 5, runs: 5, lastError: busy, updated: ago(4 * time.Minute)},
			seed{
				id: id(3), key: "search.index", name: "catalog.product.changed", attempts: 5, runs: 5, updated: ago(6 * time.Minute),
				lastError: "*search.BulkError: 48 of 48 documents refused: [mapper_parsing_exception] failed to parse field [price.amount] of type [long]",
			},
			seed{
				id: id(4), key: "webhooks.partner", name: "orders.order.shipped", attempts: 5, runs: 5, updated: ago(9 * time.Minute),
				lastError: `*partner.StatusError: 502 Bad Gateway: <script>alert("paid")</script>`,
			},
			seed{id: id(5), key: "ledger.post", attempts: 2, runs: 2, updated: ago(14 * time.Minute), lastError: "*ledger.PeriodError: period 2026-10 is closed"},
			seed{id: id(6), key: "mailer.digest", name: "crm.account.renewed", updated: ago(31 * time.Minute), lastError: `no registered subscriber "mailer.digest"`},
			seed{
				id: id(7), key: "crm.sync", name: "accounts.customer.updated", attempts: 5, runs: 5, updated: ago(88 * time.Minute),
				lastError: "*json.SyntaxError: invalid character '<' looking for beginning of value",
			},
		)
		for n := range 40 {
			w.seed(seed{
				id: id(100 + n), key: "crm.sync", name: "accounts.customer.updated", attempts: 5, runs: 5, updated: ago(time.Duration(89+n) * time.Minute),
				lastError: "*json.SyntaxError: invalid character '<' looking for beginning of value",
			})
		}
		rig.Exec(t, w.DB, `UPDATE event_deliveries SET event_id = replace(replace(event_id, 'ev-', ''), '798c', '78b5')`)
		w.fill("p", durable.Pending, 37, true)
		b := open(t, "mira")
		b.scheme("light")
		b.size(1280, 780)
		b.goTo(serve(t, w.pages) + prefix + "/dead")
		b.view("docs-dead")
		b.follow(clickFirst)
		b.size(1280, 1000)
		b.view("docs-delivery")
		b.obeyed()
	})
}
