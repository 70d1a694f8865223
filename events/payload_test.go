package events_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

const name = "billing.invoice.paid"

// publish makes an event as Publish does, and reads it back as a worker does.
func publish(t *testing.T, p events.Payload) (inline, stored events.Event) {
	t.Helper()
	inline, err := events.New(t.Context(), name, p, limits(events.DefaultMaxPayloadBytes))
	if err != nil {
		t.Fatal(err)
	}
	stored, err = events.Stored(inline.ID, inline.Name, inline.TenantID, inline.JSON(), "{}")
	if err != nil {
		t.Fatalf("what was published cannot be read back: %v", err)
	}
	return inline, stored
}

type (
	customString string
	customInt    int32
	customBool   bool
)

// contract: E-08, E-09. Every Go scalar reaches an inline and a durable subscriber as the same value of the same type.
// scenario: B150, B153
func TestScalarsAreTheSameInlineAndDurable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want any }{
		{nil, nil},
		{true, true},
		{customBool(false), false},
		{"", ""},
		{"a&b, 1 < 2 > 0", "a&b, 1 < 2 > 0"},
		{"\"\\\n\t\u2028\u2029é 日本 😀", "\"\\\n\t\u2028\u2029é 日本 😀"},
		{customString("x"), "x"},
		{int(-1), int64(-1)},
		{int8(math.MinInt8), int64(-128)},
		{int16(math.MaxInt16), int64(32767)},
		{int32(math.MinInt32), int64(-2147483648)},
		{customInt(5), int64(5)},
		{time.Second, int64(1_000_000_000)},
		{int64(616581622363398142), int64(616581622363398142)},
		{int64(math.MaxInt64), int64(9223372036854775807)},
		{int64(math.MinInt64), int64(-9223372036854775808)},
		{int64(9007199254740993), int64(9007199254740993)}, // not a float64
		{uint8(255), int64(255)},
		{uint64(math.MaxInt64), int64(9223372036854775807)},
		{uint64(math.MaxInt64) + 1, uint64(9223372036854775808)},
		{uint64(math.MaxUint64), uint64(18446744073709551615)},
		{float32(0.5), 0.5},
		{1.0, 1.0}, // stays a float
		{-3.0, -3.0},
		{0.1, 0.1},
		{1e21, 1e21},
		{1e20, 1e20},
		{math.MaxFloat64, math.MaxFloat64},
		{math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat64},
		{json.Number("42"), int64(42)},
		{json.Number("18446744073709551615"), uint64(18446744073709551615)},
		{json.Number("1.50"), 1.5},
		{json.Number("1e3"), 1000.0},
	} {
		inline, stored := publish(t, events.Payload{"k": c.in})
		for what, got := range map[string]any{"inline": inline.Payload["k"], "durable": stored.Payload["k"]} {
			if got != c.want || reflect.TypeOf(got) != reflect.TypeOf(c.want) {
				t.Errorf("%T %v: %s it is %T %v, want %T %v", c.in, c.in, what, got, got, c.want, c.want)
			}
		}
	}
}

// contract: E-09. Integers come back exactly as they went in, over the whole range of int64 and uint64.
func TestIntegersKeepEveryDigit(t *testing.T) {
	t.Parallel()
	signed := func(i int64, shift uint8) bool {
		i >>= shift % 64
		inline, stored := publish(t, events.Payload{"i": i})
		return inline.Payload["i"] == i && stored.Payload["i"] == i && strings.Contains(string(stored.JSON()), `"i":`+strconv.FormatInt(i, 10)+`,`)
	}
	unsigned := func(u uint64, shift uint8) bool {
		u >>= shift % 64
		var want any = u
		if u <= math.MaxInt64 {
			want = int64(u)
		}
		inline, stored := publish(t, events.Payload{"a": u})
		return inline.Payload["a"] == want && stored.Payload["a"] == want && strings.HasPrefix(string(stored.JSON()), `{"a":`+strconv.FormatUint(u, 10)+`,`)
	}
	for _, property := range []any{signed, unsigned} {
		if err := quick.Check(property, &quick.Config{MaxCount: 5000}); err != nil {
			t.Error(err)
		}
	}
}

