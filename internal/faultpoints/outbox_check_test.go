package faultpoints_test

import (
	"fmt"
	"slices"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/outbox"
)

// queue checks event_queue in the end: a row for each event whose publisher was answered, the caller's data if and only if
// it is there, done or for good reason dead_lettered; and of each row that is done its deliveries, or that it was sent.
func (r *report) queue() {
	rows, have := map[string]outbox.Entry{}, map[string][]string{}
	for _, row := range r.w.list() {
		have[row.EventID] = append(have[row.EventID], row.SubscriberKey)
	}
	for _, e := range r.w.queue() {
		if _, twice := rows[e.EventID]; twice {
			r.add(stale, "twice in the queue: %s", describeEntry(e))
		}
		rows[e.EventID] = e
		want := outbox.Done
		if e.EventID == idRemoved || e.EventID == "x" {
			want = outbox.DeadLettered
		}
		if e.EventID == idRemoved && (r.w.script.sink || len(have[idRemoved]) > 0) { // a sink asks for no tenant; or it was there still
			want = outbox.Done
		}
		if e.Status != want || !e.ClaimedAt.IsZero() || !e.NextAttemptAt.IsZero() {
			r.add(lost, "not %s: %s", want, describeEntry(e))
		}
		if e.Attempts+e.Deferrals > 1 || e.EventID == "x" && e.Attempts > 0 {
			r.add(stale, "for one fault: %s", describeEntry(e))
		}
	}
	sent, names, answered, orders := map[string]int{}, map[string]string{}, map[string]bool{}, r.w.orders()
	for _, e := range r.entries {
		switch e.What {
		case "enqueue":
			names[e.Event] = e.Key
		case "enqueued":
			answered[e.Event] = true
		case "sent":
			sent[e.Event]++
		}
	}
	for id, name := range names {
		row, there := rows[id]
		if !there && answered[id] || there && id == idDropped || id != idLate && slices.Contains(orders, id) != there {
			r.add(lost, "%s %s, answered %v, in the queue %v, the caller's data %q", name, id, answered[id], there, orders)
		}
		if there {
			r.relayed(row, have[id], sent[id])
		}
	}
	followers := 0
	for id, row := range rows {
		if names[id] == "" && id != "x" { // a handler's
			followers++
			r.relayed(row, have[id], sent[id])
		}
	}
	if did := r.tally(idBilled, keyNext).oks > 0; followers > 1 || did && followers == 0 {
		r.add(lost, "a handler that succeeded (%v) has enqueued %d events, want one", did, followers)
	}
	r.marks()
}

// relayed checks what became of one row.
func (r *report) relayed(row outbox.Entry, have []string, sent int) {
	var want []string
	for _, s := range subscribers {
		if s.pattern == row.EventType && row.Status == outbox.Done && !r.w.script.sink {
			want = append(want, s.key)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		r.add(lost, "has deliveries for %q, want %q: %s", have, want, describeEntry(row))
	}
	least, most := 0, 0
	if r.w.script.sink && row.EventID != "x" {
		least, most = 1, 1
		if r.w.again[row.EventID] {
			most = 2
		}
	}
	switch {
	case sent < least:
		r.add(lost, "never sent: %s", describeEntry(row))
	case sent > most:
		r.add(overlap, "sent %d times: %s", sent, describeEntry(row))
	}
}

// marks: those of a claim that was taken over were refused and counted, and no others.
func (r *report) marks() {
	if n := r.w.a.Count("loam.outbox.claims_lost"); n != int64(r.w.claimed) {
		r.add(stale, "%d marks of a were refused, want %d", n, r.w.claimed)
	}
	if n := r.w.b.Count("loam.outbox.claims_lost"); n != 0 {
		r.add(stale, "%d marks of b were refused", n)
	}
}

func describeEntry(e outbox.Entry) string {
	return fmt.Sprintf("%s (%s): %s, %d attempts, %d deferrals, last error %q, claimed %v, next %v", e.EventID, e.EventType, e.Status, e.Attempts,
		e.Deferrals, e.LastError, e.ClaimedAt, e.NextAttemptAt)
}

// left reports whether there is something to do.
func (w *world) left() bool {
	return w.busy() || slices.ContainsFunc(w.list(), func(r durable.EventDelivery) bool { return r.Status == durable.Pending }) ||
		slices.ContainsFunc(w.queue(), func(e outbox.Entry) bool { return e.Status == outbox.Pending || e.Status == outbox.Processing })
}
