package durable_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: D-09, D-16. What a registration has without options, and with each.
func TestOptionsOfARegistration(t *testing.T) {
	t.Parallel()
	r := durable.NewRegistry()
	r.RegisterFunc("plain", "billing.", returnNil)
	r.RegisterFunc("all", "billing.", returnNil,
		durable.WithMaxAttempts(3), durable.WithBackoff(time.Second, time.Minute), durable.WithTimeout(90*time.Second),
		durable.WithQueue("slow_mail-2"), durable.WithConcurrency(7))

	s, _ := r.HandlerFor("plain")
	wantWaits := []time.Duration{0, 60 * time.Second, 300 * time.Second, 1800 * time.Second, 7200 * time.Second}
	if s.MaxAttempts != 5 || !slices.Equal(s.Backoff, wantWaits) || s.Timeout != 0 || s.Queue != "loam" || s.Concurrency != 0 {
		t.Errorf("without options: %+v", s)
	}
	s, _ = r.HandlerFor("all")
	if s.MaxAttempts != 3 || !slices.Equal(s.Backoff, []time.Duration{0, time.Second, time.Minute}) ||
		s.Timeout != 90*time.Second || s.Queue != "slow_mail-2" || s.Concurrency != 7 {
		t.Errorf("with options: %+v", s)
	}
}

// contract: D-16. An option's value belongs to its registration: who passes the waits can change them afterwards.
func TestBackoffIsCopied(t *testing.T) {
	t.Parallel()
	r := durable.NewRegistry()
	waits := []time.Duration{time.Second, 2 * time.Second}
	r.RegisterFunc("mailer", "billing.", returnNil, durable.WithBackoff(waits...))
	waits[0] = time.Hour
	durable.Backoff()[1] = time.Hour
	r.RegisterFunc("plain", "billing.", returnNil)
	if s, _ := r.HandlerFor("mailer"); s.Backoff[1] != time.Second {
		t.Errorf("the backoff became %v", s.Backoff)
	}
	if s, _ := r.HandlerFor("plain"); s.Backoff[1] != time.Minute {
		t.Errorf("the default backoff became %v", s.Backoff)
	}
}

// contract: D-02, D-16. A bad value is a programming error: the panic names the key, and the option with its value.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opt  durable.Option
		want string
	}{
		{durable.WithMaxAttempts(0), "WithMaxAttempts(0)"},
		{durable.WithMaxAttempts(-1), "WithMaxAttempts(-1)"},
		{durable.WithBackoff(), "WithBackoff()"},
		{durable.WithBackoff(time.Second, -time.Second), "-1s"},
		{durable.WithTimeout(0), "WithTimeout(0s)"},
		{durable.WithTimeout(-time.Second), "WithTimeout(-1s)"},
		{durable.WithConcurrency(0), "WithConcurrency(0)"},
		{durable.WithConcurrency(-3), "WithConcurrency(-3)"},
		{durable.WithQueue(""), `WithQueue("")`},
		{durable.WithQueue("Slow"), `WithQueue("Slow")`},
		{durable.WithQueue("a b"), `WithQueue("a b")`},
		{durable.WithQueue("a__b"), `WithQueue("a__b")`},
		{durable.WithQueue(strings.Repeat("q", 65)), "WithQueue("},
		{durable.WithQueue("loam_suspect"), `WithQueue("loam_suspect")`},
		{durable.WithQueue("loam_maintenance"), `WithQueue("loam_maintenance")`},
	} {
		r := durable.NewRegistry()
		text := panicText(t, func() { r.RegisterFunc("mailer", "billing.", returnNil, c.opt) })
		wantInText(t, text, `"mailer"`, c.want)
	}

	// All mistakes of a registration are reported at once.
	r := durable.NewRegistry()
	text := panicText(t, func() {
		r.RegisterFunc("mailer", "Billing", nil, durable.WithMaxAttempts(0), durable.WithTimeout(0))
	})
	wantInText(t, text, `"Billing"`, "handler is nil", "WithMaxAttempts(0)", "WithTimeout(0s)")
}