// contract: E-09. A float comes back as the same float, and never as an integer.
func TestFloatsComeBackAsFloats(t *testing.T) {
	t.Parallel()
	property := func(f float64, whole int32) bool {
		inline, stored := publish(t, events.Payload{"f": f, "w": float64(whole)})
		return inline.Payload["f"] == f && stored.Payload["f"] == f && inline.Payload["w"] == float64(whole) && stored.Payload["w"] == float64(whole)
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// contract: E-08. What is no scalar, or cannot be stored on both databases, is refused, and the message names the key.
func TestPayloadsThatAreRefused(t *testing.T) {
	t.Parallel()
	five := 5
	for what, v := range map[string]any{
		"a record":            struct{ ID int }{1},
		"a pointer":           &five,
		"a nil pointer":       (*int)(nil),
		"a map":               map[string]any{"a": 1},
		"a payload":           events.Payload{"a": 1},
		"a slice":             []int{1},
		"bytes":               []byte("x"),
		"raw JSON":            json.RawMessage("1"),
		"an array":            [2]int{1, 2},
		"a time":              time.Unix(0, 0),
		"a complex":           complex(1, 2),
		"a function":          func() {},
		"a channel":           make(chan int),
		"an error":            errors.New("x"),
		"NaN":                 math.NaN(),
		"infinity":            math.Inf(1),
		"minus infinity":      math.Inf(-1),
		"a NUL":               "a\x00b",
		"invalid UTF-8":       "a\xff",
		"half a surrogate":    "\xed\xa0\x80",
		"no number":           json.Number("12x"),
		"an empty number":     json.Number(""),
		"a leading zero":      json.Number("01"),
		"a number with space": json.Number(" 1"),
		"an escaped string":   json.Number(`"1"`),
		"null as a number":    json.Number("null"),
		"too large":           json.Number("18446744073709551616"),
		"too small":           json.Number("-9223372036854775809"),
		"a float too large":   json.Number("1e400"),
		"a NaN as a number":   json.Number("NaN"),
		"a hex number":        json.Number("0x10"),
		"a number with _":     json.Number("1_000"),
	} {
		_, err := events.New(t.Context(), name, events.Payload{"fine": 1, "bad_one": v}, limits(events.DefaultMaxPayloadBytes))
		if !errors.Is(err, events.ErrInvalidPayload) {
			t.Errorf("%s: got %v, want ErrInvalidPayload", what, err)
		} else if !strings.Contains(err.Error(), `"bad_one"`) {
			t.Errorf("%s: the message does not name the key: %v", what, err)
		}
	}
	for what, key := range map[string]string{"a NUL": "k\x00", "invalid UTF-8": "k\xff"} {
		_, err := events.New(t.Context(), name, events.Payload{key: 1}, limits(events.DefaultMaxPayloadBytes))
		if !errors.Is(err, events.ErrInvalidPayload) || !strings.Contains(err.Error(), strconv.Quote(key)) {
			t.Errorf("%s in a key: got %v, want ErrInvalidPayload with the key", what, err)
		}
	}
}

// contract: E-08. Exactly the limit passes, one byte more does not; the message says how much is allowed.
func TestPayloadSize(t *testing.T) {
	t.Parallel()
	const overhead = len(`{"actor_id":null,"k":"","tenant_id":null}`)
	for _, limit := range []int{100, 65536} {
		fits := strings.Repeat("x", limit-overhead)
		if _, err := events.New(t.Context(), name, events.Payload{"k": fits}, limits(limit)); err != nil {
			t.Errorf("a payload of exactly %d bytes is refused: %v", limit, err)
		}
		_, err := events.New(t.Context(), name, events.Payload{"k": fits + "x"}, limits(limit))
		if !errors.Is(err, events.ErrInvalidPayload) || !strings.Contains(err.Error(), strconv.Itoa(limit)) {
			t.Errorf("%d bytes: got %v, want ErrInvalidPayload with the limit", limit+1, err)
		}
	}
	if events.DefaultMaxPayloadBytes != 64*1024 {
		t.Errorf("the default is %d", events.DefaultMaxPayloadBytes)
	}
}

// contract: E-07. Tenant and actor come from the context, whatever the caller wrote; both keys are always there.
func TestTenantAndActorAreStamped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tenant, actor         string
		wantTenant, wantActor any
	}{
		{"", "", nil, nil},
		{"acme", "", "acme", nil},
		{"", "u1", nil, "u1"},
		{"acme", "u1", "acme", "u1"},
	} {
		for _, forged := range []events.Payload{nil, {}, {"tenant_id": "globex", "actor_id": "root"}, {"tenant_id": 7, "actor_id": nil}} {
			e, err := events.New(tenant.WithActor(tenant.With(t.Context(), c.tenant), c.actor), name, forged, limits(1000))
			if err != nil {
				t.Fatal(err)
			}
			stored, err := events.Stored(e.ID, e.Name, e.TenantID, e.JSON(), "{}")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range []events.Event{e, stored} {
				gotTenant, hasTenant := e.Payload["tenant_id"]
				gotActor, hasActor := e.Payload["actor_id"]
				if !hasTenant || !hasActor || gotTenant != c.wantTenant || gotActor != c.wantActor || len(e.Payload) != 2 {
					t.Errorf("%+v from %v: the payload is %v", c, forged, e.Payload)
				}
				if e.TenantID != c.tenant || e.ActorID != c.actor {
					t.Errorf("%+v: the event has tenant %q and actor %q", c, e.TenantID, e.ActorID)
				}
			}
		}
	}
}

// contract: E-01, E-08. A tenant id over 200 bytes, and an actor that cannot be stored, are refused.
func TestTenantAndActorAreChecked(t *testing.T) {
	t.Parallel()
	for _, id := range []string{strings.Repeat("t", 201), "a\x00", "\xff"} {
		if _, err := events.New(tenant.With(t.Context(), id), name, nil, limits(10_000)); !errors.Is(err, tenant.ErrInvalidID) {
			t.Errorf("tenant %.20q: got %v, want tenant.ErrInvalidID", id, err)
		}
	}
	if _, err := events.New(tenant.With(t.Context(), strings.Repeat("t", 200)), name, nil, limits(10_000)); err != nil {
		t.Errorf("a tenant of 200 bytes is refused: %v", err)
	}
	for _, id := range []string{"a\x00", "\xff"} {
		_, err := events.New(tenant.WithActor(t.Context(), id), name, nil, limits(10_000))
		if !errors.Is(err, events.ErrInvalidPayload) || !strings.Contains(err.Error(), `"actor_id"`) {
			t.Errorf("actor %q: got %v, want ErrInvalidPayload with the key", id, err)
		}
	}
}
