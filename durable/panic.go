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

// contained runs f in a goroutine of its own and sends what became of it: its result, or a *PanicError if it panicked or
// ended its goroutine. It is the one place that does so.
func contained[T any](f func() T, failed func(*PanicError) T) <-chan T {
	out := make(chan T, 1)
	go func() {
		var result T
		returned := false
		defer func() {
			if !returned {
				v := recover()
				if v == nil {
					v = "the handler ended its goroutine (runtime.Goexit)"
				}
				result = failed(&PanicError{Value: v, Stack: debug.Stack()})
			}
			out <- result
		}()
		result = f()
		returned = true
	}()
	return out
}
