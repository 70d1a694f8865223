package loam_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// steps are the calls to the database that make up one capture.
var steps = map[string]func(op dbtest.Op) bool{
	"the begin":  func(op dbtest.Op) bool { return op.Kind == "begin" },
	"the tenant": func(op dbtest.Op) bool { return strings.Contains(op.SQL, "FROM loam_tenants") },
	"the rows":   func(op dbtest.Op) bool { return strings.Contains(op.SQL, "INTO event_deliveries") },
	"the job":    func(op dbtest.Op) bool { return strings.Contains(op.SQL, "river_job") },
	"the commit": func(op dbtest.Op) bool { return op.Kind == "commit" },
}

// contract: D-04, D-05, E-05. Whichever step of the capture fails, Publish returns that error; no row and no job is there and
// no inline subscriber was called; and the next publish works.
func TestCaptureErrorsReachThePublisher(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		reg.RegisterFunc("slow", "shop.", succeed, durable.WithQueue("slow"))
		engine := newEngine(t, db, reg)
		inline := 0
		engine.Subscribe("", func(context.Context, events.Event) error {
			inline++
			return nil
		})
		errDown := errors.New("down")
		for what, is := range steps {
			hit := 0
			faults.Before(func(op dbtest.Op) error {
				if is(op) {
					hit++
					return errDown
				}
				return nil
			})
			err := engine.Publish(inTenant(t), paid, nil)
			faults.Before(nil)
			if !errors.Is(err, errDown) || hit != 1 || inline != 0 {
				t.Errorf("%s fails %d times: got %v, inline subscribers ran %d times", what, hit, err, inline)
			}
			stored(t, db, what+" failed", 0, 0)
		}
		if err := engine.Publish(inTenant(t), paid, nil); err != nil || inline != 1 {
			t.Errorf("afterwards: %v, inline subscribers ran %d times", err, inline)
		}
		stored(t, db, "afterwards", 2, 2)
	})
}

// contract: D-04, D-05. A context that ends before or in the middle of a publish gives an error and nothing stored, or
// everything stored; never nil with nothing stored.
// scenario: B011
func TestPublishOnAContextThatEnds(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg)
		gone, cancel := context.WithCancel(inTenant(t))
		cancel()
		if err := engine.Publish(gone, paid, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("on a context that has ended: got %v", err)
		}
		stored(t, db, "on a context that has ended", 0, 0)

		for what, is := range steps {
			for when, hook := range map[string]func(func(dbtest.Op) error){"before": faults.Before, "after": faults.After} {
				ctx, cancel := context.WithCancel(inTenant(t))
				hook(func(op dbtest.Op) error {
					if is(op) {
						cancel()
					}
					return nil
				})
				err := engine.Publish(ctx, paid, nil)
				hook(nil)
				cancel()
				n := 0
				if err == nil {
					n = 1
				}
				stored(t, db, fmt.Sprintf("the context ended %s %s, Publish returned %v", when, what, err), n, n)
				rig.Exec(t, db, `DELETE FROM event_deliveries; DELETE FROM river_job`)
			}
		}
		if err := engine.Publish(inTenant(t), paid, nil); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// contract: D-04, D-05. A full database refuses the event as a whole, with an error that says so, in a transaction of ours
// or of the caller's; with room again it takes it.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	db, _ := dbtest.Open(t) // only its size can be limited
	reg := durable.NewRegistry()
	for i := range 5 {
		reg.RegisterFunc(fmt.Sprintf("sub.%d", i), "shop.", succeed)
	}
	engine := newEngine(t, db, reg)
	inline := 0
	engine.Subscribe("", func(context.Context, events.Event) error {
		inline++
		return nil
	})
	limit := func(pages int) { // on the one connection that writes
		t.Helper()
		var got int
		if err := db.Write().QueryRowContext(t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)).Scan(&got); err != nil {
			t.Fatal(err)
		}
	}
	var pages int
	rig.Scan(t, db, `PRAGMA page_count`, nil, &pages)
	limit(pages + 20)
	big := events.Payload{"text": strings.Repeat("x", 10_000)}
	published := 0
	var err error
	for err == nil && published < 100 {
		if err = engine.Publish(inTenant(t), paid, big); err == nil {
			published++
		}
	}
	if !errors.Is(err, database.ErrFull) || published == 0 || inline != published {
		t.Fatalf("after %d events: got %v, want ErrFull; inline subscribers ran %d times", published, err, inline)
	}
	stored(t, db, "full", 5*published, published)
	err = engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
		return engine.PublishTx(ctx, tx, paid, big)
	})
	if !errors.Is(err, database.ErrFull) || inline != published {
		t.Errorf("in a transaction of the caller's: got %v, want ErrFull", err)
	}
	stored(t, db, "still full", 5*published, published)

	limit(pages + 10_000)
	if err := engine.Publish(inTenant(t), paid, big); err != nil {
		t.Errorf("with room again: %v", err)
	}
	stored(t, db, "with room again", 5*(published+1), published+1)
}

