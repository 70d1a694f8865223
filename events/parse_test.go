package events_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/openloam/loam/events"
)

// contract: E-08, E-09. Raw JSON is held to the rules that Go values are held to.
// scenario: B146, B150
func TestParsePayload(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]events.Payload{
		`{}`:                           {},
		" {\t}\r\n":                    {},
		`{"id":616581622363398142}`:    {"id": int64(616581622363398142)},
		`{"m":9223372036854775807}`:    {"m": int64(math.MaxInt64)},
		`{"m":-9223372036854775808}`:   {"m": int64(math.MinInt64)},
		`{"m":18446744073709551615}`:   {"m": uint64(math.MaxUint64)},
		`{"n":1.0,"e":1e2,"z":-0.5}`:   {"n": 1.0, "e": 100.0, "z": -0.5},
		`{"a":null,"b":true,"c":""}`:   {"a": nil, "b": true, "c": ""},
		`{"u":"\u0061\/\u00e9"}`:       {"u": "a/é"},
		`{"u":"\ud83d\ude00"}`:         {"u": "😀"},
		`{"u":"\uD83D\uDE00"}`:         {"u": "😀"},
		`{"u":"\\ud800"}`:              {"u": `\ud800`},
		`{"u":"a\u0026b, 1 \u003c 2"}`: {"u": "a&b, 1 < 2"},
		`{"":1}`:                       {"": int64(1)},
		`{"a":1,"A":2}`:                {"a": int64(1), "A": int64(2)},
	} {
		got, err := events.ParsePayload([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, %v, want %#v", text, got, err, want)
		}
	}
}

// contract: E-08. What no handler could be given is refused, and the message names the key where there is one.
// scenario: B146
func TestParsePayloadRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, names string }{
		{``, ""},
		{`null`, ""},
		{`"null"`, ""},
		{`[]`, ""},
		{`[{"a":1}]`, ""},
		{`1`, ""},
		{`{`, ""},
		{`{]`, ""},
		{`{"a"}`, `"a"`},
		{`{"a":}`, `"a"`},
		{`{"a":1`, ""},
		{`{"a":1]`, ""},
		{`{"a":1,}`, ""},
		{`{,"a":1}`, ""},
		{`{"a":1 "b":2}`, ""},
		{`{a:1}`, ""},
		{`{1:1}`, ""},
		{`{"a":'x'}`, `"a"`},
		{`{"a":01}`, ""},
		{`{"a":+1}`, `"a"`},
		{`{"a":.5}`, `"a"`},
		{`{"a":1.}`, `"a"`},
		{`{"a":NaN}`, `"a"`},
		{`{"a":tru}`, `"a"`},
		{`{"a":1}{}`, ""},
		{`{"a":1} x`, ""},
		{"{\"a\":1}\x00", ""},
		{`{"a":1,"a":1}`, `"a"`},
		{`{"a":1,"\u0061":2}`, `"a"`},
		{`{"nested":{}}`, `"nested"`},
		{`{"nested":[1]}`, `"nested"`},
		{`{"big":18446744073709551616}`, `"big"`},
		{`{"small":-9223372036854775809}`, `"small"`},
		{`{"big":1e400}`, `"big"`},
		{`{"nul":"a\u0000b"}`, `"nul"`},
		{`{"nul\u0000":1}`, `"nul\x00"`},
		{"{\"raw\":\"a\x00b\"}", `"raw"`},
		{"{\"newline\":\"a\nb\"}", `"newline"`},
		{"{\"bad\":\"\xff\"}", ""},
		{"{\"bad\":\"\xed\xa0\x80\"}", ""}, // a surrogate as UTF-8
		{"{\"\xff\":1}", ""},
		{"\ufeff{}", ""},
		{`{"s":"\ud800"}`, ""},
		{`{"s":"\udc00"}`, ""},
		{`{"s":"\ud800\ud800"}`, ""},
		{`{"s":"\ud800x\udc00"}`, ""},
		{`{"s":"\udc00\ud800"}`, ""},
		{`{"s":"\ud83d\ude00\ud83d"}`, ""},
		{`{"s":"\uDBFF\uE000"}`, ""},
		{`{"s":"\\\ud800"}`, ""},
		{`{"\ud800":1}`, ""},
		{`{"s":"\u12"}`, `"s"`},
		{`{"s":"\ud83d\u"}`, ""},
	} {
		p, err := events.ParsePayload([]byte(c.text))
		if !errors.Is(err, events.ErrInvalidPayload) || p != nil {
			t.Errorf("%q: got %v, %v, want ErrInvalidPayload", c.text, p, err)
		} else if !strings.Contains(err.Error(), c.names) {
			t.Errorf("%q: the message does not name %s: %v", c.text, c.names, err)
		}
	}
}

