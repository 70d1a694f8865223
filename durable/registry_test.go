package durable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

func returnNil(context.Context, events.Event) error { return nil }

// here is the place that calls it, as a registration names it.
func here() string {
	_, file, line, _ := runtime.Caller(1)
	return file + ":" + strconv.Itoa(line)
}

// panicText is the message that f panics with.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() {
		v := recover()
		if v == nil {
			t.Error("no panic")
		}
		text = fmt.Sprint(v)
	}()
	f()
	return ""
}

// wantInText checks that a message has all the parts.
func wantInText(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("the message is %q, want %q in it", text, p)
		}
	}
}

type pointerHandler struct{}

func (*pointerHandler) Handle(context.Context, events.Event) error { return nil }

// contract: D-02, E-01, E-03. A registration that is wrong in itself panics at boot, naming the key and the place, and
// leaves nothing behind.
func TestBadRegistrationPanics(t *testing.T) {
	t.Parallel()
	ok := durable.HandlerFunc(returnNil)
	long := strings.Repeat("k", 201)
	for _, c := range []struct {
		what, key, pattern string
		handler            durable.Handler
		opts               []durable.Option
	}{
		{"empty key", "", "billing.invoice.paid", ok, nil},
		{"long key", long, "billing.invoice.paid", ok, nil},
		{"NUL in the key", "mail\x00er", "billing.invoice.paid", ok, nil},
		{"invalid UTF-8 in the key", "mail\xff", "billing.invoice.paid", ok, nil},
		{"empty pattern", "mailer", "", ok, nil},
		{"pattern of two segments", "mailer", "billing.invoice", ok, nil},
		{"pattern with a star", "mailer", "billing.*", ok, nil},
		{"pattern in capitals", "mailer", "Billing.", ok, nil},
		{"pattern that is a dot", "mailer", ".", ok, nil},
		{"long pattern", "mailer", strings.Repeat("b", 200) + ".", ok, nil},
		{"nil handler", "mailer", "billing.invoice.paid", nil, nil},
		{"nil function", "mailer", "billing.invoice.paid", durable.HandlerFunc(nil), nil},
		{"nil pointer as a handler", "mailer", "billing.invoice.paid", (*pointerHandler)(nil), nil},
		{"bad option", "mailer", "billing.invoice.paid", ok, []durable.Option{durable.WithMaxAttempts(0)}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			r := durable.NewRegistry()
			var place string
			text := panicText(t, func() { place = here(); r.Register(c.key, c.pattern, c.handler, c.opts...) })
			wantInText(t, text, strconv.Quote(c.key), place)
			if n := len(r.Registered()); n != 0 {
				t.Errorf("%d registrations are left behind", n)
			}
		})
	}

	t.Run("the longest key", func(t *testing.T) {
		t.Parallel()
		r := durable.NewRegistry()
		r.Register(long[:200], "billing.", ok)
		if _, known := r.HandlerFor(long[:200]); !known {
			t.Error("a key of 200 bytes is not registered")
		}
	})
}

// contract: D-02. Each way to register names the place of its own caller.
func TestRegistrationNamesItsCaller(t *testing.T) {
	t.Parallel()
	r := durable.NewRegistry()
	var place string
	for what, f := range map[string]func(){
		"Register":              func() { place = here(); durable.Register("", "billing.", durable.HandlerFunc(returnNil)) },
		"RegisterFunc":          func() { place = here(); durable.RegisterFunc("", "billing.", returnNil) },
		"Registry.Register":     func() { place = here(); r.Register("", "billing.", durable.HandlerFunc(returnNil)) },
		"Registry.RegisterFunc": func() { place = here(); r.RegisterFunc("", "billing.", returnNil) },
	} {
		if text := panicText(t, f); !strings.Contains(text, place+":") {
			t.Errorf("%s: the message is %q, want %s in it", what, text, place)
		}
	}
}

// contract: D-02. A second registration of a key names the key and both places; the first stays, and an event has one row.
// scenario: B019, B021
func TestKeyRegisteredTwicePanics(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		first, second := 0, 0
		h1 := func(context.Context, events.Event) error { first++; return nil }
		h2 := func(context.Context, events.Event) error { second++; return nil }
		var place1 string
		func() { place1 = here(); r.Registry.RegisterFunc("billing.audit", "billing.", h1) }()
		for _, again := range []func(context.Context, events.Event) error{h1, h2} {
			var place2 string
			text := panicText(t, func() { place2 = here(); r.Registry.RegisterFunc("billing.audit", "shop.", again) })
			wantInText(t, text, `"billing.audit"`, place1, place2)
		}
		r.Publish("acme", "billing.invoice.paid", nil)
		r.Publish("acme", "shop.order.placed", nil) // the pattern of the second is not the key's
		r.Work()
		if rows := r.Rows("acme"); len(rows) != 1 || rows[0].EventName != "billing.invoice.paid" {
			t.Errorf("rows %v, want one for billing.invoice.paid", rows)
		}
		if first != 1 || second != 0 {
			t.Errorf("the first handler ran %d times and the second %d, want 1 and 0", first, second)
		}
	})
}

