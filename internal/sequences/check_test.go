package sequences_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

// String names a row without its ids, which are random.
func (r *row) String() string { return fmt.Sprintf("%s/%s/%s", r.event.tenant, r.event.label, r.key) }

// check compares everything that can be seen with the model, after a step. The first differences are the failure.
func (w *world) check(want effects) {
	now := w.snapshot()
	w.checkRows(now)
	w.checkQueue(now)
	w.checkLedger(now)
	w.checkWakeups(want)
	w.checkInvariants(now, want.started)
	w.checkStarted(want.started)
	for _, p := range w.procs {
		if p == nil {
			continue
		}
		for _, h := range p.held {
			if got := context.Cause(h.ctx); !errors.Is(got, h.run.cause) || got != nil && h.run.cause == nil {
				w.t.Fatalf("%s: the context of %v: %v, want %v", p.name, h.run.row, got, h.run.cause)
			}
		}
	}
	w.last = now
}

// checkRows: each row that the model has is there, as it says, in the order of capture (D-04), and no others.
func (w *world) checkRows(now snapshot) {
	var want []*row
	for _, tenant := range tenants {
		for _, r := range w.m.rows {
			if r.event.tenant == tenant {
				want = append(want, r)
			}
		}
	}
	for i, r := range want {
		if i == len(now.order) {
			w.t.Fatalf("lost: %v", r)
		}
		got := now.order[i]
		if got.TenantID != r.event.tenant || got.EventID != r.event.id || got.SubscriberKey != r.key {
			w.t.Fatalf("%v: in its place is %s/%s/%s", r, got.TenantID, w.label(got.EventID), got.SubscriberKey)
		}
		if r.id == "" {
			r.id = got.ID
			w.byID[r.id] = r
		}
		if diff := r.diff(got); diff != "" {
			w.t.Fatalf("%v: %s", r, diff)
		}
	}
	if extra := now.order[len(want):]; len(extra) > 0 {
		w.t.Fatalf("nobody published %s/%s/%s", extra[0].TenantID, w.label(extra[0].EventID), extra[0].SubscriberKey)
	}
}

// diff says how a row of the database differs from the model's.
func (r *row) diff(got durable.EventDelivery) string {
	var out differences
	out.compare("status", got.Status, r.status)
	out.compare("attempts", got.Attempts, r.attempts)
	out.compare("runs", got.Runs, r.runs)
	out.compare("unfinished", got.Unfinished, r.unfinished)
	out.compare("next_attempt_at", timeText(got.NextAttemptAt.Time), timeText(r.next))
	out.compare("created_at", timeText(got.CreatedAt.Time), timeText(r.created))
	out.compare("failures kept", len(got.History()), min(r.failures, 20))
	if r.status == durable.Delivered || got.Status == durable.Delivered {
		out.compare("delivered_at", timeText(got.DeliveredAt.Time), timeText(r.delivered))
	}
	out.compareError(got.LastError, r.lastError)
	return strings.Join(out, "; ")
}

type differences []string

func (d *differences) compare(what string, got, want any) {
	if got != want {
		*d = append(*d, fmt.Sprintf("%s is %v, want %v", what, got, want))
	}
}

func (d *differences) compareError(got, contains string) {
	if !strings.Contains(got, contains) || contains == "" && got != "" {
		*d = append(*d, fmt.Sprintf("last_error is %q, want %q", got, contains))
	}
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "null"
	}
	return t.UTC().Format(time.StampMicro)
}

