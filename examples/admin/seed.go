package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

// register registers a subscriber for each way that a delivery can end, or not end.
func register(r *durable.Registry) {
	soon := durable.WithBackoff(0)
	fails := func(err error) func(context.Context, events.Event) error {
		return func(context.Context, events.Event) error { return err }
	}
	r.RegisterFunc("audit.export", "billing.invoice.paid", fails(nil))
	r.RegisterFunc("mailer.receipt", "billing.invoice.paid", fails(errors.New("dial tcp 10.2.0.17:587: i/o timeout")), soon)
	r.RegisterFunc("pdf.render", "billing.invoice.paid", func(context.Context, events.Event) error {
		var pages []string
		return errors.New(pages[3]) //nolint:gosec // it is to panic
	}, durable.WithMaxAttempts(1))
	r.RegisterFunc("ledger.post", "billing.invoice.paid", fails(durable.Park(errors.New("period 2026-10 is closed"))))
	r.RegisterFunc("webhooks.partner", "billing.invoice.paid", fails(errors.New(
		"502 Bad Gateway: <script>alert(\"paid\")</script><img src=x onerror=alert(1)> \u202etxt.exe\x1b[31m\n\tat gateway "+strings.Repeat("é", 3000))), soon)
	r.RegisterFunc("crm.sync", "billing.invoice.paid", fails(errors.New("429 Too Many Requests")), durable.WithMaxAttempts(8))
	r.RegisterFunc("warehouse.replenishment.forecast_recalculation", "warehouse.stock_level.recounted_after_inventory",
		fails(durable.Snooze(4*time.Hour)))
	r.RegisterFunc("backup.copy", "system.backup.asked", func(ctx context.Context, _ events.Event) error {
		<-ctx.Done() // it runs for as long as this program does
		return context.Cause(ctx)
	}, durable.WithConcurrency(1), durable.WithTimeout(time.Hour), durable.WithQueue("slow"))
	r.RegisterFunc("sms.alert", "auth.login.suspicious", fails(errors.New("status 429: account is over its limit of 60 messages per minute")), durable.WithMaxAttempts(1))
	r.RegisterFunc("mailer.digest", "crm.account.renewed", fails(errors.New("no template")), durable.WithMaxAttempts(1))
	r.RegisterFunc("search.index", "catalog.product.changed", fails(errors.New("connection reset by peer")), durable.WithMaxAttempts(2), soon)
}

// manyDead is enough for a second page.
const manyDead = 220

// seed publishes, waits until what can end has ended, and adds the rest by hand.
func seed(ctx context.Context, db *database.DB, engine *loam.Engine) error {
	for _, t := range []string{"acme", "globex"} {
		if err := engine.AddTenant(ctx, t); err != nil {
			return err
		}
	}
	acme := tenant.WithActor(tenant.With(ctx, "acme"), "7731")
	publish := func(ctx context.Context, name string, n int) error {
		return engine.Publish(ctx, name, events.Payload{"id": n, "amount_cents": 1250, "customer_id": 90071992547409931, "note": "</script>"})
	}
	var errs []error
	for n, name := range []string{
		"auth.login.suspicious", "system.backup.asked", "system.backup.asked", "crm.account.renewed", "catalog.product.changed",
		"warehouse.stock_level.recounted_after_inventory", "billing.invoice.paid",
	} {
		errs = append(errs, publish(acme, name, n))
	}
	errs = append(errs, publish(tenant.With(ctx, "globex"), "auth.login.suspicious", 1))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := settle(acme, engine); err != nil {
		return err
	}
	// What would take a crash, another version, or a bad night.
	return db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, q := range []string{
			`UPDATE event_deliveries SET subscriber_key = 'mailer.digest_v0', attempts = 0, errors = '[]',
				last_error = 'no registered subscriber "mailer.digest_v0"' WHERE subscriber_key = 'mailer.digest'`,
			`UPDATE event_deliveries SET attempts = 1, runs = 12, errors = '[]', last_error = 'parked: the process died 11 times in a row while this was being run (the limit is 10)'
				WHERE subscriber_key = 'search.index'`,
			fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
				INSERT INTO event_deliveries (id, event_id, tenant_id, subscriber_key, event_name, queue, payload, headers, status, attempts, runs,
					last_error, errors, created_at, updated_at)
				SELECT substr(id, 1, 24) || printf('%%012x', i), substr(event_id, 1, 24) || printf('%%012x', i), tenant_id, subscriber_key, event_name,
					queue, payload, headers, status, attempts, runs, last_error, errors, created_at, updated_at
				FROM event_deliveries, n WHERE subscriber_key = 'sms.alert' AND tenant_id = 'acme'`, manyDead-1),
		} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}

// settled is how many of acme's deliveries are dead and pending when nothing happens any more: pending are the backup that
// runs, the one that waits for it, the one that is tried again in a minute, and the snoozed one.
var settled = durable.Counts{Dead: 7, Pending: 4}

func settle(ctx context.Context, engine *loam.Engine) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		c, err := engine.DeliveryCounts(ctx)
		if err != nil || c == settled {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("it does not settle: %+v", c)
		}
	}
}
