package sequences_test

import (
	"errors"
	"slices"
	"strings"
	"testing/synctest"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
)

// fault is what happens to one step of a process: nothing, or something at its n-th operation on the database.
type fault struct {
	kind string
	n    int
}

const (
	none        = "none"
	failOnce    = "the operation fails once"
	loseAnswer  = "the answer of the commit is lost once"
	crashBefore = "the process dies before the operation"
	crashAfter  = "the process dies after the operation"
	ownAway     = "the database is away"
	stall       = "the process stalls before it begins the transaction"
)

var errInjected = errors.New("injected")

// drawFault draws no fault three times out of four.
func (w *world) drawFault(more ...string) fault {
	kinds := slices.Concat(slices.Repeat([]string{none}, 18),
		[]string{failOnce, failOnce, loseAnswer, loseAnswer, crashBefore, crashAfter}, more)
	kind := oneOf(kinds...).Draw(w.t, "fault")
	if w.retry != nil && (kind == failOnce || kind == loseAnswer || kind == stall) {
		kind = none // one transaction at a time is tried again
	}
	f := fault{kind: kind}
	if kind == failOnce || kind == crashBefore || kind == crashAfter {
		f.n = oneOf(1, 2, 3, 4, 5, 6, 7, 8, 9).Draw(w.t, "at operation")
	}
	return f
}

// effect is what became of a step under a fault.
type effect struct {
	fired   bool
	at      int // the operation
	sql     string
	crashed bool
	commits int // that were made
	stalled chan error
}

// under does a step of p under a fault, until everything waits. A process that died of it is to be buried.
func (w *world) under(p *process, f fault, do func()) effect {
	var e effect
	ops := 0
	fire := func(kind string, op dbtest.Op) error {
		e.fired, e.at, e.sql = true, ops, op.SQL
		if kind == crashBefore || kind == crashAfter {
			e.crashed = true
			p.kill()
		}
		return errInjected
	}
	p.faults.Before(func(op dbtest.Op) error {
		if op.Kind == "begin" && f.kind == stall {
			e.fired, e.stalled = true, make(chan error)
			return <-e.stalled
		}
		if beside(op) {
			return nil
		}
		if f.kind == ownAway {
			e.fired = true
			return database.ErrUnreachable
		}
		if ops++; ops == f.n && (f.kind == failOnce || f.kind == crashBefore) {
			return fire(f.kind, op)
		}
		return nil
	})
	p.faults.After(func(op dbtest.Op) error {
		if beside(op) {
			return nil
		}
		if op.Kind == "commit" {
			e.commits++
		}
		if ops == f.n && f.kind == crashAfter || op.Kind == "commit" && f.kind == loseAnswer && !e.fired {
			return fire(f.kind, op)
		}
		return nil
	})
	do()
	synctest.Wait()
	if !e.crashed {
		p.faults.Before(nil)
		p.faults.After(nil)
	}
	return e
}

// beside is what another goroutine does beside a step, and nothing depends on.
func beside(op dbtest.Op) bool { return strings.Contains(op.SQL, "pg_notify") }
