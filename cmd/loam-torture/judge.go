package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
)

// row is a delivery, as it is in the database at the end.
type row struct {
	id         string
	w          what
	name       string
	status     string
	attempts   int
	unfinished int
	history    int // failed runs in it
	timeouts   int // those that missed their deadline
	lastError  string
}

// state is what is in the database at the end.
type state struct {
	rows   func(yield func(row) error) error
	orders map[uuid.UUID]string // of the application's table: the tenant
	queue  map[uuid.UUID]entry  // event_queue
	books  books
	latest time.Time // when a delivery was captured
	claims int       // in progress
	done   int       // in the ledger
}

// judge compares what is in the database with what the processes say, and looks for what they left behind.
func (a *arena) judge(ctx context.Context, ev *evidence, v *verdict) error {
	if err := a.backend.check(ctx, a.db); err != nil {
		v.wrong("the database is damaged: %v", err)
	}
	st, err := a.readState(ctx)
	if err != nil {
		return err
	}
	ev.judgeRuns(v)
	if err := ev.judgeState(st, v); err != nil {
		return err
	}
	ev.judgeLives(v)
	var said []string
	if ev.broker {
		said = append(said, brokerStderr)
	}
	for n := range ev.lives {
		said = append(said, stderrOf(n))
	}
	for _, file := range said {
		if err := panicsIn(filepath.Join(a.files, file), v); err != nil {
			return err
		}
	}
	return nil
}

func (a *arena) readState(ctx context.Context) (*state, error) {
	st := &state{orders: map[uuid.UUID]string{}}
	db := a.db.Read()
	var err error
	if st.queue, err = a.readQueue(ctx); err != nil {
		return nil, err
	}
	if st.books, err = a.readBooks(ctx); err != nil {
		return nil, err
	}
	if st.latest, err = a.readLatest(ctx); err != nil {
		return nil, err
	}
	err = errors.Join(
		db.QueryRowContext(ctx, `SELECT count(*) FROM processed_events WHERE status = 'in_progress'`).Scan(&st.claims),
		db.QueryRowContext(ctx, `SELECT count(*) FROM processed_events WHERE status = 'done'`).Scan(&st.done))
	if err != nil {
		return nil, err
	}
	orders, err := db.QueryContext(ctx, `SELECT id, tenant FROM torture_orders`)
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	for orders.Next() {
		var id uuid.UUID
		var tenant string
		if err := orders.Scan(&id, &tenant); err != nil {
			return nil, err
		}
		st.orders[id] = intern(tenant)
	}
	st.rows = func(yield func(row) error) error { return a.eachRow(ctx, yield) }
	return st, orders.Err()
}

