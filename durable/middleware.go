package durable

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/openloam/loam/events"
)

// Middleware runs around every run of a handler. It calls next once, and returns its error or another; the context that it
// passes on is the handler's. It runs in the handler's goroutine: a panic passes through it, so what must happen
// afterwards belongs in a defer. It must not change d.
type Middleware func(ctx context.Context, d *EventDelivery, next func(ctx context.Context) error) error

// around puts the middlewares around a call, the first outermost.
func around(ms []Middleware, d *EventDelivery, call func(ctx context.Context) error) func(ctx context.Context) error {
	for i := len(ms) - 1; i >= 0; i-- {
		m, next := ms[i], call
		call = func(ctx context.Context) error { return m(ctx, d, next) }
	}
	return call
}

// spanName is that of each run.
const spanName = "durable_event_delivery"

// traced is the span of a run: a child of the publisher's for the first, a root that links to it for the later ones.
func (d *Deliveries) traced(ctx context.Context, row *EventDelivery, next func(ctx context.Context) error) (err error) {
	ctx, span := d.span(ctx, row)
	returned := false
	defer func() {
		if returned {
			if err != nil {
				spanFailed(span, errorText(err))
			}
			span.End()
			return
		}
		v := recover()
		p := panicOf(v)
		spanFailed(span, errorText(p))
		span.End() // not deferred: while a panic goes on it would record that once more
		if v != nil {
			panic(p) //nolint:forbidigo // goes on to where it is contained, with the stack of now
		}
	}()
	err = next(ctx)
	returned = true
	return err
}

// logged is the log of a run.
func (d *Deliveries) logged(ctx context.Context, row *EventDelivery, next func(ctx context.Context) error) error {
	begun := time.Now()
	d.Logger.DebugContext(ctx, "run begins", append(row.attrs(), slog.Int("run", row.Runs))...)
	defer func() {
		d.Logger.DebugContext(ctx, "run ends", append(row.attrs(), slog.Int("run", row.Runs), slog.Duration("took", time.Since(begun)))...)
	}()
	return next(ctx)
}

func (d *Deliveries) span(ctx context.Context, row *EventDelivery) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("subscriber_key", row.SubscriberKey), attribute.String("event_name", row.EventName)),
	}
	publisher := events.ParseHeaders(row.Headers).SpanContext()
	switch {
	case !publisher.IsValid():
		opts = append(opts, trace.WithNewRoot())
	case row.Runs <= 1:
		ctx = trace.ContextWithRemoteSpanContext(ctx, publisher)
	default:
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: publisher}))
	}
	return d.Tracer.Start(ctx, spanName, opts...) //nolint:spancheck // the caller ends it
}

// spanParked is the span of a row that was parked without a run.
func (d *Deliveries) spanParked(ctx context.Context, row *EventDelivery) {
	_, span := d.span(ctx, row)
	spanFailed(span, row.LastError)
	span.End()
}

// spanFailed records a text: the error itself may have methods that panic.
func spanFailed(span trace.Span, text string) {
	span.RecordError(errors.New(text))
	span.SetStatus(codes.Error, text)
}
