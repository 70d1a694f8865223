// Package cleantext makes a text into one that both databases hold.
package cleantext

import (
	"strings"
	"unicode/utf8"
)

const cutMark = "… (cut)"

// Cut replaces what a database cannot hold, invalid UTF-8 and NUL, and cuts at a rune to at most limit bytes.
func Cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	end := limit - len(cutMark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cutMark
}