func (a *arena) eachRow(ctx context.Context, yield func(row) error) error {
	rows, err := a.db.Read().QueryContext(ctx, `SELECT id, tenant_id, event_id, subscriber_key, event_name, status, attempts, unfinished,
		errors, coalesce(last_error, '') FROM event_deliveries`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var history string
		if err := rows.Scan(&r.id, &r.w.tenant, &r.w.event, &r.w.key, &r.name, &r.status, &r.attempts, &r.unfinished, &history, &r.lastError); err != nil {
			return err
		}
		r.w.tenant, r.w.key = intern(r.w.tenant), intern(r.w.key)
		if r.history, r.timeouts, err = failures(history); err != nil {
			return err
		}
		if err := yield(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// judgeState compares the rows with the publishers' and the handlers' diaries.
func (ev *evidence) judgeState(st *state, v *verdict) error {
	have := map[uuid.UUID]uint64{} // a bit for each subscriber
	delivered, posted := 0, map[uuid.UUID]bool{}
	err := st.rows(func(r row) error {
		v.rows++
		if r.status == "delivered" {
			delivered++
			if keepsBooks(r.w.key) {
				posted[r.w.event] = true
			}
		}
		ev.judgeRow(r, have, v)
		return nil
	})
	if err != nil {
		return err
	}
	for id, t := range ev.events {
		ev.judgeEvent(id, t, have[id], st, v)
	}
	for id := range st.orders {
		if _, ok := ev.events[id]; !ok {
			v.wrong("event %s has a row of the application's, and nobody published it", id)
		}
	}
	if st.claims != 0 {
		v.wrong("%d claims are left in progress", st.claims)
	}
	if st.done != delivered {
		v.wrong("the ledger says that %d are done, and %d rows are delivered", st.done, delivered)
	}
	ev.judgeQueue(st, v)
	ev.judgeStream(st, v)
	st.books.judge(posted, v)
	for _, n := range ev.refused {
		v.refused += n
	}
	v.errors, v.givenUp, v.attacked = ev.errors, ev.givenUp, ev.attacked
	for _, text := range ev.violation {
		v.wrong("%s", text)
	}
	return nil
}

func (ev *evidence) judgeRow(r row, have map[uuid.UUID]uint64, v *verdict) {
	if _, ok := ev.events[r.w.event]; !ok {
		v.wrong("%v: there is a row (%s), and nobody published the event", r.w, r.id)
		return
	}
	bit, p := uint64(0), plan(r.w.event)
	for i, s := range ev.subscribers {
		if s.key == r.w.key && s.matches(r.name) {
			bit = 1 << i
		}
	}
	if bit == 0 || p.tenant != r.w.tenant || p.name != r.name {
		v.wrong("%v: the row (%s) should not be: the event is %s of %s", r.w, r.id, p.name, p.tenant)
		return
	}
	if have[r.w.event]&bit != 0 {
		v.wrong("%v has more than one row (%s)", r.w, r.id)
	}
	have[r.w.event] |= bit
	status, attempts := scriptOf(r.w.event, r.w.key).final()
	if keepsBooks(r.w.key) {
		attempts += r.timeouts
	}
	if r.status != status || r.attempts != attempts {
		v.wrong("%v (%s) is %s after %d failures, and should be %s after %d (%s)", r.w, r.id, r.status, r.attempts, status, attempts, r.lastError)
	}
	if r.history != r.attempts {
		v.wrong("%v (%s): %d failures were counted and %d recorded", r.w, r.id, r.attempts, r.history)
	}
	if r.status != "pending" && r.unfinished != 0 {
		v.wrong("%v (%s) is %s and counts %d crashes", r.w, r.id, r.status, r.unfinished)
	}
	for _, n := range ev.overtaken[r.w] {
		if ev.refused[refusal{n, r.id}] == 0 {
			v.wrong("%v (%s): process %d was overtaken while it ran this, and its outcome was not refused", r.w, r.id, n)
		}
	}
	succeeded, failed := 0, 0
	for _, h := range ev.runs[r.w] {
		switch behaviour(h.result) {
		case succeeds:
			succeeded++
		case fails, panics, exits, retries, parks:
			failed++
		case snoozes, undo, cutShort: // spend nothing
		}
	}
	switch {
	case r.status == "pending":
		v.lost++
	case r.status == "delivered" && succeeded == 0:
		v.lost++
		v.wrong("%v (%s) is delivered, and no run of it has succeeded", r.w, r.id)
	case failed < r.attempts-r.timeouts:
		v.wrong("%v (%s): %d failures were counted, and %d runs have failed", r.w, r.id, r.attempts, failed)
	}
}

// judgeEvent checks that an event has all its rows or, if it was not confirmed, none, and its own row likewise.
func (ev *evidence) judgeEvent(id uuid.UUID, t told, have uint64, st *state, v *verdict) {
	p := plan(id)
	want := uint64(0)
	for i, s := range ev.subscribers {
		if s.matches(p.name) {
			want |= 1 << i
		}
	}
	_, queued := st.queue[id]
	if have == want {
		v.events++
	}
	switch {
	case p.kind == undone:
		if have != 0 {
			v.wrong("event %s was rolled back, and has deliveries", id)
		}
	case have != want && (t.committed != 0 || have != 0 || queued):
		for i, s := range ev.subscribers {
			if missing := want &^ have; missing&(1<<i) != 0 {
				v.lost++
				v.wrong("event %s (committed: %v, in event_queue: %v) has no delivery for %s", id, t.committed != 0, queued, s.key)
			}
		}
	}
	tenant, ok := st.orders[id]
	if ok != (p.ownRow() && have != 0) || ok && tenant != p.tenant {
		v.wrong("event %s: published by %s, its deliveries there: %v, the application's row there: %v (%s)", id, p.kind, have != 0, ok, tenant)
	}
}

// judgeLives looks for processes that ended by themselves. One that found no database at its start
// may: it was started again. So may one that was told to stop, and could not write its last outcomes.
func (ev *evidence) judgeLives(v *verdict) {
	for n, l := range ev.lives {
		if l.ended != 0 && l.code != 0 && l.code != exitNotUp && l.code != exitLate {
			v.wrong("process %d has ended by itself, with code %d: see %s", n, l.code, stderrOf(n))
		}
	}
}

// panicsIn looks for what the Go runtime says in a process's last words.
func panicsIn(file string, v *verdict) error {
	in, err := os.Open(file) //nolint:gosec // ours
	if err != nil {
		return err
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		text := lines.Text()
		for _, bad := range []string{"panic:", "fatal error:", "WARNING: DATA RACE", "unexpected fault address", "SIGSEGV", "SIGBUS"} {
			if strings.HasPrefix(text, bad) || strings.HasPrefix(text, "[signal "+bad) {
				v.wrong("%s: %s", filepath.Base(file), text)
			}
		}
	}
	return lines.Err()
}
