package sequences_test

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

// The steps of time, of the sweep and of operators.

// advance lets time go on.
func (w *world) advance() {
	w.pass(w.drawFor("for", 100*time.Millisecond, time.Second, 9*time.Second, 31*time.Second, 70*time.Second, 71*time.Second,
		6*time.Minute, 3*time.Hour))
	w.check(effects{})
}

// setClock moves the engine's clock, which all processes have in common, while their own clocks do not: a machine that
// slept, or an administrator.
func (w *world) setClock() {
	d := w.drawFor("by", 5*time.Second, 65*time.Second, 75*time.Second, 2*time.Hour, -3*time.Second, -80*time.Second)
	w.clock.Add(d)
	w.m.now = w.clock.Now()
	w.check(effects{})
}

// refresh says again which subscribers a process has.
func (w *world) refresh() {
	p := w.drawProc()
	e := w.under(p, w.drawFault(), func() { _ = p.Deliveries.Announce(w.tb.ctx, false) })
	if !e.fired || e.commits > 0 {
		w.m.announce(p.code, false)
	}
	if e.crashed {
		w.replace(p)
	}
	w.check(effects{})
}

func (w *world) sweep() {
	p := w.drawProc()
	w.repair(p, func() error {
		_, err := p.Sweeper.All(w.tb.ctx, "")
		return err
	}, func() []wake { return w.m.sweep() })
}

func (w *world) lostClaims() {
	p := w.drawProc()
	w.repair(p, func() error {
		_, err := p.Sweeper.LostClaims(w.tb.ctx)
		return err
	}, func() []wake { return w.m.lost(p.proc) })
}

// removeTenant removes a tenant from the directory; its pending rows are parked at once, or by the next sweep.
func (w *world) removeTenant() {
	p := w.drawProc()
	tenant := oneOf(slices.Sorted(maps.Keys(w.m.tenants))...).Draw(w.t, "tenant")
	rig.Exec(w.tb, w.seen.DB, `DELETE FROM loam_tenants WHERE id = $1`, tenant)
	delete(w.m.tenants, tenant)
	w.check(effects{})
	if rapid.Bool().Draw(w.t, "park at once") {
		w.repair(p, func() error {
			_, err := p.Deliveries.ParkRemoved(p.Ctx(tenant))
			return err
		}, func() []wake {
			w.m.parkRemoved(tenant)
			return nil
		})
	}
}

// repair compares what works in several transactions. When it fails in the middle, some rows are as
// before and some as after, and what was to be woken may have been woken twice, in halves, or not at all.
func (w *world) repair(p *process, do func() error, model func() []wake) {
	var err error
	e := w.under(p, w.drawFault(), func() { err = do() })
	before := make([]row, len(w.m.rows))
	for i, r := range w.m.rows {
		before[i] = *r
	}
	woken := model()
	if !e.fired {
		w.must(err)
		w.check(effects{woken: woken})
		return
	}
	now := w.snapshot()
	for i, r := range w.m.rows {
		if r.diff(now.rows[r.id]) != "" || !w.sameClaim(now, r) {
			*r = before[i]
		}
	}
	if e.crashed {
		w.replace(p)
	}
	w.check(effects{woken: w.inserted(woken), loose: true})
}

// inserted are those of the wake-ups that are there.
func (w *world) inserted(woken []wake) (out []wake) {
	there := map[string]bool{}
	for _, u := range w.seen.Wakeups.All()[len(w.table):] {
		for _, id := range u.IDs {
			there[id] = true
		}
	}
	for _, k := range woken {
		if there[k.row.id] {
			out = append(out, k)
		}
	}
	return out
}

