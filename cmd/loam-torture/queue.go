package main

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/openloam/loam/database"
)

// entry is a row of event_queue, as it is in the database at the end.
type entry struct {
	id           int64
	tenant, name string
	status       string
	attempts     int
	lastError    string
}

func (a *arena) readQueue(ctx context.Context) (map[uuid.UUID]entry, error) {
	rows, err := a.db.Read().QueryContext(ctx, `SELECT id, event_id, tenant_id, event_type, status, attempts, coalesce(last_error, '') FROM event_queue`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	queue := map[uuid.UUID]entry{}
	for rows.Next() {
		var e entry
		var id uuid.UUID
		if err := rows.Scan(&e.id, &id, &e.tenant, &e.name, &e.status, &e.attempts, &e.lastError); err != nil {
			return nil, err
		}
		e.tenant = intern(e.tenant)
		queue[id] = e
	}
	return queue, rows.Err()
}

// readLatest reads when the latest delivery was captured, by the clock of the process that did.
func (a *arena) readLatest(ctx context.Context) (time.Time, error) {
	var at database.Time
	err := a.db.Read().QueryRowContext(ctx, `SELECT max(created_at) FROM event_deliveries`).Scan(&at)
	return at.Time, err
}

// judgeQueue checks that every event in the queue was put there by somebody, and is done; and that those are there which
// somebody was told are.
func (ev *evidence) judgeQueue(st *state, v *verdict) {
	for id, e := range st.queue {
		switch p := plan(id); {
		case !ev.events[id].tried:
			v.wrong("event %s is in event_queue (%d), and nobody published it through that", id, e.id)
		case p.kind == undone:
			v.wrong("event %s was rolled back, and is in event_queue (%d)", id, e.id)
		case p.tenant != e.tenant || p.name != e.name:
			v.wrong("event %s in event_queue (%d) is %s of %s, and should be %s of %s", id, e.id, e.name, e.tenant, p.name, p.tenant)
		case e.status != "done":
			v.lost++
			v.wrong("event %s in event_queue (%d) is %s after %d attempts (%s)", id, e.id, e.status, e.attempts, e.lastError)
		case e.attempts != 0:
			v.wrong("event %s in event_queue (%d) is done, and %d attempts of it have failed", id, e.id, e.attempts)
		}
	}
	for id, t := range ev.events {
		if _, ok := st.queue[id]; t.queued && !ok {
			v.wrong("event %s was committed to event_queue, and is not in it", id)
		}
	}
	if st.latest.After(time.Now().Add(farShift / 2)) {
		v.wrong("a delivery was captured at %v, by a process whose clock is far off", st.latest)
	}
	v.queued = len(st.queue)
}
