package natsjs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
)

// round makes one round of the relay.
func round(t *testing.T, q *outbox.Queue) int {
	t.Helper()
	n, err := q.Round(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The broker is killed and is away for two days: no row spends an attempt, one at a time is tried, none is done, and the log has one line of
// the beginning and one of the end. Then each is in the stream once, with those that were there before.
//
// contract: O-06
func TestAnOutageOfTwoDays(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		broker := natsserver.Start(t)
		r := rig.New(t, db)
		s := newSender(t, broker.URL())
		q := r.WithSink(s)
		enqueue(t, r, paid, 10)
		if n := round(t, q); n != 10 {
			t.Fatalf("%d rows were sent", n)
		}
		broker.Kill()
		enqueue(t, r, order, 40)
		tried := 0
		step := amount(time.Hour, 10*time.Minute)
		for end := r.Clock.Now().Add(48 * time.Hour); r.Clock.Now().Before(end); r.Clock.Add(step) {
			n := round(t, q)
			if tried > 0 && n > 1 {
				t.Fatalf("%d rows were tried in one round of an outage", n)
			}
			tried += n
		}
		left := rows(t, r, outbox.Pending)
		if len(left) != 40 || tried < 60 {
			t.Fatalf("%d rows wait, %d were tried", len(left), tried)
		}
		for _, e := range left {
			if e.Attempts != 0 || e.Deferrals == 0 || e.LastError == "" {
				t.Fatalf("%+v", e)
			}
		}
		broker.Up()
		eventually(t, "all are sent", func() bool {
			round(t, q)
			r.Clock.Add(outbox.Backoff(100))
			return len(rows(t, r, outbox.Done)) == 50
		})
		if n := stored(t, watcher(t, broker.URL())); n != 50 {
			t.Errorf("%d are in the stream, want 50", n)
		}
		if n := len(rows(t, r, outbox.DeadLettered)); n != 0 {
			t.Errorf("%d rows are dead_lettered", n)
		}
		begins, ends := r.Logs.Lines("ERROR failing", "sending events to the sink"), r.Logs.Lines("INFO succeeding again", "sending events to the sink")
		if len(begins) != 1 || len(ends) != 1 {
			t.Errorf("the log has\n%q\n%q", begins, ends)
		}
		for _, level := range []string{"INFO", "WARN", "ERROR"} {
			if lines := s.logs.Lines(level + " "); len(lines) != 0 {
				t.Errorf("the bus says it as well: %q", lines)
			}
		}
	})
}

// A broker that is there and does not answer, stopped as a process, is an outage too, noticed when an acknowledgement's time is over; what
// it got before is not stored twice when it goes on.
//
// contract: O-06, N-01
func TestAFrozenBroker(t *testing.T) {
	t.Parallel()
	broker := natsserver.Start(t)
	s := newSender(t, broker.URL())
	s.Short(time.Second, time.Second, 0)
	s.sendSlowly(event(t, paid, nil))
	const n = 800
	evs := many(t, n)
	before := s.Connection().Stats().OutMsgs
	broker.Freeze()
	for _, err := range s.Send(t.Context(), evs) {
		failure(t, "frozen", err, outbox.IsUnavailable)
	}
	if tried := s.Connection().Stats().OutMsgs - before; tried > n/2 { // 256 at once, whose time is over together
		t.Errorf("%d of %d were tried, each lot of them for a limit's time", tried, n)
	}
	broker.Thaw()
	eventually(t, "all are sent", func() bool {
		for _, err := range s.Send(t.Context(), evs) {
			if err != nil {
				return false
			}
		}
		return true
	})
	if got := stored(t, watcher(t, broker.URL())); got != n+1 {
		t.Errorf("%d are in the stream, want %d", got, n+1)
	}
}

// So is one that reads no more: what does not fit into the buffers on the way holds a Send for a limit's time, not for ever.
//
// contract: O-06
func TestABrokerThatReadsNoMore(t *testing.T) {
	t.Parallel()
	broker := natsserver.Start(t)
	s := newSender(t, broker.URL())
	s.Short(time.Second, 0, 0)
	s.sendSlowly(event(t, paid, nil))
	large := event(t, paid, events.Payload{"text": strings.Repeat("x", 900_000)})
	evs := make([]events.Event, 100)
	for i := range evs {
		evs[i] = large
	}
	broker.Freeze()
	began := time.Now()
	for _, err := range s.Send(t.Context(), evs) {
		failure(t, "frozen", err, outbox.IsUnavailable)
	}
	if took := time.Since(began); took > slow-5*time.Second { // nats.go waits for a minute
		t.Errorf("it took %v", took)
	}
	broker.Thaw()
	eventually(t, "it is sent", func() bool { return s.Send(t.Context(), evs[:1])[0] == nil })
}
