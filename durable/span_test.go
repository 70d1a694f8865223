package durable_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// wantSpan checks one span of a delivery; an empty text is a run that did not fail.
func wantSpan(t *testing.T, s sdktrace.ReadOnlySpan, key, event, text string) {
	t.Helper()
	if s.Name() != "durable_event_delivery" {
		t.Errorf("the span is called %q", s.Name())
	}
	attrs := map[string]string{}
	for _, kv := range s.Attributes() {
		attrs[string(kv.Key)] = kv.Value.AsString()
	}
	if attrs["subscriber_key"] != key || attrs["event_name"] != event {
		t.Errorf("the attributes are %v, want subscriber_key %s and event_name %s", attrs, key, event)
	}
	if text == "" {
		if s.Status().Code == codes.Error || len(s.Events()) != 0 {
			t.Errorf("%s: the span says %v %v, want no failure", key, s.Status(), s.Events())
		}
		return
	}
	if s.Status().Code != codes.Error || s.Status().Description != text {
		t.Errorf("%s: the span's status is %v, want the error %q", key, s.Status(), text)
	}
	var recorded []string
	for _, e := range s.Events() {
		for _, kv := range e.Attributes {
			if e.Name == "exception" && kv.Key == "exception.message" {
				recorded = append(recorded, kv.Value.AsString())
			}
		}
	}
	if len(recorded) != 1 || recorded[0] != text {
		t.Errorf("%s: recorded is %q, want %q", key, recorded, text)
	}
}

// contract: V-01. Every real run has one span of its own, ended, with the failure recorded on it.
func TestSpanOfEachRun(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		run := 0
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			switch run++; run {
			case 1:
				return codeError(1)
			case 2:
				return hostile{func() { panicsWith("again") }, func() {}}
			case 3:
				panicsWith("boom")
			}
			return nil
		})
		r.Publish("acme", "billing.invoice.paid", nil)
		for range 4 {
			r.Work()
			r.Clock.Add(time.Hour)
		}
		if n := len(r.Spans.Started()); n != 4 {
			t.Errorf("%d spans were started, want one per run", n)
		}
		spans := r.Spans.Ended()
		if len(spans) != 4 {
			t.Fatalf("%d spans have ended, want one per run", len(spans))
		}
		h := r.Rows("acme")[0]
		texts := []string{}
		for _, f := range h.History() {
			texts = append(texts, f.Error)
		}
		if len(texts) != 3 || texts[0] != "durable_test.codeError: code 1" || texts[2] != "*durable.PanicError: panic: boom" {
			t.Fatalf("the history is %q", texts)
		}
		ids := map[string]bool{}
		for n, s := range spans {
			wantSpan(t, s, "mailer", "billing.invoice.paid", append(texts, "")[n])
			ids[s.SpanContext().SpanID().String()] = true
		}
		if len(ids) != 4 {
			t.Errorf("the runs share spans: %v", ids)
		}
	})
}

// contract: V-01, D-07, D-11, V-02. A wake-up that runs nothing has no span; a key that nobody knows has one. Neither counts
// as a run, and the unknown key is no label.
func TestSpanOfWhatDoesNotRun(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		r := rig.New(t, db)
		other := r.Second()
		deliver := func(process *rig.Rig, tenantID, id string) {
			t.Helper()
			if err := process.Deliveries.Deliver(process.Ctx(tenantID), id); err != nil {
				t.Error(err)
			}
		}
		wantSpans := func(what string, process *rig.Rig, want int) {
			t.Helper()
			if started, ended := len(process.Spans.Started()), len(process.Spans.Ended()); started != want || ended != want {
				t.Errorf("%s: %d spans started and %d ended, want %d", what, started, ended, want)
			}
		}
		meanwhile := func() { // it is being run: a no-op in either process
			id := r.Row("acme", "mailer").ID
			deliver(r, "acme", id)
			deliver(other, "acme", id)
		}
		other.Registry.RegisterFunc("mailer", "billing.", returnNil)
		r.Registry.RegisterFunc("mailer", "billing.", func(context.Context, events.Event) error {
			meanwhile()
			return codeError(1)
		}, durable.WithMaxAttempts(2))
		r.Publish("acme", "billing.invoice.paid", nil)
		id := r.Row("acme", "mailer").ID
		deliver(r, "globex", id)
		deliver(r, "acme", "no-such-row")
		wantSpans("another tenant, no row", r, 0)
		deliver(r, "acme", id)
		wantSpans("held", other, 0)
		wantSpans("the run itself", r, 1)
		deliver(r, "acme", id)
		wantSpans("not due", r, 1)
		r.Clock.Add(time.Hour)
		deliver(r, "acme", id)
		wantSpans("the second run", r, 2)
		deliver(r, "acme", id)
		wantSpans("dead", r, 2)
		wantCount(t, r, 2, "loam.deliveries.failed")
		wantCount(t, r, 1, "loam.deliveries.dead")

		// The ledger says done: the row is marked delivered without a run.
		other.Publish("globex", "billing.invoice.paid", nil)
		id = other.Row("globex", "mailer").ID
		deliver(other, "globex", id)
		wantSpans("a run", other, 1)
		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'pending', delivered_at = NULL WHERE id = $1`, id)
		deliver(other, "globex", id)
		if row := other.Row("globex", "mailer"); row.Status != durable.Delivered || row.Runs != 1 {
			t.Errorf("done in the ledger, the row is %+v", row)
		}
		wantSpans("done", other, 1)
		wantCount(t, other, 1, "loam.skipped", "done")
		wantCount(t, other, 1, "loam.deliveries.delivered")

		rig.Exec(t, db, `UPDATE event_deliveries SET status = 'pending', subscriber_key = 'gone.key' WHERE id = $1`, id)
		deliver(other, "globex", id)
		wantSpans("unknown key", other, 2)
		wantSpan(t, other.Spans.Ended()[1], "gone.key", "billing.invoice.paid", `no registered subscriber "gone.key"`)
		wantCount(t, other, 1, "loam.deliveries.dead")
		wantCount(t, other, 0, "loam.deliveries.dead", "gone.key")
		wantCount(t, other, 0, "loam.deliveries.failed")
	})
}
