package sequences_test

import (
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/openloam/loam/durable"
)

// The steps that run handlers.

// work takes the oldest due wake-up and delivers it.
func (w *world) work() {
	p := w.drawFree()
	u, _ := w.seen.Wakeups.Next(w.m.now)
	w.table = w.seen.Wakeups.All()
	f := w.drawFault(stall, stall)
	for _, part := range u.ByTenant() { // of which some may be done elsewhere, or lost with their process
		w.deliver(p, part.Tenant, part.IDs, u.Queue == durable.SuspectQueue, f)
		free := w.free()
		if len(free) == 0 {
			return
		}
		p, f = free[0], fault{kind: none}
	}
}

// poke delivers a row to which no wake-up need be: an extra one, an early one, one of the wrong tenant.
func (w *world) poke() {
	p, r := w.drawFree(), w.drawRow(durable.Pending)
	tenant := w.drawTenantOf(r)
	w.deliver(p, tenant, []string{r.id}, rapid.Bool().Draw(w.t, "alone"), w.drawFault(stall, stall, stall, stall))
}

// deliver calls Deliver as a worker does, until its handlers run.
func (w *world) deliver(p *process, tenant string, ids []string, alone bool, f fault) {
	var rows []*row
	for _, r := range w.m.rows { // by id
		for _, id := range ids {
			if r.id == id {
				rows = append(rows, r)
			}
		}
	}
	ctx := p.Ctx(tenant)
	c := w.m.look(p.proc, tenant, rows, alone)
	if r := w.retry; c.short() && r != nil && !r.at.After(w.m.mono.Add(gather)) { // that comes first
		w.pass(r.at.Sub(w.m.mono))
		c = w.m.look(p.proc, tenant, rows, alone)
	}
	short := c.short()
	e := w.under(p, f, func() {
		go func() {
			if alone {
				p.errs <- p.Deliveries.DeliverAlone(ctx, ids[0])
			} else {
				p.errs <- p.Deliveries.Deliver(ctx, ids...)
			}
		}()
		if short {
			synctest.Wait()
			w.tick(gather)
		}
	})
	w.m.grant(c)
	claim := func() effects {
		started, woken := w.m.claim(c)
		return effects{started: started, woken: woken}
	}
	switch {
	case !e.fired:
		w.check(claim())
		w.checkErrs(p, false)
		return
	case e.commits > 0: // and then nobody is there to start them, or not yet
		runs := p.runs
		woken := claim().woken
		p.runs = runs
		if e.crashed {
			w.replace(p)
		}
		w.check(effects{woken: woken})
	case e.crashed:
		w.replace(p)
		w.check(effects{})
	default:
		w.check(effects{})
	}
	if !e.crashed && e.at != 1 { // the first is the look
		p.asked = len(c.ready)
		w.retry = w.again(p, e, func() effects {
			p.asked = 0
			return claim()
		})
	}
	w.checkErrs(p, e.at == 1 || e.crashed)
}

// checkErrs looks at what Deliver has returned so far.
func (w *world) checkErrs(p *process, may bool) {
	for {
		select {
		case err := <-p.errs:
			if err != nil && !may {
				w.t.Fatalf("%s: Deliver: %v", p.name, err)
			}
		default:
			return
		}
	}
}

// finish lets a handler end.
func (w *world) finish() {
	h := w.drawHeld()
	w.end1(h, w.drawResult(h), w.drawFault(stall, loseAnswer, loseAnswer))
}

func (w *world) end1(h *held, res result, f fault) {
	p, r := h.p, h.run
	out := w.m.decide(r, res)
	e := w.under(p, f, func() { h.tell(func() (bool, error) { return res.do(h.ctx) }) })
	h.drop()
	var done effects
	if !e.fired || e.commits > 0 {
		done.woken = w.m.finish(r, out)
	}
	switch {
	case e.crashed:
		w.replace(p)
	case e.fired:
		w.retry = w.again(p, e, func() effects {
			defer r.ended()
			return effects{woken: w.m.finish(r, out)}
		})
	default:
		r.ended()
	}
	w.check(done)
	w.checkErrs(p, e.crashed)
}

// renew is one round of a process's renewals.
func (w *world) renew() {
	p := w.drawProc()
	f := w.drawFault()
	f.n = min(f.n, 3) // to the commit
	var err error
	e := w.under(p, f, func() { err = p.Deliveries.Renew(w.tb.ctx) })
	if !e.fired || e.commits > 0 {
		w.m.renew(p.proc, !e.fired)
	}
	if e.fired != (err != nil) {
		w.t.Fatalf("the renewal: %v", err)
	}
	if e.crashed {
		w.replace(p)
	}
	w.check(effects{})
}

// crash ends a process at a moment at which it does nothing on the database.
func (w *world) crash() {
	w.replace(w.drawProc())
	w.check(effects{})
}

// replace makes a fresh process where one has died.
func (w *world) replace(p *process) {
	code := w.drawRelease()
	w.die(p)
	w.start(p.slot, code)
}

// stop ends a process as a deployment does: its handlers are asked to end.
func (w *world) stop() {
	p := w.drawProc()
	if w.retry != nil {
		w.pass(w.retry.at.Sub(w.m.mono))
	}
	p.Deliveries.Stop()
	p.Deliveries.Cancel()
	for _, r := range p.runs {
		if r.known {
			r.cancel(durable.ErrShutdown)
		}
	}
	w.check(effects{})
	for len(p.held) > 0 {
		h := p.held[0]
		w.end1(h, w.drawResult(h), fault{kind: none})
	}
	w.must(p.Deliveries.Wait(w.tb.ctx))
	w.replace(p)
	w.check(effects{})
}
