package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// shownBytes is how much of a payload a page shows.
	shownBytes = 64 << 10
	// indentBytes and indentDepth bound what is indented: depth is squared by it.
	indentBytes = 1 << 20
	indentDepth = 50
)

// payload is what an event carries, as a page shows it.
type payload struct {
	Size string
	Cut  string // says that it is not all, and empty if it is
	Text []piece
}

func payloadOf(stored string) payload {
	text := stored
	if len(stored) <= indentBytes && depth(stored) <= indentDepth {
		var b bytes.Buffer
		if json.Indent(&b, []byte(stored), "", "  ") == nil { // never through float64: every digit stays
			text = b.String()
		}
	}
	p := payload{Size: plural(len(stored), "byte", "bytes")}
	if len(text) > shownBytes {
		text, p.Cut = cut(text, shownBytes), "the first "+number(shownBytes>>10)+nb+"KiB are shown"
	}
	p.Text = spelled(text)
	return p
}

// cut returns at most n bytes of s, whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// depth is how deep a JSON text nests, at most: brackets in strings count.
func depth(s string) int {
	deepest, now := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

// actorOf is who published, as the payload says.
func actorOf(stored string) string {
	var p struct {
		Actor *string `json:"actor_id"`
	}
	if json.Unmarshal([]byte(stored), &p) != nil || p.Actor == nil {
		return ""
	}
	return *p.Actor
}

// headersOf writes an event's headers, a line each, in the order of their names.
func headersOf(stored string) []piece {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(stored), &all) != nil {
		return spelled(cut(stored, shownBytes))
	}
	names := make([]string, 0, len(all))
	width := 0
	for n := range all {
		names = append(names, n)
		width = max(width, utf8.RuneCountInString(n))
	}
	slices.Sort(names)
	var b strings.Builder
	for i, n := range names {
		value := string(all[n])
		var text string
		if json.Unmarshal(all[n], &text) == nil {
			value = text
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%-*s  %s", width, n, value)
	}
	return spelled(cut(b.String(), shownBytes))
}
