package natsjs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

const anID = "0190b8a2-6f3e-7c41-9a55-d0f1c2b3a495"

// odd are tenants whose ids NATS would not take as they are, as a part of a name or a header.
var odd = []string{
	"acme", "acme.eu", "a b", "a  b", " a", "a ", "ä", "日本", "*", ">", "a%20b", "a%2520b", "%", `"`, `a"b`, "a/b", "a\r\nNats-Rollup: all", "\t", "$JS.API",
	strings.Repeat("é", 100),
}

func queued(t *testing.T, tenantID, id string, h events.Headers) events.Event {
	t.Helper()
	e, err := events.Queued(id, paid, tenantID, `{"big":18446744073709551615,"text":"Grüße\n"}`, h.JSON())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What is sent is what is received, byte for byte, whatever the tenant is called, through a real server. Names of streams and
// subjects have nothing of it, and no two pairs of tenant and event id have the same message id.
//
// contract: N-01
// scenario: B122
func TestAMessageThereAndBack(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	s := newSender(t, url)
	second := "0190b8a2-6f3e-7c41-9a55-d0f1c2b3a496"
	h := events.Headers{Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Tracestate: "a=1,b=2", Depth: 7}
	var evs []events.Event
	for _, id := range odd {
		evs = append(evs, queued(t, id, anID, h), queued(t, id, second, events.Headers{}))
	}
	s.send(evs...)
	js := watcher(t, url)
	stream, err := js.Stream(t.Context(), natsjs.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != uint64(len(evs)) {
		t.Fatalf("%d messages for %d events", n, len(evs))
	}
	seen := map[string]bool{}
	for i, e := range evs {
		m, err := stream.GetMsg(t.Context(), uint64(i)+1)
		if err != nil {
			t.Fatal(err)
		}
		if id := m.Header.Get(jetstream.MsgIDHeader); id == "" || seen[id] {
			t.Errorf("%q: the message id %q is another event's too", e.TenantID, id)
		} else {
			seen[id] = true
		}
		if m.Subject != "loam.events."+paid {
			t.Errorf("%q: subject %q", e.TenantID, m.Subject)
		}
		got, letter, err := natsjs.Decode(m.Header, m.Data)
		if err != nil {
			t.Fatalf("%q: %v", e.TenantID, err)
		}
		if got.ID != e.ID || got.Name != e.Name || got.TenantID != e.TenantID || string(got.JSON()) != string(e.JSON()) || got.Headers != e.Headers {
			t.Errorf("sent %+v\ngot %+v", e, got)
		}
		want := outbox.Letter{EventID: e.ID, EventType: e.Name, TenantID: e.TenantID, Payload: string(e.JSON()), Headers: e.Headers.JSON()}
		if letter != want {
			t.Errorf("the letter is %+v, want %+v", letter, want)
		}
		for key, values := range m.Header {
			if len(values) != 1 || strings.TrimSpace(values[0]) != values[0] || strings.ContainsAny(values[0], "\r\n") {
				t.Errorf("header %q is %q", key, values)
			}
		}
	}
}

// The headers are CloudEvents' in binary mode.
func TestHeadersOfAMessage(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 5000, time.FixedZone("", 3600))
	m := natsjs.Encode(queued(t, "Ünï 1%", anID, events.Headers{Depth: 2}), "/billing", at, "loam.events."+paid)
	want := nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {anID}, "ce-source": {"/billing"}, "ce-type": {paid}, "ce-time": {"2026-03-01T11:00:00.000005Z"},
		"ce-datacontenttype": {"application/json"}, "content-type": {"application/json"},
		"ce-tenantid": {"%C3%9Cn%C3%AF%201%25"}, "ce-loamdepth": {"2"}, "Nats-Msg-Id": {"%C3%9Cn%C3%AF%201%25/" + anID},
	}
	if got, want := fmt.Sprint(m.Header), fmt.Sprint(want); got != want {
		t.Errorf("headers are\n%s, want\n%s", got, want)
	}
}

