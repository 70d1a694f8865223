package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrInvalidPayload is returned for a payload that is not a JSON object of scalars, or too large. The message names the
// key.
var ErrInvalidPayload = errors.New("loam: invalid payload")

const scalars = "only strings, integers, floats, bools and nil are allowed (pass an id, not a record)"

// Keys that Publish sets from the context, whatever the caller put there.
const (
	KeyTenant = "tenant_id"
	KeyActor  = "actor_id"
)

// Payload is the data of an event. A nil Payload counts as an empty one.
type Payload map[string]any

// normalize returns a copy in which every value has one of the types that handlers see.
func (p Payload) normalize() (Payload, error) {
	out := make(Payload, len(p)+2)
	for _, k := range slices.Sorted(maps.Keys(p)) {
		if err := checkText(k); err != nil {
			return nil, fmt.Errorf("%w: key %q: %w", ErrInvalidPayload, k, err)
		}
		v, err := scalar(p[k])
		if err != nil {
			return nil, fmt.Errorf("%w: key %q: %w", ErrInvalidPayload, k, err)
		}
		out[k] = v
	}
	return out, nil
}

// scalar turns any Go value of a scalar kind into string, int64, uint64, float64, bool or nil.
func scalar(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	if n, ok := v.(json.Number); ok {
		return number(n.String())
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.String:
		return r.String(), checkText(r.String())
	case reflect.Bool:
		return r.Bool(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return r.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if u := r.Uint(); u > math.MaxInt64 {
			return u, nil
		}
		return int64(r.Uint()), nil //nolint:gosec // it fits: see above
	case reflect.Float32, reflect.Float64:
		f := r.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("JSON has no number for %v", f)
		}
		return f, nil
	default:
		return nil, fmt.Errorf("a %T is not allowed: %s", v, scalars)
	}
}

// number reads a JSON number: an integer keeps every digit, anything with a point or an exponent is a float.
func number(text string) (any, error) {
	if !json.Valid([]byte(text)) || text == "" || strings.ContainsAny(text[:1], `"{[tfn`) {
		return nil, fmt.Errorf("%.40q is not a number", text)
	}
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("the float %.40s is out of range", text)
		}
		return f, nil
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u, nil
	}
	return nil, fmt.Errorf("the integer %.40s is out of the range of int64 and uint64", text)
}

func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("the text is not valid UTF-8")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return errors.New("the text contains a NUL, which PostgreSQL cannot store")
	}
	return nil
}
