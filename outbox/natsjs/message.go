package natsjs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

// The headers of a message: CloudEvents 1.0 in binary mode. The data is the payload's JSON.
const (
	headerVersion = "ce-specversion"
	headerID      = "ce-id"
	headerSource  = "ce-source"
	headerType    = "ce-type"
	headerTime    = "ce-time"
	// The binding for NATS has it here, that for HTTP and older readers in content-type: it is in both.
	headerDataType    = "ce-datacontenttype"
	headerContentType = "content-type"
	// Extensions: the two of distributed tracing, and ours.
	headerTraceparent = "ce-traceparent"
	headerTracestate  = "ce-tracestate"
	headerTenant      = "ce-tenantid"
	headerDepth       = "ce-loamdepth"
)

const (
	specVersion = "1.0"
	dataType    = "application/json"
)

// encode makes the message of an event. at is its time.
func encode(e events.Event, source string, at time.Time, subject string) *nats.Msg {
	h := nats.Header{}
	set := func(key, value string) {
		if value != "" {
			h.Set(key, escape(value))
		}
	}
	set(headerVersion, specVersion)
	set(headerID, e.ID)
	set(headerSource, source)
	set(headerType, e.Name)
	set(headerTime, at.UTC().Format(time.RFC3339Nano))
	set(headerDataType, dataType)
	set(headerContentType, dataType)
	set(headerTenant, e.TenantID)
	set(headerTraceparent, e.Headers.Traceparent)
	set(headerTracestate, e.Headers.Tracestate)
	if e.Headers.Depth > 0 {
		set(headerDepth, strconv.Itoa(e.Headers.Depth))
	}
	h.Set(jetstream.MsgIDHeader, messageID(e))
	return &nats.Msg{Subject: subject, Header: h, Data: e.JSON()}
}

// messageID is what the broker knows a repeat by. An event's id is unique within its tenant only, and is a UUID, so that
// no two pairs have the same text, whatever is in the tenant's id.
func messageID(e events.Event) string { return escape(e.TenantID) + "/" + e.ID }

// decode reads a message. The letter has what the message says, whether or not it is an event; its Origin, Attempts and Why are
// empty. The error is marked by outbox.Permanent.
func decode(h nats.Header, data []byte) (events.Event, outbox.Letter, error) {
	said := map[string]string{}
	for key, values := range h {
		if len(values) > 0 { // some clients write header names as HTTP does
			said[strings.ToLower(key)] = unescape(values[0])
		}
	}
	depth, _ := strconv.Atoi(said[headerDepth]) // what cannot be read is as if it were not there
	l := outbox.Letter{
		EventID: said[headerID], EventType: said[headerType], TenantID: said[headerTenant], Payload: string(data),
		Headers: events.Headers{Traceparent: said[headerTraceparent], Tracestate: said[headerTracestate], Depth: max(depth, 0)}.JSON(),
	}
	if err := check(said); err != nil {
		return events.Event{}, l, outbox.Permanent(err)
	}
	e, err := events.Queued(l.EventID, l.EventType, l.TenantID, l.Payload, l.Headers)
	if err != nil {
		return events.Event{}, l, outbox.Permanent(err)
	}
	return e, l, nil
}

// check refuses what is not a CloudEvent in binary mode with JSON as its data.
func check(said map[string]string) error {
	structured := strings.HasPrefix(said[headerContentType], "application/cloudevents")
	switch version := said[headerVersion]; {
	case version == "" && structured:
		return fmt.Errorf("the message is a CloudEvent in structured mode (%s is %.40q), only binary mode is read", headerContentType, said[headerContentType])
	case version == "":
		return fmt.Errorf("the message is no CloudEvent in binary mode: it has no header %s", headerVersion)
	case version != specVersion:
		return fmt.Errorf("%s is %.20q, only %s is read", headerVersion, version, specVersion)
	case said[headerID] == "": // with one made up here each redelivery would be another event
		return errors.New("the message has no " + headerID)
	}
	for _, key := range []string{headerDataType, headerContentType} {
		if typ := said[key]; typ != "" && !isJSON(typ) {
			return fmt.Errorf("%s is %.40q, only JSON is read", key, typ)
		}
	}
	return nil
}

func isJSON(mediaType string) bool {
	base, _, _ := strings.Cut(strings.ToLower(mediaType), ";")
	base = strings.TrimSpace(base)
	return base == dataType || strings.HasSuffix(base, "+json")
}

// escape writes a value as CloudEvents demands in a header: what is not printable ASCII, spaces, double quotes and percent
// signs are percent-encoded.
func escape(value string) string {
	var b strings.Builder
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape reads one; a percent sign that begins no code stands for itself.
func unescape(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if c, err := strconv.ParseUint(value[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(value[i])
	}
	return b.String()
}
