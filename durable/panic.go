package durable

import (
	"fmt"
	"runtime/debug"
)

// PanicError is what a handler's panic, or its runtime.Goexit, becomes.
type PanicError struct {
	// Value is what the handler panicked with.
	Value any
	// Stack is the handler's stack at that moment.
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// panicOf makes a PanicError of what recover returned: nil is a Goexit; one that was made on the way is kept.
func panicOf(v any) *PanicError {
	if p, made := v.(*PanicError); made {
		return p
	}
	if v == nil {
		v = "the handler ended its goroutine (runtime.Goexit)"
	}
	return &PanicError{Value: v, Stack: debug.Stack()}
}

// contained runs f in a goroutine of its own and sends what became of it: its result, or a *PanicError if it panicked or
// ended its goroutine. It is the one place that does so.
func contained[T any](f func() T, failed func(*PanicError) T) <-chan T {
	out := make(chan T, 1)
	go func() {
		var result T
		returned := false
		defer func() {
			if !returned {
				result = failed(panicOf(recover()))
			}
			out <- result
		}()
		result = f()
		returned = true
	}()
	return out
}
