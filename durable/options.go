package durable

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// MaxAttempts is how many runs of a delivery may fail before it is dead, unless its registration says otherwise.
const MaxAttempts = 5

// Backoff is the default schedule: entry n is the wait after failure n, and the last entry is the cap. Entry 0 is the wait
// before the first run.
func Backoff() []time.Duration {
	return []time.Duration{0, 60 * time.Second, 300 * time.Second, 1800 * time.Second, 7200 * time.Second}
}

// Names of River queues that have a meaning here.
const (
	// DefaultQueue is where a delivery is woken unless its registration names another queue.
	DefaultQueue = "loam"
	// SuspectQueue has one worker: rows that were being run in two crashes or more are woken there, each alone.
	SuspectQueue = "loam_suspect"
	// MaintenanceQueue is where sweeps run.
	MaintenanceQueue = "loam_maintenance"
)

// Option changes a registration.
type Option func(*Subscriber) error

// WithMaxAttempts sets how many runs may fail before a delivery is dead. Defaults to MaxAttempts.
func WithMaxAttempts(n int) Option {
	return func(s *Subscriber) error {
		if n < 1 {
			return fmt.Errorf("WithMaxAttempts(%d): must be at least 1", n)
		}
		s.MaxAttempts = n
		return nil
	}
}

// WithBackoff sets the waits after failure 1, 2 and so on, counted from the start of the failed run; the last is the cap.
// Defaults to 60, 300, 1800 and 7200 seconds.
func WithBackoff(waits ...time.Duration) Option {
	return func(s *Subscriber) error {
		if len(waits) == 0 {
			return errors.New("WithBackoff(): needs at least one wait")
		}
		for _, w := range waits {
			if w < 0 {
				return fmt.Errorf("WithBackoff: %v is negative", w)
			}
		}
		s.Backoff = slices.Concat([]time.Duration{0}, waits)
		return nil
	}
}

// WithTimeout sets the deadline of one run. Defaults to the engine's Config.HandlerTimeout (60 seconds).
func WithTimeout(d time.Duration) Option {
	return func(s *Subscriber) error {
		if d <= 0 {
			return fmt.Errorf("WithTimeout(%v): must be positive", d)
		}
		s.Timeout = d
		return nil
	}
}

// WithConcurrency limits how many runs of this subscriber a process has at once, within the engine's
// Config.Concurrency. Deliveries that wait for it hold workers of their queue: give a slow subscriber a queue of its own.
func WithConcurrency(n int) Option {
	return func(s *Subscriber) error {
		if n < 1 {
			return fmt.Errorf("WithConcurrency(%d): must be at least 1", n)
		}
		s.Concurrency = n
		return nil
	}
}

// WithAliases lists keys that the subscriber had before a rename: rows with such a key are delivered to it.
func WithAliases(keys ...string) Option {
	return func(s *Subscriber) error {
		for _, k := range keys {
			if err := checkKey(k); err != nil {
				return fmt.Errorf("WithAliases(%q): %w", k, err)
			}
			if k == s.Key || slices.Contains(s.Aliases, k) {
				return fmt.Errorf("WithAliases(%q): it is the key, or listed twice", k)
			}
			s.Aliases = append(s.Aliases, k)
		}
		return nil
	}
}

var queueRE = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)

// WithQueue gives the subscriber a River queue, so that its backlog does not hold up the others. Defaults to DefaultQueue.
func WithQueue(name string) Option {
	return func(s *Subscriber) error {
		if len(name) > 64 || !queueRE.MatchString(name) {
			return fmt.Errorf("WithQueue(%q): must be at most 64 of a-z and 0-9, with single _ or - between", name)
		}
		if name == SuspectQueue || name == MaintenanceQueue {
			return fmt.Errorf("WithQueue(%q): the name is taken", name)
		}
		s.Queue = name
		return nil
	}
}
