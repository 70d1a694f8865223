package natsjs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// A capture that fails every time is given up after the same number of attempts and with the same waits by both backends. With
// the database's the waits are measured on the rows, by a clock that the test moves. With JetStream they are what the service
// asks of the broker, read from its answers, on the schedule of production; the test only has the broker not wait for them.
// That the broker does wait as it is asked is TestTheBrokerWaits.
//
// contract: N-02, O-04
func TestSameSchedule(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		r := mailer(rig.New(t, db))
		r.Clock.Add(-time.Duration(r.Clock.Now().Nanosecond() % 1000)) // rows have microseconds
		url := natsserver.Run(t).ClientURL()
		for _, attempts := range []int{1, amount(2, 9), outbox.DefaultMaxAttempts} {
			cfg := r.Queue.Config
			cfg.MaxAttempts = attempts
			q, err := outbox.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			rows := scheduleOfRows(t, r, q, faults)
			messages, lost := []string(nil), true
			for try := 0; lost; try++ {
				if try == 5 {
					t.Fatal("each time a delivery did not arrive")
				}
				messages, lost = scheduleOfMessages(t, url, fmt.Sprintf("mail-%d-%d", attempts, try), q, faults)
			}
			t.Logf("%d attempts\n\tdb         %v\n\tjetstream  %v", attempts, rows, messages)
			if len(rows) != attempts || fmt.Sprint(rows) != fmt.Sprint(messages) {
				t.Errorf("%d attempts: the rows have %v, the messages %v", attempts, rows, messages)
			}
		}
	})
}

// scheduleOfRows is what is waited after each failure of a row; the last word says that it was given up.
func scheduleOfRows(t *testing.T, r *rig.Rig, q *outbox.Queue, faults *dbtest.Faults) (waits []string) {
	t.Helper()
	e := r.Enqueue("acme", paid, nil)
	defer bug(faults, e)()
	row := func() outbox.Entry {
		for _, status := range []outbox.Status{outbox.Pending, outbox.DeadLettered} {
			all, err := q.List(t.Context(), outbox.Query{Status: status, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range all {
				if row.EventID == e.ID {
					return row
				}
			}
		}
		t.Fatal("the row is gone")
		return outbox.Entry{}
	}
	round := func() outbox.Entry {
		if _, err := q.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		return row()
	}
	for {
		before := row()
		after := round()
		if after.Attempts != before.Attempts+1 {
			t.Fatalf("the row was not tried: %+v", after)
		}
		if after.Status == outbox.DeadLettered {
			return append(waits, "given up")
		}
		wait := after.NextAttemptAt.Sub(r.Clock.Now())
		r.Clock.Add(wait - time.Millisecond)
		if early := round(); early.Attempts != after.Attempts {
			t.Fatalf("the row was tried before its time: %+v", early)
		}
		r.Clock.Add(time.Millisecond)
		waits = append(waits, wait.String())
	}
}

// scheduleOfMessages is what the broker is asked to wait after each failure of a message; the last word says that it was given up.
// lost is a delivery that did not arrive because the machine is busy, so that nobody asked for a wait after it.
func scheduleOfMessages(t *testing.T, url, service string, q *outbox.Queue, faults *dbtest.Faults) (waits []string, lost bool) {
	t.Helper()
	js := watcher(t, url)
	answers, err := js.Conn().SubscribeSync("$JS.ACK." + natsjs.DefaultStream + "." + service + ".>")
	if err != nil {
		t.Fatal(err)
	}
	e := event(t, paid, nil)
	defer bug(faults, e)()
	p := receive(t, url, service, q, ackWait(2*time.Second), func(b *natsjs.Bus) { b.Backoff(outbox.Backoff) })
	defer p.stop()
	newSender(t, url).send(e)
	for {
		answer, err := answers.NextMsg(slow)
		if err != nil {
			t.Fatalf("after %v: %v", waits, err)
		}
		text := string(answer.Data)
		again := strings.HasPrefix(text, "-NAK {")
		if delivery := strings.Split(answer.Subject, ".")[4]; (again || text == "+TERM") && delivery != strconv.Itoa(len(waits)+1) {
			return nil, true
		}
		switch {
		case text == "+TERM":
			return append(waits, "given up"), false
		case again:
			waits = append(waits, asked(t, answer).String())
			if err := js.Conn().Publish(answer.Subject, []byte("-NAK")); err != nil { // now rather than then
				t.Fatal(err)
			}
		}
	}
}

// asked is the delay of an answer.
func asked(t *testing.T, answer *nats.Msg) time.Duration {
	t.Helper()
	var nak struct {
		Delay time.Duration `json:"delay"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(string(answer.Data), "-NAK ")), &nak); err != nil {
		t.Fatalf("%s: %v", answer.Data, err)
	}
	return nak.Delay
}

// The broker brings a message again after the wait that it was asked for, not at once, and not when that of another is over: one
// that waits long, behind one that waits longer, comes at its own time.
//
// contract: N-02
// scenario: B131, B135
func TestTheBrokerWaits(t *testing.T) {
	t.Parallel()
	const unit = 5 * time.Millisecond // for a second
	scaled := func(n int) time.Duration { return outbox.Backoff(n) / time.Second * unit }
	url := natsserver.Run(t).ClientURL()
	a, b := event(t, paid, nil), event(t, paid, nil)
	var mu sync.Mutex
	at := map[string][]time.Time{}
	in := &scripted{attempts: 8}
	came := make(chan struct{})
	in.receive = func(_ context.Context, evs []events.Event) []error {
		mu.Lock()
		defer mu.Unlock()
		errs := make([]error, len(evs))
		for i, e := range evs {
			at[e.ID] = append(at[e.ID], time.Now())
			errs[i] = errFails
			if e.ID == a.ID && len(at[e.ID]) == 6 { // from now on a waits for 160 s
				close(came)
			}
		}
		return errs
	}
	from := newSender(t, url)
	from.send(a)
	p := receive(t, url, "mail", in, func(b *natsjs.Bus) { b.Backoff(scaled) })
	<-came
	from.send(b)
	eventually(t, "both are given up", func() bool { return len(in.buried()) == 2 })
	p.stop()
	for _, e := range []events.Event{a, b} {
		if len(at[e.ID]) != 8 {
			t.Errorf("%d deliveries, want 8", len(at[e.ID]))
		}
		for i := 1; i < len(at[e.ID]); i++ {
			if gap, want := at[e.ID][i].Sub(at[e.ID][i-1]), scaled(i); gap < want || gap > want+3*time.Second {
				t.Errorf("delivery %d came %v after the one before, want %v", i+1, gap, want)
			}
		}
	}
	if second := at[b.ID][1]; second.After(at[a.ID][6]) {
		t.Error("the one that waits a little came after the one that waits long")
	}
}