// contract: D-16. Values at the edge are good ones.
func TestOptionsAtTheEdge(t *testing.T) {
	t.Parallel()
	r := durable.NewRegistry()
	r.RegisterFunc("mailer", "billing.", returnNil, durable.WithMaxAttempts(1), durable.WithBackoff(0), durable.WithTimeout(1),
		durable.WithConcurrency(1), durable.WithQueue(strings.Repeat("q", 64)))
	s, _ := r.HandlerFor("mailer")
	if s.MaxAttempts != 1 || !slices.Equal(s.Backoff, []time.Duration{0, 0}) || s.Timeout != 1 || s.Concurrency != 1 || len(s.Queue) != 64 {
		t.Errorf("registered as %+v", s)
	}
}

// contract: D-16, J-01. A row is woken in its subscriber's queue, at capture and after a failure.
func TestWakeupsAreInTheSubscribersQueue(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error { return context.Canceled },
			durable.WithQueue("mail"))
		r.Publish("acme", "billing.invoice.paid", nil)
		if row := r.Row("acme", "mailer"); row.Queue != "mail" {
			t.Errorf("the row's queue is %q", row.Queue)
		}
		for _, when := range []string{"capture", "failure 1", "failure 2"} {
			if w := r.Wakeups.All(); len(w) != 1 || w[0].Queue != "mail" {
				t.Errorf("after %s: wake-ups %v, want one in mail", when, w)
			}
			r.Clock.Add(time.Hour)
			r.Work()
		}
	})
}

// contract: D-09, D-10, D-16, J-01. A schedule of one's own: its last wait is the cap. Each failure's wake-up is at the next
// attempt, rounded up to the millisecond; the last has none.
func TestScheduleOfARegistration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what     string
		opts     []durable.Option
		attempts int
		waits    []time.Duration
	}{
		{
			"cap",
			[]durable.Option{durable.WithMaxAttempts(5), durable.WithBackoff(10*time.Second, 25*time.Second)},
			5,
			[]time.Duration{10 * time.Second, 25 * time.Second, 25 * time.Second, 25 * time.Second},
		},
		{"one attempt", []durable.Option{durable.WithMaxAttempts(1)}, 1, nil},
		{
			"default cap",
			[]durable.Option{durable.WithMaxAttempts(7)},
			7,
			[]time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 2 * time.Hour, 2 * time.Hour},
		},
		{"fewer attempts than waits", []durable.Option{durable.WithMaxAttempts(2), durable.WithBackoff(3*time.Second, time.Hour)}, 2, []time.Duration{3 * time.Second}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
				r := rig.New(t, db)
				runs := 0
				r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
					runs++
					return errors.New("no")
				}, c.opts...)
				r.Publish("acme", "billing.invoice.paid", nil)
				for n, wait := range c.waits {
					due := r.Clock.Now().Truncate(time.Microsecond).Add(wait)
					r.Work()
					if row := r.Row("acme", "mailer"); row.Status != durable.Pending || row.Attempts != n+1 || !row.NextAttemptAt.Equal(due) {
						t.Fatalf("after failure %d: %s, %d attempts, next at %v; want it pending, due at %v", n+1, row.Status, row.Attempts, row.NextAttemptAt, due)
					}
					w := r.Wakeups.All()
					if len(w) != 1 || w[0].At.Before(due) || w[0].At.Sub(due) >= time.Millisecond || w[0].At.Nanosecond()%1e6 != 0 {
						t.Fatalf("after failure %d: wake-ups %v, want one at %v", n+1, w, due)
					}
					r.Clock.Add(wait + time.Millisecond)
				}
				w, _ := r.Wakeups.Next(r.Clock.Now())
				r.Deliver(w) // and nothing after it, to see what it leaves
				row := r.Row("acme", "mailer")
				if row.Status != durable.Dead || row.Attempts != c.attempts || runs != c.attempts || !row.NextAttemptAt.IsZero() {
					t.Errorf("at the end: %+v after %d runs, want it dead after %d", row, runs, c.attempts)
				}
				if row.LastError != "*errors.errorString: no" || len(r.Wakeups.All()) != 0 {
					t.Errorf("a dead row has the error %q and wake-ups %v", row.LastError, r.Wakeups.All())
				}
				wantCount(t, r, int64(c.attempts), "loam.deliveries.failed", "mailer")
				wantCount(t, r, 1, "loam.deliveries.dead", "mailer")
				if n := len(r.Logs.Lines("ERROR", "dead", row.ID)); n != 1 {
					t.Errorf("%d log lines say that it is dead, want one", n)
				}
			})
		})
	}
}
