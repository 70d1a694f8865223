package durable

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

func (d *Deliveries) spanRun(ctx context.Context, row *EventDelivery) (context.Context, trace.Span) {
	return d.Tracer.Start(ctx, //nolint:spancheck // the caller ends it
		"durable_event_delivery", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("subscriber_key", row.SubscriberKey), attribute.String("event_name", row.EventName)))
}

// spanParked is the span of a row that was parked without a run.
func (d *Deliveries) spanParked(ctx context.Context, row *EventDelivery) {
	_, span := d.spanRun(ctx, row)
	spanFailed(span, row.LastError)
	span.End()
}

// spanFailed records a text: the error itself may have methods that panic.
func spanFailed(span trace.Span, text string) {
	span.RecordError(errors.New(text))
	span.SetStatus(codes.Error, text)
}
