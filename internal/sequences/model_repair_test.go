package sequences_test

import (
	"slices"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

const removedReason = "parked: the tenant was removed"

// renew is L-08: all claims that a process holds get a fresh lease; a run whose claim is gone is cancelled, and the process
// no longer believes in it. When the answer is lost, the process has learned nothing.
func (m *model) renew(p *proc, answered bool) {
	for _, r := range p.runs {
		held := r.row.claim == r.claim
		if r.known && held {
			r.claim.lease = millis(m.now).Add(rig.Lease)
		}
		switch {
		case !r.known || !answered:
		case held:
			r.expires = m.mono.Add(rig.Lease - rig.Margin)
		default:
			m.saw["L-08 renewal finds it lost"]++
			r.known = false
			r.cancel(durable.ErrClaimLost)
		}
	}
}

func (r *run) cancel(cause error) {
	if r.cause == nil {
		r.cause = cause
	}
}

// pass lets the processes' own clock go on: deadlines end contexts, a claim that was not renewed cancels its handler, and a
// stuck one loses its slot.
func (m *model) pass(p *proc) {
	for _, r := range p.runs {
		switch {
		case r.cause != nil:
		case !r.expires.After(m.mono) && r.expires.Before(r.deadline):
			m.saw["L-08 not renewed in time"]++
			r.cancel(durable.ErrClaimLost)
		case !r.deadline.After(m.mono):
			m.saw["D-14 deadline"]++
			r.cancel(durable.ErrTimeout)
		}
		if r.slot && !r.stuck.After(m.mono) {
			m.saw["D-14 stuck"]++
			r.slot = false
		}
	}
}

// sweep is S-01, S-02, T-08: each tenant's due rows that nobody runs are woken, and rows of tenants that are gone are parked.
func (m *model) sweep() (woken []wake) {
	for tenant := range m.tenants {
		woken = append(woken, m.sweepTenant(tenant)...)
	}
	for _, r := range m.rows {
		if !m.tenants[r.event.tenant] && r.status == durable.Pending {
			m.saw["T-08 parked by the sweep"]++
			r.park(removedReason)
		}
	}
	return woken
}

// sweepTenant is S-02. Only here, a row that was created by a clock that was ahead is found late.
func (m *model) sweepTenant(tenant string) (woken []wake) {
	for _, r := range m.rows {
		ahead := r.next.IsZero() && r.created.After(m.now)
		if r.event.tenant == tenant && m.waits(r, m.now) && !ahead && (r.done || m.free(r)) {
			woken = append(woken, wakeNow(r))
		}
	}
	return woken
}

// lost is L-08: rows whose claim may be taken over are woken, but those that the process runs itself. A claim whose row
// cannot be run now is deleted.
func (m *model) lost(p *proc) (woken []wake) {
	for _, r := range m.rows {
		mine := slices.ContainsFunc(p.runs, func(o *run) bool { return o.known && o.claim == r.claim })
		switch {
		case r.claim == nil, !m.free(r), mine:
		case m.waits(r, m.now):
			m.saw["L-08 lost claim woken"]++
			woken = append(woken, wakeNow(r))
		default:
			m.saw["L-08 lost claim deleted"]++
			r.claim = nil
		}
	}
	return woken
}

// parkRemoved is T-08.
func (m *model) parkRemoved(tenant string) {
	for _, r := range m.rows {
		if r.event.tenant == tenant && r.status == durable.Pending {
			r.park(removedReason)
		}
	}
}