// redeliver is an operator's, of any row and in any tenant's name.
func (w *world) redeliver() {
	p, r := w.drawProc(), w.drawRow(durable.Dead)
	tenant := w.drawTenantOf(r)
	var err error
	ctx := p.Ctx(tenant)
	e := w.under(p, w.drawFault(), func() { err = p.Deliveries.Redeliver(ctx, r.id) })
	var done effects
	if !e.fired || e.commits > 0 {
		var want error
		done.woken, want = w.m.redeliver(tenant, r)
		if !e.fired && (!errors.Is(err, want) || want == nil && err != nil) {
			w.t.Fatalf("redelivering %v: %v, want %v", r, err, want)
		}
	}
	if e.fired && err == nil && !e.crashed {
		w.t.Fatalf("redelivering %v failed, and does not say so", r)
	}
	if e.crashed {
		w.replace(p)
	}
	w.check(done)
}

func (w *world) addTenant(tenant string) {
	rig.Exec(w.tb, w.seen.DB, `INSERT INTO loam_tenants (id, created_at) VALUES ($1, $2)`, tenant, database.At(w.m.now))
	w.m.tenants[tenant] = true
}

// addTenantAgain adds a tenant that was removed.
func (w *world) addTenantAgain() {
	gone := slices.DeleteFunc(slices.Clone(tenants), func(t string) bool { return w.m.tenants[t] })
	w.addTenant(oneOf(gone...).Draw(w.t, "tenant"))
	w.check(effects{})
}

// pause pauses a subscriber in a tenant: its rows wait.
func (w *world) pause() {
	k := pauseKey{w.drawTenant(), oneOf("mailer", "stock", "audit", "post").Draw(w.t, "key")}
	if !w.m.paused[k] {
		rig.Exec(w.tb, w.seen.DB, `INSERT INTO loam_pauses (tenant_id, subscriber_key, created_at) VALUES ($1, $2, $3)`, k.tenant, k.key, database.At(w.m.now))
		w.m.paused[k] = true
	}
	w.check(effects{})
}

// resume resumes a subscriber in a tenant, and sweeps the tenant.
func (w *world) resume() {
	p := w.drawProc()
	all := slices.SortedFunc(maps.Keys(w.m.paused), func(a, b pauseKey) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.key, b.key))
	})
	k := oneOf(all...).Draw(w.t, "what")
	rig.Exec(w.tb, w.seen.DB, `DELETE FROM loam_pauses WHERE tenant_id = $1 AND subscriber_key = $2`, k.tenant, k.key)
	delete(w.m.paused, k)
	_, err := p.Sweeper.RedeliverStuck(p.Ctx(k.tenant), w.m.now, 500)
	w.must(err)
	w.check(effects{woken: w.m.sweepTenant(k.tenant)})
}

// prune deletes a delivered row, as retention does: the ledger remembers it for longer (E-10, S-06).
func (w *world) prune() {
	r := drawOne(w, "row", w.rows(durable.Delivered), (*row).String)
	rig.Exec(w.tb, w.seen.DB, `DELETE FROM event_deliveries WHERE id = $1`, r.id)
	w.m.prune(r)
	w.journal = slices.DeleteFunc(w.journal, func(j journaled) bool {
		return j == journaled{r.event.tenant, r.event.id, r.key}
	})
	w.check(effects{})
}

// meddle is a hand at the database's shell, which counts one failure more on a row that is being run: a failure adds to what
// the row has, not to what it had at the claim.
func (w *world) meddle() {
	r := w.drawHeld().run.row
	rig.Exec(w.tb, w.seen.DB, `UPDATE event_deliveries SET attempts = attempts + 1 WHERE id = $1 AND status = 'pending'`, r.id)
	if r.status == durable.Pending {
		r.attempts++
	}
	w.check(effects{})
}

// sameClaim reports whether the ledger has for r what the model has.
func (w *world) sameClaim(s snapshot, r *row) bool {
	got := s.ledger[r.ledgerKey()]
	return (r.claim != nil) == (got.status == ledger.InProgress) && r.done == (got.status == ledger.Done)
}

// loseWakeups deletes all jobs: the sweep is the guarantee (S-03).
func (w *world) loseWakeups() {
	w.seen.Wakeups.Clear()
	w.table = nil
	w.check(effects{})
}
