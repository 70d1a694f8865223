package sequences_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/openloam/loam/durable"
)

// step is something that can happen.
type step struct {
	name   string
	weight int // how often
	can    func() bool
	do     func()
}

// steps are all that there are. Together they weigh at most 256, see evenly.
func (w *world) steps() []step {
	always := func() bool { return true }
	rows := func() bool { return len(w.m.rows) > 0 && len(w.free()) > 0 }
	runs := func() bool { return len(w.held()) > 0 }
	due := func() bool {
		return len(w.free()) > 0 && slices.ContainsFunc(w.table, func(u durable.Wakeup) bool { return !u.At.After(w.m.now) })
	}
	return []step{
		{"publish", 7, always, w.publish},
		{"publish in a transaction", 4, always, w.publishTx},
		{"publish in a run", 6, runs, w.publishInRun},
		{"work", 16, due, w.work},
		{"poke", 4, rows, w.poke},
		{"finish", 16, runs, w.finish},
		{"advance", 7, always, w.advance},
		{"set the clock", 2, always, w.setClock},
		{"renew", 6, runs, w.renew},
		{"refresh", 3, always, w.refresh},
		{"sweep", 2, rows, w.sweep},
		{"look for lost claims", 3, rows, w.lostClaims},
		{"meddle", 1, runs, w.meddle},
		{"lose the wake-ups", 1, rows, w.loseWakeups},
		{"crash", 3, rows, w.crash},
		{"stop", 1, rows, w.stop},
		{"redeliver", 4, rows, w.redeliver},
		{"remove a tenant", 1, func() bool { return len(w.m.tenants) > 0 }, w.removeTenant},
		{"add a tenant again", 8, func() bool { return len(w.m.tenants) < len(tenants) }, w.addTenantAgain},
		{"pause", 1, rows, w.pause},
		{"resume", 4, func() bool { return len(w.m.paused) > 0 }, w.resume},
		{"go on", 3, func() bool { return w.retry != nil && w.retry.stalled != nil }, func() { w.pass(0) }},
		{"prune", 2, func() bool { return len(w.rows(durable.Delivered)) > 0 }, w.prune},
		{"relay", 8, always, w.relay},
		{"requeue", 2, func() bool { return len(w.m.queue) > 0 }, w.requeue},
		{"prune the queue", 1, func() bool { return len(w.prunable()) > 0 }, w.pruneQueue},
		{"send", 9, func() bool { return len(w.m.takeable()) > 0 }, w.send},
		{"receive", 12, func() bool { return slices.ContainsFunc(w.m.stream, func(m *message) bool { return !m.ended }) }, w.receive},
		{"another service publishes", 3, always, w.foreign},
	}
}

// step does one.
func (w *world) step(*rapid.T) {
	var names []string
	byName := map[string]func(){}
	for _, s := range w.steps() {
		if byName[s.name] = s.do; s.can() {
			names = append(names, slices.Repeat([]string{s.name}, s.weight)...)
		}
	}
	byName[oneOf(names...).Draw(w.t, "step")]()
}
