package admin

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// piece is a part of a text from outside. The templates escape it; pieces say what else is to be done.
type piece struct {
	Text string
	// Code says that Text spells out what must not be sent raw: a control character, or a byte that is no text.
	Code bool
	// Bold is the error's type. Break allows a line to end after it.
	Bold, Break bool
}

// hidden reports whether r would not be seen, or would change how what follows is seen: controls, zero-width characters,
// marks of direction.
func hidden(r rune) bool {
	return r != '\t' && r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// spelled returns s in pieces, with what is hidden spelled out as Go would, and bytes that are no UTF-8 as such.
func spelled(s string) []piece {
	var out []piece
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		code := ""
		switch {
		case r == utf8.RuneError && n == 1:
			code = fmt.Sprintf(`\x%02x`, s[i])
		case hidden(r) && r > 0xffff:
			code = fmt.Sprintf(`\U%08x`, r)
		case hidden(r):
			code = fmt.Sprintf(`\u%04x`, r)
		}
		if code != "" {
			if start < i {
				out = append(out, piece{Text: s[start:i]})
			}
			out = append(out, piece{Text: code, Code: true})
			start = i + n
		}
		i += n
	}
	if start < len(s) {
		out = append(out, piece{Text: s[start:]})
	}
	return out
}

// plain is spelled for where there is no markup: titles and attributes. Lines become spaces.
func plain(s string) string {
	var b strings.Builder
	for _, p := range spelled(s) {
		b.WriteString(p.Text)
	}
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(b.String())
}

// errorPieces is spelled with the type, up to the first colon, in bold. What Loam itself says has none.
func errorPieces(s string) []piece {
	typ, _, ok := strings.Cut(s, ":")
	if !ok || !strings.Contains(typ, ".") || strings.ContainsAny(typ, " \n\t") || len(typ) > 200 {
		return spelled(s)
	}
	head := spelled(s[:len(typ)+1])
	for i := range head {
		head[i].Bold = true
	}
	return append(head, spelled(s[len(typ)+1:])...)
}

// name is spelled with a chance to break the line after each dot and underscore.
func name(s string) []piece {
	var out []piece
	for _, p := range spelled(s) {
		if p.Code {
			out = append(out, p)
			continue
		}
		for part := range breakable(p.Text) {
			out = append(out, piece{Text: part, Break: strings.HasSuffix(part, ".") || strings.HasSuffix(part, "_")})
		}
	}
	return out
}

// breakable yields s cut after each dot and underscore.
func breakable(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for s != "" {
			i := strings.IndexAny(s, "._") + 1
			if i == 0 {
				i = len(s)
			}
			if !yield(s[:i]) {
				return
			}
			s = s[i:]
		}
	}
}

// ident is an id: its tail is shown, the whole is copied.
type ident struct{ Head, Tail string }

// tailChars is how much of an id a list shows. A UUIDv7 begins with its time, so that heads look alike.
const tailChars = 8

func idOf(s string) ident {
	s = plain(s)
	cut := len(s)
	for n := 0; n < tailChars && cut > 0; n++ {
		_, size := utf8.DecodeLastRuneInString(s[:cut])
		cut -= size
	}
	return ident{s[:cut], s[cut:]}
}

// Whole is the id in full.
func (i ident) Whole() string { return i.Head + i.Tail }
