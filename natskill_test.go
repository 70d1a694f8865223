package loam_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/openloam/loam"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

func init() { children["nats"] = onTheBus }

// What the children of a service get from their parent: the broker, the service's name, and how far their clock is ahead, so that
// a relay's claim of 600 s is over.
const (
	natsEnv    = "LOAM_TEST_NATS"
	serviceEnv = "LOAM_TEST_SERVICE"
	aheadEnv   = "LOAM_TEST_AHEAD_SECONDS"
)

const (
	busRounds = 10 // of kills
	busBatch  = 50
)

// busEvents is how many events are published: ten thousand by night.
func busEvents() int {
	if nightly() {
		return 10_000
	}
	return 500
}

// onTheBus is a process of a service: the shop, which only sends, or billing, which has the subscribers.
func onTheBus(ctx context.Context) (err error) {
	service := os.Getenv(serviceEnv)
	reg := durable.NewRegistry()
	if service == "billing" {
		runs, err := openDiary(fmt.Sprintf("runs.%d", os.Getpid()))
		if err != nil {
			return err
		}
		for key, pattern := range killSubscribers {
			reg.Register(key, pattern, runs.noted(key, func(context.Context, events.Event) error { return nil }))
		}
	}
	reader := sdkmetric.NewManualReader()
	bus, err := natsjs.New(natsjs.Config{
		URL: os.Getenv(natsEnv), Service: service, AckWait: 2 * time.Second, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Close(), noteDuplicates(context.WithoutCancel(ctx), reader)) }()
	ahead := time.Duration(envInt(aheadEnv)) * time.Second
	return work(ctx, reg, func(c *loam.Config) {
		shortLease(c)
		c.SweepEvery = 2 * time.Second
		c.Capture, c.Bus = loam.Outbox, bus
		c.Now, c.MaxClockSkew = func() time.Time { return time.Now().Add(ahead) }, -1
	}, nil)
}

// noteDuplicates leaves a file that says how many of the events that this process sent the broker had already.
func noteDuplicates(ctx context.Context, reader sdkmetric.Reader) error {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		return err
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "loam.nats.duplicates" && len(sum.DataPoints) > 0 {
				name := inDir(fmt.Sprintf("duplicates.%d", os.Getpid()))
				return os.WriteFile(name, []byte(strconv.FormatInt(sum.DataPoints[0].Value, 10)), 0o600)
			}
		}
	}
	return nil
}

// duplicates adds up what the processes that were not killed have noted.
func duplicates(t *testing.T, dir string) (all int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "duplicates.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // written above
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(text))
		if err != nil {
			t.Fatal(err)
		}
		all += n
	}
	return all
}

// Two processes relay the shop's queue to the broker, two of billing consume, and work what comes of it, while another publishes.
// All four are killed again and again, and so is the broker. In the end billing has one delivery for each event and subscriber,
// the stream has each event once but for those whose mark was lost for longer than the broker remembers, which is none here, and
// no row of the shop's queue is left.
//
// contract: O-03, O-05, O-06, N-01, N-06, D-17, D-20
// scenario: B104 B110
func TestServicesAreKilled(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, billing site) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // to be repeated with the seed
		broker := natsserver.Start(t)
		shop := newSite(t, billing.place.Dialect)
		shopDB, _ := dbtest.OpenPlace(t, shop.place)
		publisher := newEngine(t, shopDB, durable.NewRegistry(), func(c *loam.Config) { c.Capture = loam.Outbox })
		billingDB, _ := dbtest.OpenPlace(t, billing.place)
		start := func(i int, env ...string) *process {
			env = append(env, natsEnv+"="+broker.URL())
			if i < 2 {
				return startChild(t, "nats", shop, append(env, serviceEnv+"=shop")...)
			}
			return startChild(t, "nats", billing, append(env, serviceEnv+"=billing")...)
		}

		began := time.Now()
		total, published, brokerKills := busEvents(), 0, 0
		killed := map[int]time.Time{} // by pid
		var procs [4]*process
		for i := range procs {
			procs[i] = start(i)
		}
		for round := 1; round <= busRounds; round++ {
			for published < total*round/busRounds {
				published += publishMany(t, publisher, published, min(busBatch, total-published))
			}
			if random.IntN(5) > 0 {
				procs[random.IntN(len(procs))].up()
			}
			<-time.After(time.Duration(random.IntN(500)) * time.Millisecond)
			if round%4 == 0 {
				broker.Kill()
				broker.Up()
				brokerKills++
			}
			which := 1 + random.IntN(1<<len(procs)-1) // a bit for each
			for i, p := range procs {
				if which&(1<<i) != 0 {
					killed[p.pid()] = p.kill()
					procs[i] = start(i)
				}
			}
		}
		// What a killed relay has claimed is taken over after 600 s: the clock of these is ahead.
		for i, p := range procs[:2] {
			p.up()
			p.stop()
			procs[i] = start(i, fmt.Sprintf("%s=%d", aheadEnv, int(outbox.Lease.Seconds())+60))
		}
		waiting := func() (n int) {
			rig.Scan(t, shopDB, `SELECT count(*) FROM event_queue WHERE status <> 'done'`, nil, &n)
			return n
		}
		delivered := func() int { return count(t, billingDB, `status = 'delivered'`) }
		until(t, 10*time.Minute, "all sent and delivered", func() bool {
			<-time.After(200 * time.Millisecond) // to count is work, too
			for _, p := range procs {
				p.running()
			}
			return waiting() == 0 && delivered() == total*len(killSubscribers)
		})
		for _, p := range procs {
			p.up()
			p.stop()
		}
		checkDelivered(t, billingDB, total)
		runs := readRuns(t, billing.dir, killed)
		checkOverlap(t, runs)
		stored := inStream(t, broker.URL())
		if stored != total {
			t.Errorf("the stream has %d messages, want %d", stored, total)
		}
		t.Logf("%d events, %d kills of processes, %d of the broker; %d messages, at least %d duplicates stopped by their id; %d runs, %d of them repeats; %v in all",
			total, len(killed), brokerKills, stored, duplicates(t, shop.dir), len(runs), len(runs)-total*len(killSubscribers), time.Since(began).Round(time.Millisecond))
	})
}

// inStream counts the messages of the stream.
func inStream(t *testing.T, url string) int {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), natsjs.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	return int(stream.CachedInfo().State.Msgs) //nolint:gosec // a few thousand
}
