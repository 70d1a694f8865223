package faultpoints_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/openloam/loam/internal/dbtest"
)

// Kinds of points beside those of dbtest.Op.
const (
	kindStart  = "start"  // a handler is about to be called
	kindReturn = "return" // it has returned
	kindSend   = "send"   // a sink is about to be called
	kindSent   = "sent"   // it has returned

	kindFetch    = "fetch"    // messages are handed out, and have not arrived
	kindAnswer   = "answer"   // one is about to be acked, or refused
	kindAnswered = "answered" // the broker knows it
)

// noPart is what goes on beside the script, as often as it happens to; nothing depends on it.
const noPart = "none"

// point is a place where a fault can happen.
type point struct {
	part, kind, text string
	n                int // of equal ones in a run, from 1
	// inside a transaction, before the operation and after it
	inside, insideAfter bool
}

func (p point) String() string { return fmt.Sprintf("%s/%s %s/%d", p.part, p.kind, p.text, p.n) }

// equal is what a point has in common with others.
type equal struct{ part, kind, text string }

// hook is called at each point of the process that faults befall. It counts, and has the fault happen at the one that it is
// armed for.
type hook struct {
	mu     sync.Mutex
	on     bool
	counts map[equal]int
	list   []point
	claims func() bool    // for a list: whether there are any
	held   map[point]bool // where there are
	target point
	fault  fault
	fired  bool
	within *dbtest.Op // the target is being done: the fault comes after it

	stopped sync.RWMutex // locked while the process stands still
}

func newHook() *hook { return &hook{counts: map[equal]int{}, held: map[point]bool{}} }

// arm makes f happen at p.
func (h *hook) arm(p point, f fault) { h.target, h.fault = p, f }

func (h *hook) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = true
}

// hasFired reports whether the fault has happened.
func (h *hook) hasFired() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fired
}

// visit counts a point, and reports whether it is the one.
func (h *hook) visit(kind, text string) (p point, hit bool) {
	p = where(kind, text)
	if !p.inside {
		h.stopped.RLock() // only to wait
		defer h.stopped.RUnlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on || p.part == noPart {
		return p, false
	}
	e := equal{p.part, p.kind, p.text}
	h.counts[e]++
	p.n = h.counts[e]
	if h.claims != nil {
		h.list = append(h.list, p)
		h.held[p] = (!p.inside || !p.insideAfter) && (p.part == "claim" || h.claims())
	}
	if h.fault != nil && !h.fired && p == h.target {
		h.fired = true
		return p, true
	}
	return p, false
}

// before is the hook of dbtest.Faults.
func (h *hook) before(op dbtest.Op) error {
	p, hit := h.visit(op.Kind, firstWords(op.SQL))
	if !hit {
		return nil
	}
	if h.fault.when() == after {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.within = &op
		return nil
	}
	return h.fault.happen(p.inside)
}

// after is the hook of dbtest.Faults. Equal operations of two goroutines at once are as good as each other.
func (h *hook) after(op dbtest.Op) error {
	h.mu.Lock()
	hit := h.within != nil && h.within.Kind == op.Kind && h.within.SQL == op.SQL
	if hit {
		h.within = nil
	}
	p := h.target
	h.mu.Unlock()
	if hit {
		return h.fault.happen(p.insideAfter)
	}
	h.stand(op)
	return nil
}

// stand lets a goroutine that has just left its transaction stand still with its process.
func (h *hook) stand(op dbtest.Op) {
	if op.Kind == "commit" {
		h.stopped.RLock()
		defer h.stopped.RUnlock()
	}
}

// where says by the stack which part an operation is of, and whether a transaction is open around it. Only the ways into
// the packages are named here, and nothing of what they do inside.
func where(kind, text string) point {
	p := point{kind: kind, text: text}
	if kind == kindStart || kind == kindReturn {
		p.part = "run"
		return p
	}
	pcs := make([]uintptr, 128)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	tx := false
	for {
		f, more := frames.Next()
		name := strings.TrimPrefix(f.Function, "github.com/openloam/loam/")
		switch {
		case strings.HasPrefix(name, "database.(*DB).inTx"):
			tx = true
		case strings.HasPrefix(name, "durable.(*Deliveries).Capture"), strings.HasPrefix(name, "internal/faultpoints_test.(*world).publish"):
			p.part = "capture"
		case strings.HasPrefix(name, "outbox.(*Queue).Enqueue"), strings.HasPrefix(name, "internal/faultpoints_test.(*world).enqueue"),
			strings.HasPrefix(name, "internal/faultpoints_test.enqueueNext"):
			p.part = "enqueue"
		case strings.HasPrefix(name, "outbox.(*Queue).sendNotices"):
			p.part = noPart
		case strings.HasPrefix(name, "outbox.(*Queue).Round"):
			p.part = "relay"
		case strings.HasPrefix(name, "internal/faultpoints_test.(*world).send"):
			p.part = "send"
		case strings.HasPrefix(name, "outbox.(*Queue).Receive"):
			p.part = "receive"
		case strings.HasPrefix(name, "outbox.(*Queue).DeadLetter"):
			p.part = "letter"
		case strings.HasPrefix(name, "outbox.(*Queue).Requeue"):
			p.part = "requeue"
		case strings.HasPrefix(name, "internal/faultpoints_test.consumer.pass"):
			p.part = "bus"
		case strings.HasPrefix(name, "durable.(*Deliveries).Deliver"):
			p.part = "claim"
		case strings.HasPrefix(name, "durable.(*Deliveries).Renew"):
			p.part = "renewal"
		case strings.HasPrefix(name, "durable.(*Deliveries).Redeliver"):
			p.part = "redeliver"
		case strings.HasPrefix(name, "sweep.(*Sweeper)."):
			p.part = "sweep"
		case strings.HasPrefix(name, "durable.") && p.part == "":
			p.part = "outcome" // what the goroutine of a run does, unless a frame below says otherwise
		}
		if !more {
			break
		}
	}
	p.inside = tx && kind != "begin"
	p.insideAfter = tx && kind != "commit"
	return p
}

// firstWords name a statement.
func firstWords(sql string) string {
	words := strings.Fields(sql)
	out := ""
	for _, w := range words {
		if len(out)+len(w) > 60 {
			break
		}
		out += " " + w
	}
	return strings.TrimSpace(out)
}