// contract: D-03. After Seal a registration panics and changes nothing; another registry is not touched.
func TestSealedRegistryRefuses(t *testing.T) {
	t.Parallel()
	r, other := durable.NewRegistry(), durable.NewRegistry()
	r.RegisterFunc("mailer", "billing.", returnNil)
	r.Seal()
	r.Seal()
	var place string
	text := panicText(t, func() { place = here(); r.RegisterFunc("late", "billing.", returnNil) })
	wantInText(t, text, `"late"`, place)
	if subs := r.Registered(); len(subs) != 1 || subs[0].Key != "mailer" {
		t.Errorf("registered are %v, want mailer alone", subs)
	}
	if _, known := r.HandlerFor("late"); known {
		t.Error("late is known after all")
	}
	other.RegisterFunc("late", "billing.", returnNil)
	if _, known := other.HandlerFor("late"); !known {
		t.Error("sealing one registry sealed another")
	}
}

// contract: D-04. Parallel registrations are all there.
// scenario: B029
func TestParallelRegistrationsAreAllKept(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for n := range 100 {
			wg.Go(func() {
				<-start
				r.Registry.RegisterFunc(fmt.Sprintf("sub.%d", n), "billing.", returnNil)
			})
		}
		close(start)
		wg.Wait()
		r.Publish("acme", "billing.invoice.paid", nil)
		keys := map[string]bool{}
		for _, row := range r.Rows("acme") {
			keys[row.SubscriberKey] = true
		}
		if len(keys) != 100 || len(r.Rows("acme")) != 100 {
			t.Errorf("%d rows for %d keys, want 100", len(r.Rows("acme")), len(keys))
		}
	})
}

// contract: D-04. The registrations that match a name come in the order in which they were made.
func TestSubscribersForKeepsTheOrder(t *testing.T) {
	t.Parallel()
	r := durable.NewRegistry()
	for _, s := range [][2]string{
		{"z", "billing."}, {"m", "billing.invoice.paid"}, {"q", "shop."}, {"a", "billing.invoice."}, {"k", "billing.invoice.sent"},
	} {
		r.RegisterFunc(s[0], s[1], returnNil)
	}
	for name, want := range map[string]string{
		"billing.invoice.paid":  "z m a",
		"billing.invoice.sent":  "z a k",
		"billing.refund.made":   "z",
		"billingx.invoice.paid": "",
	} {
		var got []string
		for _, s := range r.SubscribersFor(name) {
			got = append(got, s.Key)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: subscribers %v, want %s", name, got, want)
		}
	}
}

// contract: D-01. The handler is the one that this process has under the row's key, whatever else the row says.
func TestHandlerIsFoundByTheKeyAlone(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		one := rig.New(t, db)
		two := one.Second()
		var ran []string
		register := func(r *rig.Rig, process, key, pattern string, opts ...durable.Option) {
			r.Registry.RegisterFunc(key, pattern, func(_ context.Context, e events.Event) error {
				ran = append(ran, process+" "+key+" "+e.Name)
				return nil
			}, opts...)
		}
		register(one, "one", "mailer", "billing.invoice.paid", durable.WithQueue("mail"))
		register(one, "one", "audit", "shop.")
		register(two, "two", "mailer", "shop.order.placed") // the same key, with another pattern and handler
		register(two, "two", "audit", "shop.")

		one.Publish("acme", "billing.invoice.paid", nil)
		id := one.Row("acme", "mailer").ID
		rig.Exec(t, db, `UPDATE event_deliveries SET event_name = 'shop.order.placed', queue = 'nowhere' WHERE id = $1`, id)
		if err := two.Deliveries.Deliver(two.Ctx("acme"), id); err != nil {
			t.Fatal(err)
		}

		one.Publish("acme", "billing.invoice.paid", nil)
		id = one.Rows("acme")[1].ID
		rig.Exec(t, db, `UPDATE event_deliveries SET subscriber_key = 'audit' WHERE id = $1`, id)
		if err := one.Deliveries.Deliver(one.Ctx("acme"), id); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(ran, ", "), "two mailer shop.order.placed, one audit billing.invoice.paid"; got != want {
			t.Errorf("ran: %s; want: %s", got, want)
		}
	})
}

var errFromInit = errors.New("the handler from init")

func init() {
	durable.Register("registry_test.init", "test.default.registry", durable.HandlerFunc(
		func(context.Context, events.Event) error { return errFromInit }), durable.WithTimeout(time.Minute))
}

// contract: D-01. The package's Register fills the registry that DefaultRegistry returns.
func TestRegisterFillsTheDefaultRegistry(t *testing.T) {
	t.Parallel()
	s, known := durable.DefaultRegistry().HandlerFor("registry_test.init")
	if !known || s.Pattern != "test.default.registry" || s.Timeout != time.Minute {
		t.Fatalf("found %v: %+v", known, s)
	}
	if err := s.Handler.Handle(t.Context(), events.Event{}); !errors.Is(err, errFromInit) {
		t.Errorf("the handler returned %v", err)
	}
}
