package events_test

import (
	"errors"
	"testing"

	"github.com/openloam/loam/events"
)

// contract: E-08, E-12. Whatever a row holds, reading it does not panic: a payload that is damaged is an error, and headers that
// are damaged are as if they were not there. What was read is stored the same again.
func FuzzStored(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1}`, `{}`},
		{`{"a":1}`, ``},
		{`{"a":1}`, `null`},
		{`{`, `{"depth":3}`},
		{`{"actor_id":7}`, `{"depth":-1}`},
		{`{"actor_id":"x"}`, `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"a=b"}`},
		{`{}`, `{"traceparent":"nonsense","depth":9223372036854775807}`},
		{`{}`, `{"depth":1e3}`},
		{`{}`, `[]`},
		{`{}`, "{\"tracestate\":\"\\u0000\"}"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, payload, headers string) {
		e, err := events.Stored("0190b8a2-6f3e-7c41-9a55-d0f1c2b3a495", name, "acme", []byte(payload), headers)
		if _, bad := events.ParsePayload([]byte(payload)); (err == nil) != (bad == nil) || err != nil && !errors.Is(err, events.ErrInvalidPayload) {
			t.Fatalf("payload %q: %v, but parsed alone: %v", payload, err, bad)
		}
		if err != nil {
			return
		}
		if string(e.JSON()) != payload || e.Headers.Depth < 0 {
			t.Fatalf("%q, %q came back as %q, %+v", payload, headers, e.JSON(), e.Headers)
		}
		_ = e.Headers.SpanContext()
		if again := events.ParseHeaders(e.Headers.JSON()); again != events.ParseHeaders(again.JSON()) {
			t.Fatalf("headers %q change each time they are stored: %+v", headers, again)
		}
	})
}
