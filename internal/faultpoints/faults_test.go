package faultpoints_test

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// fault is one thing that goes wrong, once.
type fault interface {
	// name is that of its column.
	name() string
	// when says whether it comes before the operation, or after it.
	when() moment
	// happen has it happen; inside says that a transaction is open. An error is the result of the operation.
	happen(inside bool) error
}

type moment bool

const (
	before moment = false
	after  moment = true
)

var errFault = errors.New("a fault of the test")

// fails: the operation is not done. A commit is rolled back.
type fails struct{}

func (fails) name() string      { return "error" }
func (fails) when() moment      { return before }
func (fails) happen(bool) error { return errFault }

// loses: the operation is done, and its answer is an error.
type loses struct{}

func (loses) name() string      { return "lost answer" }
func (loses) when() moment      { return after }
func (loses) happen(bool) error { return errFault }

// kills: the process is killed, before or after the operation.
type kills struct{ at moment }

func (kills) name() string   { return "kill" }
func (k kills) when() moment { return k.at }
func (kills) happen(bool) error {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until it arrives
}

// stalls: the process stands still for longer than its lease, while another one works: until it has done all there is, or
// until its handlers are in the middle of what they have taken over.
type stalls struct {
	w      *world
	at     moment
	midway bool
}

func (s stalls) name() string {
	if s.midway {
		return "stall midway"
	}
	return "stall"
}
func (s stalls) when() moment { return s.at }
func (s stalls) happen(inside bool) error {
	if inside {
		s.w.pass()
		return nil
	}
	s.w.hook.stopped.Lock()
	defer s.w.hook.stopped.Unlock()
	s.w.takeOver(s.midway)
	return nil
}

// around calls a handler, with the points before it and after it.
func (h *hook) around(key string, next func() error) error {
	if _, hit := h.visit(kindStart, key); hit {
		if err := h.fault.happen(false); err != nil {
			if h.fault.when() == after {
				_ = next()
				panic(err) // it was called, and there is no result
			}
			return err
		}
	}
	err := next()
	if _, hit := h.visit(kindReturn, key); hit {
		if fault := h.fault.happen(false); fault != nil {
			if h.fault.when() == after {
				runtime.Goexit()
			}
			return fault
		}
	}
	return err
}