// What another program writes is read, if it is a CloudEvent in binary mode with a UUID, a tenant and an object of scalars; what is
// not says why, is permanent, and its letter has what it said.
//
// contract: O-07
func TestAForeignMessage(t *testing.T) {
	t.Parallel()
	base := map[string]string{"ce-specversion": "1.0", "ce-id": anID, "ce-type": paid, "ce-source": "/x", "ce-tenantid": "acme"}
	for name, c := range map[string]struct {
		change map[string]string
		data   string
		err    string // none: it is read
	}{
		"plain":             {nil, `{"a":1}`, ""},
		"http's names":      {map[string]string{"ce-id": "", "Ce-Id": anID, "Content-Type": "application/json; charset=utf-8"}, `{"a":1}`, ""},
		"a json suffix":     {map[string]string{"ce-datacontenttype": "application/vnd.x+json"}, `{"a":1}`, ""},
		"tenant in data":    {map[string]string{"ce-tenantid": ""}, `{"tenant_id":"acme"}`, ""},
		"odd depth":         {map[string]string{"ce-loamdepth": "-x"}, `{}`, ""},
		"no headers at all": {map[string]string{"ce-specversion": "", "ce-id": "", "ce-type": "", "ce-source": "", "ce-tenantid": ""}, `{}`, "no CloudEvent in binary mode"},
		"structured":        {map[string]string{"ce-specversion": "", "content-type": "application/cloudevents+json"}, `{}`, "only binary mode is read"},
		"version":           {map[string]string{"ce-specversion": "0.3"}, `{}`, `ce-specversion is "0.3"`},
		"no id":             {map[string]string{"ce-id": ""}, `{}`, "no ce-id"},
		"no uuid":           {map[string]string{"ce-id": "A234-1234"}, `{}`, "must be a UUID"},
		"bad type":          {map[string]string{"ce-type": "com.Example"}, `{}`, "invalid event name"},
		"no type":           {map[string]string{"ce-type": ""}, `{}`, "invalid event name"},
		"no tenant":         {map[string]string{"ce-tenantid": ""}, `{}`, "names a tenant"},
		"two tenants":       {nil, `{"tenant_id":"globex"}`, "its payload says"},
		"xml":               {map[string]string{"content-type": "application/xml"}, `<a/>`, "only JSON is read"},
		"no json":           {nil, `{"a":`, "payload"},
		"a record":          {nil, `{"a":{"b":1}}`, "payload"},
		"no data":           {nil, ``, "payload"},
		"bad utf-8":         {map[string]string{"ce-tenantid": "%FF"}, `{}`, "UTF-8"},
	} {
		h := nats.Header{}
		for _, all := range []map[string]string{base, c.change} {
			for key, value := range all {
				h.Del(key)
				if value != "" {
					h.Set(key, value)
				}
			}
		}
		e, letter, err := natsjs.Decode(h, []byte(c.data))
		if c.err == "" {
			if err != nil || e.ID != anID || e.TenantID != "acme" || e.Name != paid {
				t.Errorf("%s: %+v, %v", name, e, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.err) || !outbox.IsPermanent(err) {
			t.Errorf("%s: %v, want %q, permanent", name, err, c.err)
		}
		if letter.Payload != c.data || letter.Headers == "" || letter.EventType != h.Get("ce-type") {
			t.Errorf("%s: the letter is %+v", name, letter)
		}
	}
}

// Whatever a header has to carry comes back, and is printable ASCII on the way.
func FuzzEscape(f *testing.F) {
	for _, s := range odd {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := natsjs.Escape(s)
		for _, c := range []byte(e) {
			if c <= ' ' || c > '~' {
				t.Fatalf("%q is %q", s, e)
			}
		}
		if got := natsjs.Unescape(e); got != s {
			t.Fatalf("%q came back as %q", s, got)
		}
	})
}
