package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// ParsePayload reads a payload from JSON text, by the rules of the package: one object of scalars, no key twice, valid
// UTF-8, no NUL, no unpaired surrogate. The error wraps ErrInvalidPayload and names the key.
func ParsePayload(text []byte) (Payload, error) {
	p, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidPayload, err)
	}
	return p, nil
}

func parse(text []byte) (Payload, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the text is not valid UTF-8")
	}
	if loneSurrogate(text) {
		return nil, errors.New(`the text has an unpaired surrogate (\ud800 to \udfff)`)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("it must be a JSON object")
	}
	p := Payload{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("it is not JSON: %w", err)
		}
		k, _ := tok.(string) // the decoder allows nothing else here
		if _, twice := p[k]; twice {
			return nil, fmt.Errorf("key %q: is there twice", k)
		}
		if p[k], err = parseValue(dec); err != nil {
			return nil, fmt.Errorf("key %q: %w", k, err)
		}
		if err := checkText(k); err != nil {
			return nil, fmt.Errorf("key %q: %w", k, err)
		}
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the object")
	}
	return p, nil
}

func parseValue(dec *json.Decoder) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	switch v := tok.(type) {
	case json.Delim:
		return nil, fmt.Errorf("a nested %s is not allowed: %s", map[json.Delim]string{'{': "object", '[': "array"}[v], scalars)
	case json.Number:
		return number(v.String())
	default:
		return scalar(v)
	}
}

// loneSurrogate reports a \uD8xx–\uDFxx escape without its other half, which encoding/json would silently replace.
func loneSurrogate(text []byte) bool {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		hi, ok := escape(text[i:])
		if !ok {
			i++ // skip what is escaped
			continue
		}
		i += 5
		if hi < 0xd800 || hi > 0xdfff {
			continue
		}
		lo, ok := escape(text[i+1:])
		if hi > 0xdbff || !ok || lo < 0xdc00 || lo > 0xdfff {
			return true
		}
		i += 6
	}
	return false
}

// escape reads a \uXXXX at the start of text.
func escape(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range text[2:6] {
		r <<= 4
		switch {
		case c >= '0' && c <= '9':
			r += rune(c - '0')
		case c >= 'a' && c <= 'f':
			r += rune(c-'a') + 10
		case c >= 'A' && c <= 'F':
			r += rune(c-'A') + 10
		default:
			return 0, false
		}
	}
	return r, true
}