// skipped reads the counter of what stored nothing, by reason.
func skipped(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "loam.skipped" {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				reason, _ := p.Attributes.Value("reason")
				out[reason.AsString()] += p.Value
			}
		}
	}
	return out
}

// observed has an engine's counters and its log read by the test.
func observed(reader *sdkmetric.ManualReader, logs *rig.Logs) func(*loam.Config) {
	return func(c *loam.Config) {
		c.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		c.Logger = slog.New(logs)
	}
}

// contract: D-04. An event without a subscriber is no error and leaves nothing behind, but it can be counted.
// scenario: B016
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		reader, logs := sdkmetric.NewManualReader(), &rig.Logs{}
		engine := newEngine(t, db, reg, observed(reader, logs))
		for range 3 {
			if err := engine.Publish(inTenant(t), "nobody.listens.here", nil); err != nil {
				t.Error(err)
			}
		}
		err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
			return engine.PublishTx(ctx, tx, "nobody.listens.here", nil)
		})
		if err != nil {
			t.Error(err)
		}
		stored(t, db, "nobody listens", 0, 0)
		if got := skipped(t, reader); got["no_subscriber"] != 4 || len(got) != 1 {
			t.Errorf("counted %v", got)
		}
		if lines := append(logs.Lines("ERROR"), logs.Lines("WARN")...); len(lines) != 0 {
			t.Errorf("logged %q", lines)
		}
	})
}

// contract: E-01, E-08, E-10. A mistake of the caller's is returned as what it is, and nothing is stored and nobody called.
// scenario: B146, B154
func TestMistakesAtPublish(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		reg := durable.NewRegistry()
		reg.RegisterFunc("mailer", "shop.", succeed)
		engine := newEngine(t, db, reg, func(c *loam.Config) { c.MaxPayloadBytes = 100_000 })
		engine.Subscribe("", func(context.Context, events.Event) error {
			t.Error("an inline subscriber was called")
			return nil
		})
		for what, c := range map[string]struct {
			name string
			p    events.Payload
			id   events.PublishOption
			want error
		}{
			"two segments":       {"order.paid", nil, nil, events.ErrInvalidName},
			"a pattern":          {"shop.", nil, nil, events.ErrInvalidName},
			"255 bytes":          {"shop.a." + strings.Repeat("x", 248), nil, nil, events.ErrInvalidName},
			"256 bytes":          {"shop.a." + strings.Repeat("x", 249), nil, nil, events.ErrInvalidName},
			"1000 bytes":         {"shop.a." + strings.Repeat("x", 993), nil, nil, events.ErrInvalidName},
			"a record":           {paid, events.Payload{"x": struct{}{}}, nil, events.ErrInvalidPayload},
			"half a surrogate":   {paid, events.Payload{"x": "\xed\xa0\x80"}, nil, events.ErrInvalidPayload},
			"a NUL":              {paid, events.Payload{"x": "\x00"}, nil, events.ErrInvalidPayload},
			"over the limit set": {paid, events.Payload{"x": strings.Repeat("x", 100_000)}, nil, events.ErrInvalidPayload},
			"5 MiB":              {paid, events.Payload{"x": strings.Repeat("x", 5<<20)}, nil, events.ErrInvalidPayload},
			"no UUID":            {paid, nil, events.WithID("42"), events.ErrInvalidID},
		} {
			var opts []events.PublishOption
			if c.id != nil {
				opts = append(opts, c.id)
			}
			if err := engine.Publish(inTenant(t), c.name, c.p, opts...); !errors.Is(err, c.want) || len(err.Error()) > 500 {
				t.Errorf("%s: got %v, want %v", what, err, c.want)
			}
		}
		if _, err := events.ParsePayload([]byte(`{"x":"\ud800"}`)); !errors.Is(err, events.ErrInvalidPayload) {
			t.Errorf("raw JSON with half a surrogate: got %v", err)
		}
		stored(t, db, "after the mistakes", 0, 0)
	})
}
