package durable

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
)

// Subscriber is one registration.
type Subscriber struct {
	// Key is what a row stores.
	Key string
	// Pattern is an event name, or a prefix that ends in a dot.
	Pattern string
	// Aliases are keys that it had before: their rows are delivered to it.
	Aliases []string
	// Handler is called for each event.
	Handler Handler
	// MaxAttempts is how many runs may fail before a delivery is dead.
	MaxAttempts int
	// Backoff is the schedule in the form of the function Backoff.
	Backoff []time.Duration
	// Timeout is the deadline of one run; 0 is the default. See Limit.
	Timeout time.Duration
	// Queue is the River queue.
	Queue string
	// Concurrency is the limit of this subscriber in one process; 0 is none of its own.
	Concurrency int

	place string // file:line of the registration
}

// answersTo reports whether rows with the key are for s.
func (s *Subscriber) answersTo(key string) bool {
	return s.Key == key || slices.Contains(s.Aliases, key)
}

// wait is how long after the start of the run that was failure n the next attempt is due.
func (s *Subscriber) wait(n int) time.Duration {
	return s.Backoff[min(n, len(s.Backoff)-1)]
}

// Transactional reports whether the handler gets a transaction: it was registered with RegisterTx.
func (s *Subscriber) Transactional() bool {
	_, ok := s.Handler.(txHandler)
	return ok
}

// sqliteTx is the deadline of a transactional handler on SQLite, where nobody else writes meanwhile.
const sqliteTx = 5 * time.Second

// Limit is the deadline of one run on a kind of database, where the engine's is byDefault.
func (s *Subscriber) Limit(kind database.Dialect, byDefault time.Duration) time.Duration {
	if kind == database.SQLite && s.Transactional() {
		byDefault = min(byDefault, sqliteTx)
	}
	return min(cmp.Or(s.Timeout, byDefault), longestTimeout)
}

// Registry maps keys to handlers. The package's functions use a default one; tests make their own. It is safe for use by
// several goroutines.
type Registry struct {
	mu     sync.RWMutex
	sealed bool
	order  []string
	byKey  map[string]Subscriber // also by alias
	gone   map[string]string     // retired keys: where that was said
}

// NewRegistry makes an empty registry.
func NewRegistry() *Registry {
	return &Registry{byKey: map[string]Subscriber{}, gone: map[string]string{}}
}

// Registered returns all registrations, in the order in which they were made.
func (r *Registry) Registered() []Subscriber {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Subscriber, 0, len(r.order))
	for _, key := range r.order {
		out = append(out, r.byKey[key])
	}
	return out
}

// SubscribersFor returns the registrations whose pattern matches name, in the order in which they were made.
func (r *Registry) SubscribersFor(name string) []Subscriber {
	return slices.DeleteFunc(r.Registered(), func(s Subscriber) bool { return !events.Match(s.Pattern, name) })
}

// HandlerFor returns the registration whose key or alias this is, and false if there is none.
func (r *Registry) HandlerFor(key string) (Subscriber, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s, ok := r.byKey[key]
	return s, ok
}

// Retired returns the keys that were retired.
func (r *Registry) Retired() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.gone))
}

// Seal refuses further registrations; the engine calls it when it starts.
func (r *Registry) Seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = true
}
