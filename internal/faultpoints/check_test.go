package faultpoints_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
)

type claimKey = ledger.Key

// class is what kind of promise is broken.
type class string

const (
	lost    class = "lost"    // an event, a delivery, a wake-up, or half of a transaction
	overlap class = "overlap" // two runs inside valid leases, or one too many
	stale   class = "stale"   // written by who had no right to, or twice
	other   class = "other"
)

type finding struct {
	class class
	text  string
}

func keyOf(row *durable.EventDelivery) claimKey {
	return claimKey{Tenant: row.TenantID, EventID: row.EventID, Handler: row.SubscriberKey}
}

func describe(row *durable.EventDelivery) string {
	return fmt.Sprintf("%s (%s): %s, %d attempts, %d runs, %d unfinished, %d in its history, last error %q, next %v", row.SubscriberKey,
		row.EventName, row.Status, row.Attempts, row.Runs, row.Unfinished, len(row.History()), row.LastError, row.NextAttemptAt)
}

// tally is what the diary says about one subscriber's event.
type tally struct {
	starts, oks int
	failed      map[int]bool // runs that failed
}

type report struct {
	w        *world
	exact    bool // no run was interrupted: everything happened once, and everything that happened is written
	entries  []entry
	tallies  map[[2]string]*tally // by event and key
	findings []finding
}

func (r *report) add(c class, format string, args ...any) {
	r.findings = append(r.findings, finding{c, fmt.Sprintf(format, args...)})
}

// check compares what is settled with the contract.
func (w *world) check(exact bool) []finding {
	r := &report{w: w, exact: exact, entries: w.diary.entries(w.t), tallies: map[[2]string]*tally{}}
	for _, e := range r.entries {
		if e.What != "start" && e.What != "end" {
			continue
		}
		t := r.tally(e.Event, e.Key)
		switch {
		case e.What == "start":
			t.starts++
		case e.Result == "ok":
			t.oks++
		case e.Result != "snoozed" && e.Result != "cut":
			t.failed[e.Run] = true
		}
	}
	r.published()
	for _, row := range w.list() {
		r.row(&row)
	}
	if w.script.bus {
		r.inbox()
	} else {
		r.queue()
	}
	r.overlaps()
	r.ledger()
	r.unchanged()
	if w.b.DB.Dialect() == database.SQLite {
		var answer string
		if rig.Scan(w.t, w.b.DB, `PRAGMA integrity_check`, nil, &answer); answer != "ok" {
			r.add(other, "integrity_check: %s", answer)
		}
	}
	return r.findings
}

func (r *report) tally(event, key string) *tally {
	k := [2]string{event, key}
	if r.tallies[k] == nil {
		r.tallies[k] = &tally{failed: map[int]bool{}}
	}
	return r.tallies[k]
}

// published: an event whose publisher was answered has a row per subscriber; any other has all of them or none. The
// caller's own data is there if and only if they are.
func (r *report) published() {
	have := map[string][]string{}
	followers := 0
	for _, row := range r.w.list() {
		have[row.EventID] = append(have[row.EventID], row.SubscriberKey)
		if row.SubscriberKey == keyFollow {
			followers++
		}
	}
	answered := map[string]bool{}
	for _, e := range r.entries {
		if e.What == "published" {
			answered[e.Event] = true
		}
	}
	for _, e := range r.entries {
		if e.What != "publish" {
			continue
		}
		var want []string
		for _, s := range subscribers {
			if s.pattern == e.Key {
				want = append(want, s.key)
			}
		}
		got := have[e.Event]
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) && (len(got) > 0 || answered[e.Event]) {
			r.add(lost, "%s, answered %v, has rows for %q, want %q", e.Key, answered[e.Event], got, want)
		}
	}
	orders := r.w.orders()
	if slices.Contains(orders, idSent) != (len(have[idSent]) > 0) || slices.Contains(orders, idUndone) || len(have[idUndone]) > 0 {
		r.add(lost, "the caller's data %q, its deliveries %q and, rolled back, %q", orders, have[idSent], have[idUndone])
	}
	if relayed := r.tally(idPaid, keyRelay).oks > 0; followers > 1 || relayed && followers == 0 {
		r.add(lost, "a handler that succeeded (%v) has published %d events, want one", relayed, followers)
	}
}

