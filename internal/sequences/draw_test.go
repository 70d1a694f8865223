package sequences_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/openloam/loam/durable"
)

// evenly draws an index below n, at most 256, each as likely as the others: rapid's own draws prefer the first.
func evenly(t *rapid.T, n int) int {
	v := 0
	for range 12 {
		v <<= 1
		if rapid.Bool().Draw(t, "bit") {
			v++
		}
	}
	return v % n
}

// oneOf is rapid.SampledFrom, evenly.
func oneOf[T any](all ...T) *rapid.Generator[T] {
	return rapid.Custom(func(t *rapid.T) T { return all[evenly(t, len(all))] })
}

// drawOne draws one by its name, so that a failing sequence can be read.
func drawOne[T any](w *world, what string, all []T, name func(T) string) T {
	var names []string
	for _, v := range all {
		names = append(names, name(v))
	}
	return all[slices.Index(names, oneOf(names...).Draw(w.t, what))]
}

func (w *world) drawProc() *process {
	return drawOne(w, "process", w.moving(), func(p *process) string { return p.name })
}

// moving are the processes that do not stall: at least one.
func (w *world) moving() []*process {
	return slices.DeleteFunc(slices.Clone(w.procs), func(p *process) bool {
		return w.retry != nil && w.retry.p == p && w.retry.stalled != nil
	})
}

// drawFree draws a process that has a slot free; there is one.
func (w *world) drawFree() *process {
	return drawOne(w, "process", w.free(), func(p *process) string { return p.name })
}

func (w *world) free() []*process {
	return slices.DeleteFunc(w.moving(), func(p *process) bool { return p.freeSlots() == 0 })
}

func (w *world) drawRelease() *release {
	return drawOne(w, "release", releases, func(r *release) string { return r.name })
}

func (w *world) drawFor(what string, all ...time.Duration) time.Duration {
	return drawOne(w, what, all, time.Duration.String)
}

func (w *world) drawTenant() string { return oneOf(tenants...).Draw(w.t, "tenant") }

// drawRow draws a row, rather one in this state than another.
func (w *world) drawRow(rather durable.Status) *row {
	some := w.rows(rather)
	if len(some) == 0 || oneOf(false, false, false, true).Draw(w.t, "any row") {
		some = w.m.rows
	}
	return drawOne(w, "row", some, (*row).String)
}

func (w *world) rows(s durable.Status) []*row {
	return slices.DeleteFunc(slices.Clone(w.m.rows), func(r *row) bool { return r.status != s })
}

// drawTenantOf draws the tenant in whose name something is done: seldom another than the row's.
func (w *world) drawTenantOf(r *row) string {
	if evenly(w.t, 10) == 9 {
		return w.drawTenant()
	}
	return r.event.tenant
}

func (w *world) held() (all []*held) {
	for _, p := range w.moving() {
		all = append(all, p.held...)
	}
	return all
}

func (w *world) drawHeld() *held {
	return drawOne(w, "run", w.held(), func(h *held) string { return fmt.Sprintf("%s: %v, start %d", h.p.name, h.run.row, h.run.number) })
}
