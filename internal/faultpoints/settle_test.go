package faultpoints_test

import (
	"slices"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

// settle lets b work until nothing is left to do. When a process was killed or stood still, claims that it has lost, and
// wake-ups that it had taken, are repaired; else the wake-ups alone must do, for each was committed with what it is for.
func (w *world) settle(repair bool) {
	for range 10 {
		if repair {
			w.advance(stallFor)
			w.repair(w.b)
		}
		w.drain()
		w.b.Work()
		if w.drain(); !w.left() { // a handler may have enqueued
			return
		}
		w.advance(2 * time.Hour)
	}
}

// redeliverDead redelivers, as the last thing, what has died and was not redelivered by the script: a redelivery that was
// rolled back has left it dead, and it can be done again.
func (w *world) redeliverDead(repair bool) {
	for _, row := range w.list() {
		if row.SubscriberKey != keyDoomed || row.Status != durable.Dead {
			continue
		}
		if err := w.b.Deliveries.Redeliver(w.b.Ctx(row.TenantID), row.ID); err != nil {
			w.t.Errorf("redeliver what has died: %v", err)
		}
		w.settle(repair)
	}
}

// list is rows as a slice.
func (w *world) list() []durable.EventDelivery {
	return slices.Concat(w.b.Rows("acme"), w.b.Rows("globex"))
}

// orders are the callers' own rows.
func (w *world) orders() []string { return w.strings(`SELECT id FROM test_orders ORDER BY id`) }

// strings reads a column.
func (w *world) strings(query string) []string {
	rows, err := w.b.DB.Read().QueryContext(w.t.Context(), query)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// frozen looks at what a killed process has left, before anybody goes on: whatever is pending has a wake-up, or a claim
// that will be found lost, or is in a job that the process had taken and not come to claim for (River would find that one),
// or the script itself has lost its wake-up.
func (w *world) frozen() []finding {
	awake := map[string]bool{}
	for _, u := range w.b.Wakeups.All() {
		for _, id := range u.IDs {
			awake[id] = true
		}
	}
	working, started := map[string]bool{}, map[[2]string]bool{}
	for _, e := range w.diary.entries(w.t) {
		switch e.What {
		case "start":
			started[[2]string{e.Event, e.Key}] = true
		case "job":
			clear(started) // one job is worked at a time
		}
		for _, id := range e.IDs {
			switch e.What {
			case "job":
				working[id] = true
			case "jobdone":
				working[id] = false
			case "cleared":
				awake[id] = true
			}
		}
	}
	w.held = map[claimKey]bool{}
	for key := range w.claims() {
		w.held[key] = true
	}
	var out []finding
	if rows := w.sending(); len(rows) > 0 && !w.script.sink {
		out = append(out, finding{stale, "claimed, with no sink: " + describeEntry(rows[0])})
	}
	w.sendAgain()
	w.claimed = 0 // a is gone, and marks nothing
	for _, row := range w.list() {
		if row.Status != durable.Pending && w.held[keyOf(&row)] {
			out = append(out, finding{stale, "final, and there is a claim on it: " + describe(&row)})
		}
		looked := working[row.ID] && !started[[2]string{row.EventID, row.SubscriberKey}]
		if row.Status == durable.Pending && !awake[row.ID] && !looked && !w.held[keyOf(&row)] {
			out = append(out, finding{lost, "pending without a wake-up: " + describe(&row)})
		}
	}
	return out
}

// restart puts the clock where the killed process left it.
func restart(entries []entry) *rig.Clock {
	clock := rig.NewClock()
	if len(entries) > 0 {
		clock.Add(time.Unix(0, entries[len(entries)-1].Clock).Sub(clock.Now()))
	}
	return clock
}
