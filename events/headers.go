package events

import (
	"context"
	"encoding/json"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Headers is what travels with an event beside its payload.
type Headers struct {
	// Traceparent and Tracestate are the publisher's trace context, in the W3C's form.
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
	// Depth is how many events caused each other before this one.
	Depth int `json:"depth,omitempty"`
}

// headersOf takes the trace of ctx: that of the publish, whoever delivers later.
func headersOf(ctx context.Context, depth int) Headers {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return Headers{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"], Depth: depth}
}

// SpanContext returns the publisher's span; it is not valid when there was none.
func (h Headers) SpanContext() trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": h.Traceparent, "tracestate": h.Tracestate}
	//nolint:forbidigo // a carrier for what Extract returns
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// JSON returns the headers as they are stored.
func (h Headers) JSON() string {
	text, _ := json.Marshal(h) // strings and a number always encode
	return string(text)
}

// ParseHeaders reads what is stored; what cannot be read is as if it were not there.
func ParseHeaders(text string) Headers {
	var h Headers
	if json.Unmarshal([]byte(text), &h) != nil || h.Depth < 0 {
		return Headers{}
	}
	return h
}