// row checks one delivery in the end.
func (r *report) row(row *durable.EventDelivery) {
	t := r.tally(row.EventID, row.SubscriberKey)
	i := slices.IndexFunc(subscribers, func(s subscriber) bool { return s.key == row.SubscriberKey })
	want := subscribers[i].end
	removed := slices.ContainsFunc(r.entries, func(e entry) bool { return e.What == "removed" && e.Key == row.TenantID })
	if removed && t.oks == 0 {
		want = durable.Dead
	}
	succeeds := 1
	if row.Status != durable.Delivered || row.SubscriberKey == keyDone { // done before the script began
		succeeds = 0
	}
	history, earlier := row.History(), 0
	switch {
	case row.Status != want:
		r.add(lost, "not %s: %s", want, describe(row))
	case t.oks < succeeds:
		r.add(lost, "its handler never succeeded: %s", describe(row))
	case t.oks > succeeds && (r.exact || t.oks > succeeds+1 || !r.w.held[keyOf(row)]):
		r.add(overlap, "its handler succeeded %d times: %s", t.oks, describe(row))
	}
	for _, h := range history {
		if h.Run <= earlier || !t.failed[h.Run] {
			r.add(stale, "run %d in the history did not fail, or is there twice: %s", h.Run, describe(row))
		}
		earlier = h.Run
	}
	if row.Attempts != len(history) && row.SubscriberKey != keyDoomed || row.Attempts > len(history) {
		r.add(stale, "attempts and history differ: %s", describe(row))
	}
	if row.Unfinished != 0 {
		r.add(stale, "unfinished: %s", describe(row))
	}
	starts := t.starts
	if row.SubscriberKey == "crashed" {
		starts++ // before the script began
	}
	switch {
	case row.Runs < starts:
		r.add(stale, "it was started %d times: %s", starts, describe(row))
	case r.exact && (row.Runs != starts || len(history) != len(t.failed)):
		r.add(stale, "it was started %d times and failed %d times: %s", starts, len(t.failed), describe(row))
	}
	if strings.HasPrefix(row.LastError, "no registered subscriber") != (row.SubscriberKey == keyOld) {
		r.add(other, "the last error: %s", describe(row))
	}
}

// overlaps goes through the runs in their order: while one goes on and its lease, with the margin, is not over, nobody else
// begins by a lease that is not.
func (r *report) overlaps() {
	type open struct {
		proc  string
		until int64
	}
	running := map[[2]string]*open{}
	job := int64(0) // when a's last job began: its claim is no older
	for _, e := range r.entries {
		k := [2]string{e.Event, e.Key}
		switch e.What {
		case "job":
			job = e.Clock
		case "killed":
			clear(running)
		case "renewed":
			if running[k] != nil {
				running[k].until = e.Clock + int64(rig.Lease+rig.Margin)
			}
		case "start":
			claimed := e.Clock
			if e.Proc == "a" {
				claimed = job
			}
			until := claimed + int64(rig.Lease+rig.Margin)
			// One that stood still between its claim and its run does not know that its lease is over.
			if o := running[k]; o != nil && (o.proc == e.Proc || e.Clock < o.until-1e6 && e.Clock < until-1e6) {
				r.add(overlap, "%s runs in %s and in %s", e.Key, o.proc, e.Proc)
			}
			running[k] = &open{e.Proc, until}
		case "end":
			if o := running[k]; o != nil && o.proc == e.Proc {
				delete(running, k)
			}
		}
	}
}

// ledger: no claim is left; done is what was delivered, and nothing else.
func (r *report) ledger() {
	var want []string
	for _, row := range r.w.list() {
		if row.Status == durable.Delivered {
			want = append(want, row.EventID+" "+row.SubscriberKey+" done")
		}
	}
	slices.Sort(want)
	got := r.w.strings(`SELECT event_id || ' ' || handler || ' ' || status FROM processed_events`)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.add(stale, "the ledger has %q, want %q", got, want)
	}
}

// unchanged: what another process had done when the one that stood still went on has stayed, unless it was claimed anew or
// an operator came; and each outcome of a claim that was taken over was refused, and counted.
func (r *report) unchanged() {
	for id, now := range r.w.rows() {
		then, was := r.w.settled[id]
		final := then.Status == durable.Delivered || then.Status == durable.Dead && then.SubscriberKey != keyDoomed
		if was && (final || r.w.held[keyOf(&then)] && now.Runs == then.Runs && now.LastError != durable.RemovedReason) && now != then {
			r.add(stale, "changed by who stood still:\n%+v\n%+v", then, now)
		}
	}
	if n := r.w.b.Count("loam.claims.lost"); n != 0 {
		r.add(stale, "%d outcomes of the process that took over were refused", n)
	}
	if n := r.w.a.Count("loam.claims.lost"); r.exact && n != 0 {
		r.add(stale, "%d claims were taken for lost, and none was", n)
	} else if missing := int64(len(r.w.held)) - n; r.w.tookOver && (missing < 0 || missing > 0 && r.w.b.DB.Dialect() == database.SQLite) {
		// Where writers go on side by side, another run of a may have had its outcome while b looked: it needs no refusal.
		r.add(stale, "%d outcomes refused, want %d: the claims that were taken over are %v", n, len(r.w.held), r.w.held)
	}
}