// contract: E-08. The stored text is one object of JSON that others can read, with nothing escaped that need not be, and
// equal payloads have equal text.
// scenario: B153
func TestStoredText(t *testing.T) {
	t.Parallel()
	p := events.Payload{"u": "a&b, 1 < 2 > 0", "é": "😀", "n": 1.0, "i": int32(2), "big": uint64(math.MaxUint64), "x": nil, "ok": true}
	e, err := events.New(t.Context(), name, p, limits(1000))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"actor_id":null,"big":18446744073709551615,"i":2,"n":1.0,"ok":true,"tenant_id":null,"u":"a&b, 1 < 2 > 0","x":null,"é":"😀"}`
	if got := string(e.JSON()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var others map[string]any
	if err := json.Unmarshal(e.JSON(), &others); err != nil || others["u"] != p["u"] || len(others) != 9 {
		t.Errorf("encoding/json reads %v, %v", others, err)
	}
	same := maps.Clone(p)
	same["i"] = uint8(2) // another Go type, the same event
	again, err := events.New(t.Context(), name, same, limits(1000))
	if err != nil || string(again.JSON()) != want {
		t.Errorf("an equal payload is %s, %v", again.JSON(), err)
	}
}

// contract: E-08, E-09. Nothing makes it panic, and what it accepts encodes and parses back to the same.
func FuzzParsePayload(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"a":1}`, `{"a":1,"a":2}`, `{"a":{"b":1}}`, `{"a":[1]}`, `{"a":-0}`, `{"a":-0.0}`, `{"a":1e-400}`, `{"a":1e400}`,
		`{"a":18446744073709551615}`, `{"a":18446744073709551616}`, `{"a":-9223372036854775808}`, `{"a":5e-324}`, `{"a":1e21}`, `{"a":1E+2}`,
		`{"a":"\ud83d\ude00"}`, `{"a":"\ud800"}`, `{"a":"\\ud800"}`, `{"a":"\u0000"}`, `{"a":"\u2028<&>"}`, "{\"\xff\":1}", `{"a":"b"} {}`, `{"tenant_id":"x"}`,
		` { "a" : true , "b" : null } `, `{"a":1,}`, `{"a"`, `{"a":tr`, `{"":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := events.ParsePayload(text)
		if err != nil {
			if !errors.Is(err, events.ErrInvalidPayload) || p != nil {
				t.Fatalf("%q: %v, %v", text, p, err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is no JSON, but accepted as %v", text, p)
		}
		e, err := events.New(t.Context(), name, p, limits(math.MaxInt))
		if err != nil {
			t.Fatalf("%q was accepted as %v, which cannot be published: %v", text, p, err)
		}
		back, err := events.ParsePayload(e.JSON())
		if err != nil {
			t.Fatalf("%q was encoded as %q, which is refused: %v", text, e.JSON(), err)
		}
		want := maps.Clone(p)
		want["tenant_id"], want["actor_id"] = nil, nil
		if !maps.Equal(back, want) {
			t.Fatalf("%q: %#v came back as %#v", text, want, back)
		}
		again, err := events.New(t.Context(), name, back, limits(math.MaxInt))
		if err != nil || string(again.JSON()) != string(e.JSON()) {
			t.Fatalf("%q: equal payloads encode as %q and %q (%v)", text, e.JSON(), again.JSON(), err)
		}
	})
}
