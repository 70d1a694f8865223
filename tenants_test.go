package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/tenant"
)

// contract: T-02. An event without a tenant, or of one that is not known, is no error, stores nothing, and is counted: without
// a tenant it is logged at debug each time, of an unknown one at warn, once for each.
func TestEventsOfNoTenant(t *testing.T) {
	t.Parallel()
	for way := range publishers {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				reg := durable.NewRegistry()
				reg.RegisterFunc("mailer", "shop.", succeed)
				reader, logs := sdkmetric.NewManualReader(), &rig.Logs{}
				engine := newEngine(t, db, reg, observed(reader, logs))
				for _, id := range []string{"", "", "globex", "initech", "globex", "ACME", "acme ", "globex"} {
					if err := publishers[way](tenant.With(t.Context(), id), engine, paid, nil); err != nil {
						t.Errorf("%q: %v", id, err)
					}
				}
				stored(t, db, "of no tenant", 0, 0)
				if got := skipped(t, reader); got["no_tenant"] != 2 || got["unknown_tenant"] != 6 || len(got) != 2 {
					t.Errorf("counted %v", got)
				}
				if n := len(logs.Lines("DEBUG", "no tenant", paid)); n != 2 {
					t.Errorf("%d debug lines", n)
				}
				for _, id := range []string{"globex", "initech", "ACME"} {
					if n := len(logs.Lines("WARN", "unknown tenant", "tenant="+id+" ")); n != 1 {
						t.Errorf("%d warnings for %s, want 1", n, id)
					}
				}
				if n := len(logs.Lines("WARN")) + len(logs.Lines("ERROR")); n != 4 {
					t.Errorf("%d warnings, want one for each of four ids: %q", n, logs.Lines())
				}
				if err := publishers[way](inTenant(t), engine, paid, nil); err != nil {
					t.Error(err)
				}
				stored(t, db, "of a tenant", 1, 1)
			})
		})
	}
}

// contract: T-06, E-01. A tenant that is added twice is there once; an id that is none is refused.
func TestAddTenant(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg) // adds acme
		odd := `Ünï'"; DROP TABLE loam_tenants -- ` + strings.Repeat("x", 100)
		for _, id := range []string{"acme", odd, odd, strings.Repeat("y", 200)} {
			if err := engine.AddTenant(t.Context(), id); err != nil {
				t.Errorf("%q: %v", id, err)
			}
			if err := engine.Publish(tenant.With(t.Context(), id), paid, nil); err != nil {
				t.Errorf("%q: %v", id, err)
			}
		}
		stored(t, db, "one event for each call", 4, 4)
		for _, id := range []string{"", "a\x00", "\xff", strings.Repeat("y", 201)} {
			if err := engine.AddTenant(t.Context(), id); !errors.Is(err, tenant.ErrInvalidID) {
				t.Errorf("%q: got %v, want ErrInvalidID", id, err)
			}
		}
		var n int
		if rig.Scan(t, db, `SELECT count(*) FROM loam_tenants`, nil, &n); n != 3 {
			t.Errorf("%d tenants, want 3", n)
		}
		if err := engine.Publish(tenant.With(t.Context(), strings.Repeat("y", 201)), paid, nil); !errors.Is(err, tenant.ErrInvalidID) {
			t.Errorf("publishing in a tenant of 201 bytes: got %v, want ErrInvalidID", err)
		}
	})
}

// directory is an application's own.
type directory struct {
	exists func(q tenant.Querier, id string) (bool, error)
}

func (d directory) Exists(_ context.Context, q tenant.Querier, id string) (bool, error) {
	return d.exists(q, id)
}

func (d directory) List(context.Context, string, int) ([]string, error) { return nil, nil }

func withDirectory(exists func(q tenant.Querier, id string) (bool, error)) func(*loam.Config) {
	return func(c *loam.Config) { c.Tenants = directory{exists} }
}

