package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// attack is something bad that happens. In a deck it has some cards: attacks come in turn, as often as they have cards, so
// that a short run has some of each.
type attack struct {
	name  string
	cards int
	run   func(ctx context.Context, a *arena)
}

var attacks = []attack{
	{"kill", 10, kill},
	{"kill all", 1, killAll},
	{"stop", 4, stopPastLease},
	{"restart", 2, restart},
	{"delete jobs", 2, deleteJobs},
	{"far clock", 1, farClock},
}

// Attacks begin this long after each other, at random.
const (
	leastPause = 500 * time.Millisecond
	mostPause  = 1600 * time.Millisecond
)

// attackUntil attacks until ctx ends, and returns when the last attack is over.
func (a *arena) attackUntil(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	last := context.WithoutCancel(ctx) // an attack ends by itself, and undoes itself
	var deck []attack
	if a.broker != nil {
		deck = slices.Clone(brokerAttacks) // so that a short run has them
	}
	for {
		a.wait(ctx, leastPause+time.Duration(a.random(int(mostPause-leastPause))))
		if ctx.Err() != nil {
			a.noteMade(last)
			return
		}
		if len(deck) == 0 {
			deck = a.shuffled()
		}
		next := deck[0]
		deck = deck[1:]
		all.Go(func() { next.run(last, a) })
	}
}

// noteMade notes how many deliveries are made, delivered or dead, when the attacks end. The last of them may have cut the
// parent off.
func (a *arena) noteMade(ctx context.Context) {
	for range 100 {
		var n int
		err := a.db.Read().QueryRowContext(ctx, `SELECT count(*) FROM event_deliveries WHERE status <> 'pending'`).Scan(&n)
		if err == nil {
			a.diary.add("over", n)
			return
		}
		a.wait(ctx, 100*time.Millisecond)
	}
	a.diary.add("v", "the deliveries cannot be counted")
}

func (a *arena) shuffled() []attack {
	var deck []attack
	all := append(attacks, a.backend.attacks()...)
	if a.broker != nil {
		all = append(all, brokerAttacks...)
	}
	for _, at := range all {
		for range at.cards {
			deck = append(deck, at)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

func kill(ctx context.Context, a *arena) {
	s := a.take()
	if s == nil {
		return
	}
	defer a.putBack(s)
	a.killSlot(s)
	if a.random(3) > 0 {
		a.wait(ctx, time.Duration(a.random(1500))*time.Millisecond)
	}
}

func (a *arena) killSlot(s *slot) {
	a.say("kill %s (process %d)", s.name, s.proc.n)
	if a.killProc(s.proc) {
		a.count("kill")
	}
}

// killAll kills all processes at the same time, as a power loss does.
func killAll(ctx context.Context, a *arena) {
	var all sync.WaitGroup
	for range len(a.slots) {
		if s := a.take(); s != nil {
			defer a.putBack(s)
			all.Go(func() { a.killSlot(s) })
		}
	}
	all.Wait()
	a.wait(ctx, time.Duration(a.random(1000))*time.Millisecond)
}

// stopPastLease suspends a process until its leases are over and others may have taken over, and lets it go on: it is then
// a zombie, which must change nothing. Now and then it is killed instead.
func stopPastLease(ctx context.Context, a *arena) {
	if !canSuspend {
		return
	}
	s := a.take()
	if s == nil {
		return
	}
	defer a.putBack(s)
	p := s.proc
	if err := suspend(p.cmd.Process); err != nil {
		return
	}
	a.untilSuspended(ctx, p.cmd.Process.Pid)
	from := time.Now()
	for try := 0; !a.leases(ctx, p.n); try++ {
		if a.wait(ctx, 100*time.Millisecond); try == 100 {
			a.diary.add("v", "the leases cannot be read")
			break
		}
	}
	took := lease + 2*margin + time.Duration(a.random(2000))*time.Millisecond
	a.say("stop %s (process %d) for %v", s.name, p.n, took)
	a.wait(ctx, time.Until(from.Add(took)))
	until := time.Now()
	if a.random(6) == 0 {
		a.killSlot(s)
	} else if err := resume(p.cmd.Process); err != nil {
		a.say("resume process %d: %v", p.n, err)
	}
	if !p.dead() || p.foreseen.Load() {
		a.diary.addAt("stop", from.UnixNano(), p.n, until.UnixNano())
		a.count("stop")
	}
}

// untilSuspended waits until the system says that the process is suspended: the signal takes a moment.
func (a *arena) untilSuspended(ctx context.Context, pid int) {
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil { // not a Linux
			a.wait(ctx, 50*time.Millisecond)
			return
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "T") {
			return
		}
		a.wait(ctx, 2*time.Millisecond)
	}
}

// leases notes the claims there are while process n is suspended: until when its own are valid, as it knows itself. It
// reports whether they could be read: the server may be away.
func (a *arena) leases(ctx context.Context, n int) bool {
	rows, err := a.db.Read().QueryContext(ctx, `SELECT tenant_id, event_id, handler, lease_until, started_at FROM processed_events
		WHERE status = 'in_progress'`)
	if err != nil {
		return false
	}
	defer rows.Close()
	var found [][]any
	for rows.Next() {
		var tenant, event, key string
		var until, started int64
		if err := rows.Scan(&tenant, &event, &key, &until, &started); err != nil {
			return false
		}
		found = append(found, []any{n, tenant, event, key, until, started})
	}
	if rows.Err() != nil {
		return false
	}
	for _, lease := range found {
		a.diary.add("lease", lease...)
	}
	return true
}

// restart ends a process in its own way and starts another, as a deployment does.
func restart(_ context.Context, a *arena) {
	s := a.take()
	if s == nil {
		return
	}
	defer a.putBack(s)
	a.say("restart %s (process %d)", s.name, s.proc.n)
	a.end(s.proc)
	a.count("restart")
}

// deleteJobs deletes all of River's jobs: the rows are the record, and the sweep finds them.
func deleteJobs(ctx context.Context, a *arena) {
	var n int64
	err := a.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `DELETE FROM river_job`)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	a.say("deleted %d jobs (%v)", n, err)
	if err == nil {
		a.count("delete jobs")
	}
}

// farClock runs one more worker for some seconds, with a clock that is far ahead. To it every lease is long over; it must
// claim nothing.
func farClock(ctx context.Context, a *arena) {
	o := orders{Work: true, Shift: farShift}
	if a.broker != nil {
		o.Capture = [2]string{captureNATS, captureNATS}
	}
	p, err := a.launch(o)
	if err != nil {
		return
	}
	a.say("a worker whose clock is %v ahead (process %d)", farShift, p.n)
	a.wait(ctx, 4*time.Second+time.Duration(a.random(4000))*time.Millisecond)
	a.end(p)
	a.count("far clock")
}