// checkLedger: the claims and the done marks are those of the model.
func (w *world) checkLedger(now snapshot) {
	n := 0
	for k, done := range w.m.remembered {
		if has := slices.ContainsFunc(w.m.rows, func(r *row) bool { return r.ledgerKey() == k }); done && !has {
			n++
		}
	}
	for _, r := range w.m.rows {
		want := entry{}
		switch {
		case r.claim != nil:
			want = entry{ledger.InProgress, r.claim.started.UnixMilli(), r.claim.lease.UnixMilli()}
		case r.done:
			want.status = ledger.Done
		}
		got := now.ledger[r.ledgerKey()]
		if got.status == ledger.Done {
			got.started, got.lease = 0, 0
		}
		if got != want {
			w.t.Fatalf("%v: the ledger has %v, want %v", r, got, want)
		}
		if want.status != "" {
			n++
		}
	}
	if len(now.ledger) != n {
		w.t.Fatalf("the ledger has %d rows, want %d", len(now.ledger), n)
	}
}

// checkWakeups: the step has inserted the wake-ups that it had to, and no others.
func (w *world) checkWakeups(want effects) {
	all := w.seen.Wakeups.All()
	var wants, gots []string
	for _, k := range want.woken {
		wants = append(wants, wakeText(k.row, k.at, k.alone))
	}
	for _, u := range all[len(w.table):] {
		alone := u.Queue == durable.SuspectQueue
		if alone && len(u.IDs) != 1 || !alone && u.Queue != durable.DefaultQueue {
			w.t.Fatalf("a wake-up for %d rows in queue %s", len(u.IDs), u.Queue)
		}
		for _, part := range u.ByTenant() {
			for _, id := range part.IDs {
				gots = append(gots, wakeText(w.byID[id], u.At, alone))
				if r := w.byID[id]; r == nil || r.event.tenant != part.Tenant {
					w.t.Fatalf("a wake-up of tenant %s names %v", part.Tenant, r)
				}
			}
		}
	}
	w.table = all
	slices.Sort(wants)
	slices.Sort(gots)
	if want.loose {
		gots = slices.Compact(gots)
	}
	if !slices.Equal(wants, gots) {
		w.t.Fatalf("woken: %q, want %q", gots, wants)
	}
}

func wakeText(r *row, at time.Time, alone bool) string {
	when := "at once"
	if !at.IsZero() {
		when = "at " + at.UTC().Format(time.StampMicro)
	}
	if alone {
		when += ", alone"
	}
	return fmt.Sprintf("%v %s", r, when)
}

// checkInvariants are promises that are read off the database alone, without the model: what it had before the step, and
// has now.
func (w *world) checkInvariants(now snapshot, started []*run) {
	ms := w.m.now.UnixMilli()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.entered {
		for id, was := range w.last.rows {
			if was.TenantID != h.event.TenantID || was.EventID != h.event.ID || !answers(h, was.SubscriberKey) {
				continue
			}
			if is := now.rows[id]; is.Status != durable.Pending || was.Status != durable.Pending || was.NextAttemptAt.After(w.m.now) {
				w.t.Fatalf("a handler ran for %v, which was %s, next %v", w.byID[id], was.Status, was.NextAttemptAt)
			}
			held := w.last.ledger[ledger.Key{Tenant: was.TenantID, EventID: was.EventID, Handler: was.SubscriberKey}]
			mine := slices.ContainsFunc(started, func(r *run) bool { return r.row.id == id && r.claim.started.UnixMilli() == held.started })
			if held.status == ledger.Done || held.status == ledger.InProgress && !mine && held.lease+rig.Margin.Milliseconds() > ms {
				w.t.Fatalf("a handler ran for %v beside one with a valid lease, or after it", w.byID[id])
			}
		}
	}
	for k := range now.ledger {
		if now.ledger[k].status != ledger.InProgress {
			continue
		}
		if !slices.ContainsFunc(now.order, func(r durable.EventDelivery) bool {
			return r.TenantID == k.Tenant && r.EventID == k.EventID && r.SubscriberKey == k.Handler && r.Status == durable.Pending
		}) {
			w.t.Fatalf("a claim without a pending row: %s/%s/%s", k.Tenant, w.label(k.EventID), k.Handler)
		}
	}
}

// answers reports whether rows with the key are h's.
func answers(h *held, key string) bool {
	s, ok := h.p.code.handler(key)
	return ok && s.key == h.key
}
