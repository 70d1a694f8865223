package natsjs_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox/natsjs"
	"github.com/openloam/loam/tenant"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(childEnv); order != "" {
		os.Exit(runChild(order))
	}
	_ = flag.Set("test.parallel", "12") // they wait for clocks more than they compute
	goleak.VerifyTestMain(m)
}

const paid = "billing.invoice.paid"

const (
	// slow is longer than anything takes on a machine that is busy.
	slow = time.Minute
	// patient is a limit of a bus that a test shows not to be waited for, nor half of it.
	patient = 5 * time.Minute
)

// amount is how many of something a test needs, or how long it takes: more by night.
func amount[T int | time.Duration](ci, night T) T {
	if os.Getenv("LOAM_NIGHTLY") != "" {
		return night
	}
	return ci
}

// sender is a bus under test, with what it logs and counts.
type sender struct {
	*natsjs.Bus
	t       *testing.T
	logs    *rig.Logs
	metrics *sdkmetric.ManualReader
}

// newSender makes a bus of service billing.
func newSender(t *testing.T, url string, change ...func(*natsjs.Config)) *sender {
	t.Helper()
	s := &sender{t: t, logs: &rig.Logs{}, metrics: sdkmetric.NewManualReader()}
	cfg := natsjs.Config{
		Service: "billing", URL: url, Logger: slog.New(s.logs),
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.metrics)),
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if s.Bus, err = natsjs.New(cfg); err != nil {
		t.Fatal(err)
	}
	s.Short(0, 0, 20*time.Millisecond)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// count is the value of a counter.
func (s *sender) count(name string) int64 {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.metrics.Collect(context.WithoutCancel(s.t.Context()), &all); err != nil {
		s.t.Fatal(err)
	}
	var n int64
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
					n += p.Value
				}
			}
		}
	}
	return n
}

// send sends events that must all be taken.
func (s *sender) send(evs ...events.Event) {
	s.t.Helper()
	for i, err := range s.Send(s.t.Context(), evs) {
		if err != nil {
			s.t.Fatalf("event %d: %v", i, err)
		}
	}
}

// sendSlowly is send for a bus that waits so little that a busy machine may be slower.
func (s *sender) sendSlowly(e events.Event) {
	s.t.Helper()
	eventually(s.t, "it is sent", func() bool { return s.Send(s.t.Context(), []events.Event{e})[0] == nil })
}

// event makes one of tenant acme.
func event(t *testing.T, name string, p events.Payload) events.Event {
	t.Helper()
	e, err := events.New(tenant.With(t.Context(), "acme"), name, p, events.Limits{PayloadBytes: 4 << 20, Depth: 32})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// watcher is a connection of the test's own.
func watcher(t *testing.T, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, append(options, nats.Timeout(slow))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// stored is how many messages the stream has.
func stored(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), natsjs.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// eventually waits until ok, at most a minute: that is for a machine that is busy.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(slow); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// configured runs a server with a configuration file's text added to its options.
func configured(t *testing.T, text string) *server.Server {
	t.Helper()
	file := t.TempDir() + "/nats.conf"
	write(t, file, text)
	return natsserver.Run(t, func(o *server.Options) {
		if err := o.ProcessConfigFile(file); err != nil {
			t.Fatal(err)
		}
	})
}
