package durable

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/openloam/loam/internal/cleantext"
)

// maxErrorBytes is the longest text of an error, or stack, that a row keeps.
const maxErrorBytes = 8 << 10

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

// maxChain is how deep errors are unwrapped: one may unwrap to itself.
const maxChain = 100

// typeName is the first type in err's chain, depth first, that says more than that something was wrapped, or else the
// innermost.
func typeName(err error) string {
	return <-contained(func() string {
		if e := telling(err, 0); e != nil {
			return fmt.Sprintf("%T", e)
		}
		inner := err
		for range maxChain {
			parts := unwrap(inner)
			if len(parts) == 0 {
				break
			}
			inner = parts[0]
		}
		return fmt.Sprintf("%T", inner)
	}, func(*PanicError) string { return fmt.Sprintf("%T", err) })
}

// telling finds the first error whose type is not from errors or fmt, nor ours to steer by.
func telling(err error, depth int) error {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if pkg := t.PkgPath(); pkg != "errors" && pkg != "fmt" && t != reflect.TypeFor[steering]() {
		return err
	}
	if depth == maxChain {
		return nil
	}
	for _, part := range unwrap(err) {
		if e := telling(part, depth+1); e != nil {
			return e
		}
	}
	return nil
}

// unwrap returns what err wraps.
func unwrap(err error) []error {
	parts := []error{errors.Unwrap(err)}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		parts = many.Unwrap()
	}
	return slices.DeleteFunc(slices.Clone(parts), func(e error) bool { return e == nil })
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

// cleanText makes s into one that a row holds.
func cleanText(s string) string { return cleantext.Cut(s, maxErrorBytes) }