// contract: T-06. The application's own directory decides, and is asked through the transaction of the publish: in PublishTx the
// caller's, so that a tenant made in it exists.
func TestDirectoryOfTheApplication(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		rig.Exec(t, db, `CREATE TABLE customers (id TEXT)`)
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		var asked []tenant.Querier
		engine := newEngine(t, db, reg, withDirectory(func(q tenant.Querier, id string) (bool, error) {
			asked = append(asked, q)
			var n int
			err := q.QueryRowContext(t.Context(), `SELECT count(*) FROM customers WHERE id = $1`, id).Scan(&n)
			return n > 0, err
		}))
		if err := engine.Publish(inTenant(t), paid, nil); err != nil {
			t.Error(err)
		}
		stored(t, db, "acme is in loam_tenants only", 0, 0)
		err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO customers VALUES ('acme')`); err != nil {
				return err
			}
			err := engine.PublishTx(ctx, tx, paid, nil)
			if last, ok := asked[len(asked)-1].(*sql.Tx); !ok || last != tx {
				t.Errorf("asked through %T, want the caller's transaction", asked[len(asked)-1])
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		stored(t, db, "made in the transaction", 1, 1)
		if err := engine.Publish(inTenant(t), paid, nil); err != nil || len(asked) != 3 {
			t.Errorf("asked %d times (%v)", len(asked), err)
		}
		stored(t, db, "it exists", 2, 2)
	})
}

// contract: T-06, D-05. An error of the directory's is never "missing": the publish fails with it, nothing is stored and nobody called.
func TestDirectoryThatFails(t *testing.T) {
	t.Parallel()
	for way := range publishers {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				reg := durable.NewRegistry()
				reg.RegisterFunc("mailer", "shop.", succeed)
				errDown := errors.New("directory down")
				for _, answer := range []bool{false, true} { // beside an error, neither counts
					reader := sdkmetric.NewManualReader()
					engine := newEngine(t, db, reg, observed(reader, &rig.Logs{}), withDirectory(func(tenant.Querier, string) (bool, error) { return answer, errDown }))
					engine.Subscribe("", func(context.Context, events.Event) error {
						t.Error("an inline subscriber was called")
						return nil
					})
					if err := publishers[way](inTenant(t), engine, paid, nil); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "acme") {
						t.Errorf("got %v, want the directory's error with the tenant", err)
					}
					if got := skipped(t, reader); len(got) != 0 {
						t.Errorf("counted %v", got)
					}
				}
				stored(t, db, "afterwards", 0, 0)
			})
		})
	}
}

// contract: T-06, S-01. The default directory lists every tenant, also beyond a page: the sweep at the start wakes the last one's
// delivery, whose job is gone.
func TestMoreTenantsThanAPage(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		at := database.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		rig.Insert(t, db, "loam_tenants", "id, created_at", 510, func(i int) []any { return []any{fmt.Sprintf("t%04d", i-1), at} })
		ran := make(chan string, 10)
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", func(_ context.Context, e events.Event) error {
			ran <- e.TenantID
			return nil
		})
		chosen := []string{"t0000", "t0498", "t0499", "t0509"} // with acme before them, the page of 500 ends at t0498
		publisher := newEngine(t, db, reg)
		for _, id := range chosen {
			publishWithoutJobs(t, publisher, id, 1)
		}
		startEngine(t, db, reg)
		var got []string
		timeout := time.After(2 * time.Minute)
		for range chosen {
			select {
			case id := <-ran:
				got = append(got, id)
			case <-timeout:
				t.Fatalf("only %q were woken", got)
			}
		}
		if slices.Sort(got); !slices.Equal(got, chosen) {
			t.Errorf("woken %q, want %q", got, chosen)
		}
	})
}

// contract: T-01, E-07, J-01. By every way to publish, and again after redelivery, the tenant stands in the row, its payload, its job, the
// ledger and the handler's context; the actor stays data.
// scenario: B083
func TestTheTenantGoesEverywhere(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var engine *loam.Engine
		reg := durable.NewRegistry()
		ran := make(chan string, 100)
		fail := make(chan bool, 1)
		fail <- true
		handle := func(ctx context.Context, e events.Event) error {
			if tenant.From(ctx) != e.TenantID || e.TenantID != "globex" || e.ActorID != "u1" || tenant.Actor(ctx) != "" {
				t.Errorf("%s: the context has tenant %q and actor %q, the event %q and %q", e.Name, tenant.From(ctx), tenant.Actor(ctx), e.TenantID, e.ActorID)
			}
			ran <- e.Name
			switch e.Name {
			case "shop.way.direct":
				return engine.Publish(tenant.WithActor(ctx, e.ActorID), "shop.way.handler", nil)
			case "shop.way.tx":
				select {
				case <-fail:
					return errors.New("once")
				default:
				}
			}
			return nil
		}
		reg.RegisterFunc("mailer", "shop.", handle, durable.WithMaxAttempts(1))
		engine = startEngine(t, db, reg)
		if err := engine.AddTenant(t.Context(), "globex"); err != nil {
			t.Fatal(err)
		}
		ctx := tenant.WithActor(tenant.With(t.Context(), "globex"), "u1")
		for way, name := range map[string]string{"Publish": "shop.way.direct", "PublishTx": "shop.way.tx"} {
			if err := publishers[way](ctx, engine, name, events.Payload{"tenant_id": "acme", "actor_id": "forged"}); err != nil {
				t.Fatal(err)
			}
		}
		until(t, 30*time.Second, "dead", func() bool { return count(t, db, "status = 'dead'") == 1 })
		dead, err := engine.Deliveries(ctx, durable.Query{Status: durable.Dead})
		if err != nil || len(dead) != 1 {
			t.Fatalf("%v, %v", dead, err)
		}
		if err := engine.Redeliver(ctx, dead[0].ID); err != nil {
			t.Fatal(err)
		}
		until(t, 30*time.Second, "delivered", func() bool { return count(t, db, "status = 'delivered'") == 3 })
		receive(t, ran, 4, "runs")
		if n := count(t, db, `tenant_id = 'globex' AND payload ->> 'tenant_id' = 'globex' AND payload ->> 'actor_id' = 'u1'`); n != 3 || count(t, db, "true") != 3 {
			t.Errorf("%d of %d rows have the tenant and the actor", n, count(t, db, "true"))
		}
		jobs := wakeJobs(t, db)
		for _, j := range jobs {
			if j.args["tenant_id"] != "globex" {
				t.Errorf("a job carries %v", j.args)
			}
		}
		var ledger int
		rig.Scan(t, db, `SELECT count(*) FROM processed_events WHERE tenant_id = 'globex' AND status = 'done'`, nil, &ledger)
		if len(jobs) < 4 || ledger != 3 {
			t.Errorf("%d jobs, %d rows in the ledger", len(jobs), ledger)
		}
	})
}
