package durable

import (
	"errors"
	"fmt"
	"time"
)

// Park returns an error by which a handler says that trying again is useless: the delivery is dead at once. The failure
// counts, and err is its last error.
func Park(err error) error { return &steering{kind: parked, err: err} }

// Snooze returns an error by which a handler says that it is too early: the delivery is tried again d from now (at least
// a second) and no attempt is spent.
func Snooze(d time.Duration) error { return &steering{kind: snoozed, wait: max(d, time.Second)} }

// RetryAfter returns an error by which a handler fails and says when to try again: d from now, in place of the schedule.
// The failure counts; the last one is final.
func RetryAfter(d time.Duration, err error) error {
	return &steering{kind: failure, wait: max(d, 0), err: err}
}

// steering is what a handler wants done.
type steering struct {
	kind kind
	wait time.Duration
	err  error
}

// Error implements error.
func (s *steering) Error() string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case s.kind == snoozed:
		return fmt.Sprintf("snoozed for %v", s.wait)
	case s.kind == failure:
		return "failed by its handler"
	}
	return "parked by its handler"
}

// Unwrap returns the handler's own error.
func (s *steering) Unwrap() error { return s.err }

// steeringOf finds what a handler's error says, whatever methods of the error do.
func steeringOf(err error) *steering {
	return <-contained(func() *steering {
		var s *steering
		if errors.As(err, &s) {
			return s
		}
		return nil
	}, func(*PanicError) *steering { return nil })
}
