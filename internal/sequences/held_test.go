package sequences_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

// held is a handler that runs: it waits for what the sequence wants it to do.
type held struct {
	p     *process
	run   *run
	key   string // of the registration
	event events.Event
	ctx   context.Context                  //nolint:containedctx // the handler's
	cmds  chan func() (ends bool, e error) // closed when its process dies
	equal map[string]int                   // how often it has published the same
}

// register registers a handler that says that it has started, and then does what it is told.
func (w *world) register(p *process, s *subscriber) {
	handle := func(ctx context.Context, e events.Event) error {
		h := &held{p: p, key: s.key, event: e, ctx: ctx, cmds: make(chan func() (bool, error)), equal: map[string]int{}}
		w.mu.Lock()
		w.entered, w.all = append(w.entered, h), append(w.all, h)
		w.mu.Unlock()
		for cmd := range h.cmds {
			if ends, err := cmd(); ends {
				return err
			}
		}
		return errBroken
	}
	opts := []durable.Option{
		durable.WithMaxAttempts(s.max), durable.WithBackoff(s.waits...), durable.WithTimeout(s.timeout), durable.WithAliases(s.aliases...),
	}
	p.Registry.RegisterFunc(s.key, s.pattern, handle, opts...)
}

// broken is a handler's own error.
type broken string

func (b broken) Error() string { return string(b) }

const errBroken = broken("it broke")

// result is what a handler does in the end.
type result struct {
	kind string
	text string // what the row's last error then contains
	wait time.Duration
}

var results = []result{
	{kind: "success"},
	{kind: "failure", text: ".broken: wrapped: it broke"},
	{kind: "success"},
	{kind: "failure", text: ".broken: wrapped: it broke"},
	{kind: "panic", text: "boom"},
	{kind: "goexit", text: "Goexit"},
	{kind: "snooze", wait: 45 * time.Second},
	{kind: "park", text: ".broken: no use"},
	{kind: "retry after", text: ".broken: wrapped: later", wait: 90 * time.Second},
}

// drawResult draws a result; a handler whose context has ended may also say so.
func (w *world) drawResult(h *held) result {
	all := results
	if h.run.cause != nil {
		ended := result{kind: "context", text: h.run.cause.Error()}
		all = []result{ended, results[0], ended, results[1], ended, results[4]}
	}
	return drawOne(w, "result", all, func(r result) string { return r.kind })
}

// do does in the handler what its result says.
func (res result) do(ctx context.Context) (bool, error) {
	switch res.kind {
	case "success":
		return true, nil
	case "panic":
		panic("boom")
	case "goexit":
		runtime.Goexit()
	case "snooze":
		return true, durable.Snooze(res.wait)
	case "park":
		return true, durable.Park(broken("no use"))
	case "retry after":
		return true, fmt.Errorf("wrapped: %w", durable.RetryAfter(res.wait, broken("later")))
	case "context":
		return true, context.Cause(ctx)
	}
	return true, fmt.Errorf("wrapped: %w", errBroken)
}

// tell lets the handler do something, until it waits again or has an outcome.
func (h *held) tell(cmd func() (bool, error)) {
	h.cmds <- cmd
	synctest.Wait()
}

// drop takes h out of its process's handlers.
func (h *held) drop() {
	h.p.held = slices.DeleteFunc(h.p.held, func(o *held) bool { return o == h })
}

// checkStarted compares the handlers that have started with those that had to, and no others.
func (w *world) checkStarted(started []*run) {
	w.mu.Lock()
	entered := w.entered
	w.entered = nil
	w.mu.Unlock()
	for _, r := range started {
		i := slices.IndexFunc(entered, func(h *held) bool {
			return h.p.proc == r.p && h.key == r.sub.key && h.event.ID == r.row.event.id && h.event.TenantID == r.row.event.tenant
		})
		if i < 0 {
			w.t.Fatalf("%s: the handler of %v did not start", r.p.name, r.row)
		}
		h := entered[i]
		entered = slices.Delete(entered, i, i+1)
		h.run = r
		h.p.held = append(h.p.held, h)
		e := r.row.event
		if h.event.Name != e.name || h.event.Payload["n"] != int64(e.payload) || h.event.Headers.Depth != e.depth ||
			tenant.From(h.ctx) != e.tenant || tenant.Actor(h.ctx) != "" {
			w.t.Fatalf("the handler of %v got %+v, in tenant %q", r.row, h.event, tenant.From(h.ctx))
		}
	}
	for _, h := range entered {
		w.t.Fatalf("%s: the handler %s of %s's event %s started, and must not", h.p.name, h.key, h.event.TenantID, w.label(h.event.ID))
	}
}

// label names an event by its id.
func (w *world) label(id string) string {
	for _, r := range w.m.rows {
		if r.event.id == id {
			return r.event.label
		}
	}
	return "(unknown)"
}
