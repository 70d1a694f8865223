package events

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// MaxNameBytes is the longest event name, pattern or subscriber key, in bytes.
const MaxNameBytes = 200

var (
	// ErrInvalidName is returned at publish for a name that is not of the form that the package describes.
	ErrInvalidName = errors.New("loam: invalid event name")
	// ErrInvalidPattern is returned for a pattern that can match no name.
	ErrInvalidPattern = errors.New("loam: invalid event pattern")
)

const nameForm = "three or more dot-separated segments of [a-z0-9_]+, like billing.invoice.paid"

var (
	nameRE   = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+){2,}$`)
	prefixRE = regexp.MustCompile(`^([a-z0-9_]+\.)+$`)
)

// CheckName returns an error that wraps ErrInvalidName unless name is the name of an event.
func CheckName(name string) error {
	if len(name) > MaxNameBytes {
		return fmt.Errorf("%w: %.40q… has %d bytes, at most %d are allowed", ErrInvalidName, name, len(name), MaxNameBytes)
	}
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%w: %q must be %s", ErrInvalidName, name, nameForm)
	}
	return nil
}

// CheckPattern returns an error that wraps ErrInvalidPattern unless pattern is an exact name or a prefix that ends in a
// dot. The empty pattern is refused here; Bus.Subscribe allows it.
func CheckPattern(pattern string) error {
	switch {
	case pattern == "":
		return fmt.Errorf("%w: it is empty; only an inline subscriber can take every event", ErrInvalidPattern)
	case len(pattern) > MaxNameBytes:
		return fmt.Errorf("%w: %.40q… has %d bytes, at most %d are allowed", ErrInvalidPattern, pattern, len(pattern), MaxNameBytes)
	case strings.HasSuffix(pattern, "."):
		if !prefixRE.MatchString(pattern) {
			return fmt.Errorf("%w: %q must be whole segments, each with its dot, as billing. is", ErrInvalidPattern, pattern)
		}
	case !nameRE.MatchString(pattern):
		return fmt.Errorf("%w: %q must be a prefix that ends in a dot, like billing., or a name: %s", ErrInvalidPattern, pattern, nameForm)
	}
	return nil
}

// Match is the one matching rule: a pattern that ends in a dot matches every name that begins with it, the empty pattern
// every name, any other itself.
func Match(pattern, name string) bool {
	if pattern == "" || strings.HasSuffix(pattern, ".") {
		return strings.HasPrefix(name, pattern)
	}
	return pattern == name
}
