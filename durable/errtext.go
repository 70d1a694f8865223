package durable

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxErrorBytes is the longest text of an error, or stack, that a row keeps.
const maxErrorBytes = 8 << 10

const cutMark = "… (cut)"

// errorText describes err as "TYPE: message" in a form that every database can hold. Whatever methods of err do, there is
// a text.
func errorText(err error) string {
	name := typeName(err)
	return cleanText(name + ": " + message(err))
}

// message is err.Error(), or a placeholder when that panics or ends its goroutine.
func message(err error) string {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.IsNil() {
		return "(a nil pointer as an error)"
	}
	return <-contained(err.Error, func(p *PanicError) string {
		return fmt.Sprintf("(its Error method failed: %v)", safeValue(p.Value))
	})
}

// typeName is the first type in err's chain that says more than that something was wrapped.
func typeName(err error) string {
	return <-contained(func() string { return firstType(err, 0) }, func(*PanicError) string { return fmt.Sprintf("%T", err) })
}

func firstType(err error, depth int) string {
	for e := err; e != nil && depth < 100; depth++ {
		t := reflect.TypeOf(e)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if pkg := t.PkgPath(); pkg != "errors" && pkg != "fmt" && t != reflect.TypeFor[steering]() {
			return fmt.Sprintf("%T", e)
		}
		if many, ok := e.(interface{ Unwrap() []error }); ok {
			for _, part := range many.Unwrap() {
				if part != nil {
					return firstType(part, depth+1)
				}
			}
		}
		next := errors.Unwrap(e)
		if next == nil {
			return fmt.Sprintf("%T", e)
		}
		e = next
	}
	return fmt.Sprintf("%T", err)
}

// safeValue formats the kinds of a panic's value that have no methods to call.
func safeValue(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case fmt.Stringer, error:
		return fmt.Sprintf("%T", v)
	default:
		return fmt.Sprint(v)
	}
}

// cleanText replaces what a database cannot hold and cuts at a rune.
func cleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if len(s) <= maxErrorBytes {
		return s
	}
	end := maxErrorBytes - len(cutMark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cutMark
}
