package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/durable"
)

// settleLimit is how long everything may take to settle once the attacks are over.
const settleLimit = 120 * time.Second

// torture makes a run and judges it. Its files are gone afterwards when all went well, unless they are to be kept.
func torture(ctx context.Context, o options, stdout, stderr io.Writer) (v *verdict, err error) {
	dir, err := os.MkdirTemp(o.dir, "loam-torture-")
	if err != nil {
		return nil, err
	}
	a := &arena{
		options: o, backend: backends[o.database](), files: dir, stderr: stderr, counts: map[string]int{},
		rng: rand.New(rand.NewPCG(o.seed, 0)), //nolint:gosec // to be repeated with the seed
	}
	defer func() {
		keep := o.keep || err != nil || !v.good()
		err = errors.Join(err, a.backend.release(keep))
		if keep {
			fmt.Fprintf(stdout, "the database and the files are in %s (seed %d)\n", dir, o.seed)
		} else {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := a.prepare(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.db.Close(), a.diary.close()) }()
	if a.broker != nil {
		defer a.broker.down()
	}
	fmt.Fprintf(stdout, "attacking %s for %v with the seed %d, in %s\n", o.database, o.length, o.seed, dir)

	began := time.Now()
	attacking, done := context.WithTimeout(ctx, o.length)
	defer done()
	stopProgress, stopWatching := a.progress(ctx, began), a.watch(ctx)
	for _, s := range a.slots {
		a.fillSlot(s)
	}
	a.attackUntil(attacking)
	fmt.Fprintf(stderr, "%s the attacks are over, settling\n", since(began))
	settled := a.settle(ctx)
	stopProgress()
	stopWatching()
	took := time.Since(began)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ev, err := readEvidence(dir)
	if err != nil {
		return nil, fmt.Errorf("read the diaries: %w", err)
	}
	v = newVerdict()
	if settled != nil {
		v.wrong("%v", settled)
	}
	if err := a.judge(ctx, ev, v); err != nil {
		return nil, fmt.Errorf("read the database: %w", err)
	}
	v.print(stdout, a.counts, took)
	return v, nil
}

// judgeAgain judges what an earlier run has left.
func judgeAgain(ctx context.Context, o options, stdout, stderr io.Writer) (v *verdict, err error) {
	a := &arena{options: o, backend: &sqliteBackend{}, files: o.judge, stderr: stderr}
	if a.db, err = a.backend.open(ctx, filepath.Join(o.judge, databaseFile)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.db.Close()) }()
	ev, err := readEvidence(o.judge)
	if err != nil {
		return nil, fmt.Errorf("read the diaries: %w", err)
	}
	v = newVerdict()
	if err := a.judge(ctx, ev, v); err != nil {
		return nil, fmt.Errorf("read the database: %w", err)
	}
	v.print(stdout, nil, 0)
	return v, nil
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// prepare makes the database, with the application's tenants and its tables.
func (a *arena) prepare(ctx context.Context) (err error) {
	if a.self, err = os.Executable(); err != nil {
		return err
	}
	if a.location, err = a.backend.prepare(ctx, a.files); err != nil {
		return err
	}
	if a.diary, err = openDiary(a.files, parentDiary); err != nil {
		return err
	}
	a.diary.add("crowd", a.crowd)
	if a.db, err = a.backend.open(ctx, a.location); err != nil {
		return err
	}
	engine, err := loam.New(loam.Config{DB: a.db, Registry: durable.NewRegistry()})
	if err != nil {
		return err
	}
	if err := engine.Migrate(ctx); err != nil {
		return err
	}
	if a.capture == captureNATS {
		if a.broker, err = a.newBroker(ctx); err != nil {
			return err
		}
	}
	for _, t := range tenants {
		if err := engine.AddTenant(ctx, t); err != nil {
			return err
		}
	}
	a.slots = []*slot{
		{name: "publisher", publish: a.rate / 2},
		{name: "publishing worker", publish: a.rate / 2, work: true, outbox: true}, // the other way round
		{name: "worker 1", work: true},
		{name: "worker 2", work: true},
	}
	return a.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, statement := range schema {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return openBooks(ctx, tx)
	})
}

// progress says every five seconds how it goes. It returns a function that stops it.
func (a *arena) progress(ctx context.Context, began time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			deliveries := "deliveries not counted: the database did not answer"
			var pending, delivered int
			if a.db.Read().QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status = 'delivered')
				FROM event_deliveries`).Scan(&pending, &delivered) == nil {
				deliveries = fmt.Sprintf("delivered=%d pending=%d", delivered, pending)
			}
			a.mu.Lock()
			fmt.Fprintf(a.stderr, "%s kills=%d stops=%d full=%d restarts=%d %s\n", since(began), a.counts["kill"],
				a.counts["stop"], a.counts["full"], a.counts["restart"], deliveries)
			a.mu.Unlock()
		}
	}()
	return func() { cancel(); <-ended }
}

// settle ends the publishers, and with a broker all, waits until nothing is left to do, and ends the workers.
func (a *arena) settle(ctx context.Context) error {
	var ending sync.WaitGroup
	for _, s := range a.slots {
		if s.publish > 0 || a.broker != nil {
			s.publish = 0
			ending.Go(func() { a.endSlot(s) })
		}
	}
	ending.Wait()
	if a.broker != nil {
		if err := a.ageClaims(ctx); err != nil {
			return fmt.Errorf("age the claims of relays: %w", err)
		}
	}
	for _, s := range a.slots {
		if s.work {
			a.fillSlot(s)
		}
	}
	limit := time.Now().Add(settleLimit)
	var err error
	for {
		var queued, sent, pending, claims int // in this order: what is not in one of them any more is in the next
		err = a.db.Read().QueryRowContext(ctx, `SELECT count(*) FROM event_queue WHERE status IN ('pending', 'processing')`).Scan(&queued)
		if a.broker != nil && err == nil {
			sent, err = a.broker.waiting(ctx)
		}
		err = errors.Join(err,
			a.db.Read().QueryRowContext(ctx, `SELECT count(*) FROM event_deliveries WHERE status = 'pending'`).Scan(&pending),
			a.db.Read().QueryRowContext(ctx, `SELECT count(*) FROM processed_events WHERE status = 'in_progress'`).Scan(&claims))
		if err != nil || queued+sent+pending+claims == 0 {
			break
		}
		if time.Now().After(limit) {
			err = fmt.Errorf("not settled %v after the last attack: %d events are queued, %d are at the broker, %d deliveries are pending, %d claims are held",
				settleLimit, queued, sent, pending, claims)
			break
		}
		a.wait(ctx, 200*time.Millisecond)
	}
	a.mu.Lock()
	a.closing = true
	a.mu.Unlock()
	for _, s := range a.slots {
		a.endSlot(s)
	}
	a.running.Wait()
	if a.broker != nil {
		err = errors.Join(err, a.noteStream(ctx))
	}
	return err
}

// endSlot ends the process of a slot, which stays empty.
func (a *arena) endSlot(s *slot) {
	a.mu.Lock()
	s.busy = true
	for s.filling { // a process that has ended by itself is being replaced
		a.mu.Unlock()
		<-time.After(10 * time.Millisecond)
		a.mu.Lock()
	}
	p := s.proc
	a.mu.Unlock()
	if p != nil {
		a.end(p)
	}
	a.mu.Lock()
	s.proc, s.busy = nil, false
	a.mu.Unlock()
}
