package natsjs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// childEnv has the order of a child, as JSON: it is this test binary.
const childEnv = "LOAM_NATSJS_CHILD"

// childOrder is what a child is told: with Attempts, to consume as service mail and to hang with what it gets; else to relay the
// queue at Place to the broker at URL, and to say so and hang when Acked events are acknowledged. Then it is killed.
type childOrder struct {
	Place dbtest.Place
	URL   string
	Acked int

	Attempts int
}

// hanging is a sink that never returns.
type hanging struct {
	bus   outbox.Sink
	acked int
}

func (h hanging) Send(ctx context.Context, evs []events.Event) []error {
	for _, err := range h.bus.Send(ctx, evs[:h.acked]) {
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("acknowledged of", len(evs))
	select {}
}

func runChild(text string) int {
	var o childOrder
	err := json.Unmarshal([]byte(text), &o)
	switch {
	case err != nil:
	case o.Attempts > 0:
		err = consumeAndHang(o)
	default:
		err = relayAndHang(o)
	}
	fmt.Println("the child was not killed:", err)
	return 1
}

func relayAndHang(o childOrder) error {
	db, _, err := dbtest.Connect(o.Place)
	if err != nil {
		return err
	}
	bus, err := natsjs.New(natsjs.Config{Service: "billing", URL: o.URL})
	if err != nil {
		return err
	}
	q, err := outbox.New(outbox.Config{
		DB: db, Now: rig.NewClock().Now, Logger: slog.Default(), Meter: noop.Meter{}, MaxAttempts: outbox.DefaultMaxAttempts,
		Hold: func() bool { return false }, Sink: hanging{bus, o.Acked},
	})
	if err != nil {
		return err
	}
	_, err = q.Round(context.Background())
	return err
}

// killed starts a child, and kills it when it hangs; it returns what the child said.
func killed(t *testing.T, o childOrder) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program) //nolint:gosec // this binary
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Errorf("the child said nothing: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return strings.TrimSpace(line)
}

// A relay claims 100 rows and is killed when 40 of them are acknowledged and none is marked. When the claim is over, another relay sends all
// of them: the stream has each once, because the 40 have the same message ids.
//
// contract: O-03, O-05, N-01
// scenario: B110
func TestARelayKilledBetweenPublishAndMark(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		url := natsserver.Run(t).ClientURL()
		r := rig.New(t, db)
		enqueue(t, r, paid, 100)
		if said := killed(t, childOrder{Place: dbtest.PlaceOf(t, db), URL: url, Acked: 40}); said != "acknowledged of 100" {
			t.Fatalf("the child said %q", said)
		}
		js := watcher(t, url)
		if n, claimed := stored(t, js), len(rows(t, r, outbox.Processing)); n != 40 || claimed != 100 {
			t.Fatalf("after the kill %d are in the stream, %d rows are claimed; want 40 and 100", n, claimed)
		}
		s := newSender(t, url)
		q := r.WithSink(s)
		r.Clock.Add(outbox.Lease - time.Second)
		if n := round(t, q); n != 0 {
			t.Errorf("%d rows were taken before the claim was over", n)
		}
		r.Clock.Add(2 * time.Second) // 601 s
		if n, done := round(t, q), len(rows(t, r, outbox.Done)); n != 100 || done != 100 {
			t.Errorf("%d rows were sent, %d are done", n, done)
		}
		if n, twice := stored(t, js), s.count("loam.nats.duplicates"); n != 100 || twice != 40 {
			t.Errorf("%d are in the stream, %d were known; want 100 and 40", n, twice)
		}
	})
}

// An event that was acknowledged is published again after the broker was killed and started over its store; and once more when the broker has
// forgotten its id, so that the stream has it twice. Its handler has run once.
//
// contract: N-01, N-06
// scenario: B128
func TestPublishedAgainAfterARestart(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		broker := natsserver.Start(t)
		r := rig.New(t, db)
		effects := 0
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			effects++
			return nil
		})
		e := event(t, paid, nil)
		s := newSender(t, broker.URL())
		s.send(e)
		broker.Kill()
		broker.Up()
		again := func() bool { return s.Send(t.Context(), []events.Event{e})[0] == nil }
		eventually(t, "it is sent again", again)
		js := watcher(t, broker.URL())
		if n, twice := stored(t, js), s.count("loam.nats.duplicates"); n != 1 || twice != 1 {
			t.Errorf("after the restart %d are in the stream, %d were known; want 1 and 1", n, twice)
		}
		p := receive(t, broker.URL(), "mail", r.Queue)
		eventually(t, "it is received", func() bool { return len(r.Rows("acme")) == 1 })
		r.Work()
		change(t, js, func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
		eventually(t, "it is stored once more", func() bool { return again() && stored(t, js) == 2 })
		eventually(t, "both are received", func() bool { return p.count("loam.nats.received") == 2 })
		r.Work()
		if n := len(r.Rows("acme")); n != 1 || effects != 1 {
			t.Errorf("%d deliveries, %d effects; want 1 and 1", n, effects)
		}
	})
}
