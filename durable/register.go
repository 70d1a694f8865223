package durable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openloam/loam/events"
)

var defaultRegistry = NewRegistry()

// DefaultRegistry returns the registry that Register and RegisterFunc fill.
func DefaultRegistry() *Registry { return defaultRegistry }

// Register adds a durable subscriber to the default registry: from then on, every event that pattern matches is captured for
// it and reaches h once the engine has started. The key is stored in rows: choose a stable one. A bad pattern, an empty key, a nil handler, a
// key that is taken, or a registration after the engine has started is a programming error, and panics with a message
// that names the key and the places.
func Register(key, pattern string, h Handler, opts ...Option) {
	defaultRegistry.register(key, pattern, h, opts, caller())
}

// RegisterFunc is Register for a function.
func RegisterFunc(key, pattern string, f func(ctx context.Context, e events.Event) error, opts ...Option) {
	defaultRegistry.register(key, pattern, HandlerFunc(f), opts, caller())
}

// RegisterTx is Register for a transactional handler. It runs inside a transaction, which commits what f writes through tx
// together with the delivery: for that, and for events published by PublishTx with tx, it is exactly once. Effects
// elsewhere stay at least once, and f may be called again after anything but its commit.
//
// When f returns nil, the delivery is marked in the same transaction and both are committed. With an error, a panic, or when
// the claim is lost, all is rolled back. When its context ends, the transaction is rolled back at once, whether f has returned
// or not, and what it returns later is a failure. A transaction that PostgreSQL rolled back for a conflict, or that the
// database was not there to commit, spends no attempt. f must return the errors of tx's statements, must not end tx itself,
// and must not use it after it has returned. Publish on its context returns events.ErrInTransaction.
//
// On SQLite one transactional handler of a process runs at a time, nobody else writes meanwhile, and its deadline defaults
// to 5 s; on PostgreSQL they hold at most half of the pool that writes. What waits for its turn holds a slot, and its
// deadline has not begun.
func RegisterTx(key, pattern string, f func(ctx context.Context, tx *sql.Tx, e events.Event) error, opts ...Option) {
	defaultRegistry.register(key, pattern, txHandler(f), opts, caller())
}

// Register is the function Register, for this registry.
func (r *Registry) Register(key, pattern string, h Handler, opts ...Option) {
	r.register(key, pattern, h, opts, caller())
}

// RegisterFunc is the function RegisterFunc, for this registry.
func (r *Registry) RegisterFunc(key, pattern string, f func(ctx context.Context, e events.Event) error, opts ...Option) {
	r.register(key, pattern, HandlerFunc(f), opts, caller())
}

// RegisterTx is the function RegisterTx, for this registry.
func (r *Registry) RegisterTx(key, pattern string, f func(ctx context.Context, tx *sql.Tx, e events.Event) error, opts ...Option) {
	r.register(key, pattern, txHandler(f), opts, caller())
}

func (r *Registry) register(key, pattern string, h Handler, opts []Option, place string) {
	s := Subscriber{Key: key, Pattern: pattern, Handler: h, MaxAttempts: MaxAttempts, Backoff: Backoff(), Queue: DefaultQueue, place: place}
	errs := []error{checkKey(key), events.CheckPattern(pattern)}
	if isNil(h) {
		errs = append(errs, errors.New("the handler is nil"))
	}
	for _, opt := range opts {
		errs = append(errs, opt(&s))
	}
	if err := errors.Join(errs...); err != nil {
		panic(fmt.Errorf("durable: Register(%q, %q) at %s: %w", key, pattern, place, err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed {
		panic(fmt.Errorf("durable: Register(%q, %q) at %s: the engine has started; register at boot, before Start", key, pattern, place))
	}
	for _, k := range slices.Concat([]string{key}, s.Aliases) {
		if first, taken := r.byKey[k]; taken {
			panic(fmt.Errorf("durable: the key %q is registered twice: at %s and at %s", k, first.place, place))
		}
		if where, gone := r.gone[k]; gone {
			panic(fmt.Errorf("durable: the key %q is registered at %s and retired at %s", k, place, where))
		}
		r.byKey[k] = s
	}
	r.order = append(r.order, key)
}

// Retire says, at boot, that a key has been taken out of the code for good: from the next start of the engine on, no rows
// are written for it. Rows that are there end up dead, where an operator sees them. A key that is registered, or a call
// after the engine has started, panics.
func Retire(key string) { defaultRegistry.retire(key, caller()) }

// Retire is the function Retire, for this registry.
func (r *Registry) Retire(key string) { r.retire(key, caller()) }

func (r *Registry) retire(key, place string) {
	if err := checkKey(key); err != nil {
		panic(fmt.Errorf("durable: Retire(%q) at %s: %w", key, place, err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed {
		panic(fmt.Errorf("durable: Retire(%q) at %s: the engine has started; retire at boot, before Start", key, place))
	}
	if s, taken := r.byKey[key]; taken {
		panic(fmt.Errorf("durable: the key %q is registered at %s and retired at %s", key, s.place, place))
	}
	r.gone[key] = place
}

func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key) > events.MaxNameBytes:
		return fmt.Errorf("the key has %d bytes, at most %d are allowed", len(key), events.MaxNameBytes)
	case !utf8.ValidString(key), strings.ContainsRune(key, 0):
		return errors.New("the key is not valid UTF-8, or contains NUL")
	}
	return nil
}

func isNil(h Handler) bool {
	if h == nil {
		return true
	}
	switch v := reflect.ValueOf(h); v.Kind() {
	case reflect.Func, reflect.Pointer, reflect.Map, reflect.Chan, reflect.Slice, reflect.Interface:
		return v.IsNil()
	default:
		return false
	}
}

// caller is the place of the call to the exported function that calls it.
func caller() string {
	_, file, line, ok := runtime.Caller(2)
	if !ok {
		return "an unknown place"
	}
	return fmt.Sprintf("%s:%d", file, line)
}
