package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// encode writes a normalized payload in its one form: keys in byte order, no spaces, nothing escaped that need not be, a
// float always with a point or an exponent so that it comes back a float. Equal payloads have equal bytes.
func (p Payload) encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range slices.Sorted(maps.Keys(p)) {
		if i > 0 {
			b.WriteByte(',')
		}
		writeString(&b, k)
		b.WriteByte(':')
		switch v := p[k].(type) {
		case nil:
			b.WriteString("null")
		case bool:
			b.WriteString(strconv.FormatBool(v))
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		case uint64:
			b.WriteString(strconv.FormatUint(v, 10))
		case float64:
			b.WriteString(formatFloat(v))
		case string:
			writeString(&b, v)
		default:
			return nil, fmt.Errorf("%w: key %q: a %T is not allowed: %s", ErrInvalidPayload, k, v, scalars)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func writeString(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)       // a string always encodes, and a Buffer always takes it
	b.Truncate(b.Len() - 1) // without the newline that Encode adds
}

func formatFloat(f float64) string {
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	s := strconv.FormatFloat(f, format, -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}
