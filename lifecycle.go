package loam

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/loop"
	"github.com/openloam/loam/internal/outage"
	"github.com/openloam/loam/jobs"
	"github.com/openloam/loam/migrations"
)

// state is where an Engine is in its life.
type state int32

const (
	made state = iota
	started
	stopped
)

// longestRun bounds what River is told of how long a job can take.
const longestRun = 365 * 24 * time.Hour

// roundLimit is the time limit of one renewal or one check for lost claims.
const roundLimit = 30 * time.Second

// Start seals the registry and begins to work deliveries: wake-ups, renewals, the check for lost claims, the sweep (one
// at once), the relay of event_queue, and the consumer of the bus if there is one. It returns an error if the database is not
// there or not migrated; a bus that is away is waited for. ctx is for starting only: what ends it later does not stop the
// engine, Stop does.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch state(e.state.Load()) {
	case made:
	case started:
		return errors.New("loam: Start: the engine has started already")
	case stopped:
		return errors.New("loam: Start: the engine was stopped; make a new one")
	}
	if err := migrations.Check(ctx, e.cfg.DB); err != nil {
		return fmt.Errorf("loam: Start: %w", err)
	}
	if err := e.compareClocks(ctx); err != nil {
		return fmt.Errorf("loam: Start: %w", err)
	}
	if err := e.cfg.checkLease(); err != nil { // again: subscribers may have been registered since New
		return fmt.Errorf("loam: Start: %w", err)
	}
	if err := e.cfg.checkTransactional(); err != nil {
		return fmt.Errorf("loam: Start: %w", err)
	}
	e.cfg.Registry.Seal()
	if err := e.deliveries.Announce(ctx, true); err != nil {
		return fmt.Errorf("loam: Start: %w", err)
	}
	var queues []string
	for _, s := range e.cfg.Registry.Registered() {
		queues = append(queues, s.Queue)
	}
	err := e.jobs.Start(ctx, jobs.Work{
		Deliveries: e.deliveries, Sweeper: e.sweeper, Prune: e.prune, Queues: queues, Concurrency: e.cfg.Concurrency,
		Paused: e.clock.off.Load(), SweepEvery: e.cfg.SweepEvery, LongestRun: min(sum(e.cfg.longestTimeout(), e.cfg.StuckAfter), longestRun),
	})
	if err != nil {
		return errors.Join(fmt.Errorf("loam: Start: %w", err), e.jobs.Abort(ctx))
	}
	lctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.stopLoops = cancel
	if !e.cfg.renewalOff() {
		e.loop(lctx, e.cfg.RenewEvery, "renewing claims", e.deliveries.Renew)
	}
	e.loop(lctx, e.cfg.LostClaimsEvery, "checking for lost claims", e.checkLostClaims)
	e.loop(lctx, e.cfg.SweepEvery/2, "keeping sweeps going", e.keepSweeping)
	e.loop(lctx, jobs.PruneEvery, "asking for retention", e.jobs.PruneSoon)
	e.loop(lctx, clockEvery, "comparing clocks", e.followClock)
	e.loop(lctx, durable.RefreshEvery, "announcing subscribers", func(ctx context.Context) error { return e.deliveries.Announce(ctx, false) })
	rctx, stopRelay := context.WithCancel(lctx)
	e.stopRelay = stopRelay
	e.loops.Go(func() { e.queue.Run(rctx) })
	e.loops.Go(func() { e.queue.Listen(rctx) })
	if e.cfg.Bus != nil {
		e.loops.Go(func() { e.cfg.Bus.Consume(rctx, e.queue) })
	}
	e.state.Store(int32(started))
	return nil
}

func (e *Engine) loop(ctx context.Context, every time.Duration, what string, f func(ctx context.Context) error) {
	e.loops.Go(func() {
		var log outage.Log
		loop.Run(ctx, every, roundLimit, func(ctx context.Context) error {
			err := f(ctx)
			if errors.Is(err, context.Canceled) {
				return err // the engine stops
			}
			if err != nil {
				log.Failed(ctx, e.cfg.Logger, what, err)
			} else {
				log.Succeeded(ctx, e.cfg.Logger, what)
			}
			return err
		})
	})
}

// checkLostClaims sweeps at once when it finds one: a process has died, and its jobs with it. By a clock that is off, live
// claims of others can look lost.
func (e *Engine) checkLostClaims(ctx context.Context) error {
	if e.clock.off.Load() {
		return nil
	}
	n, err := e.sweeper.LostClaims(ctx)
	if n > 0 {
		err = errors.Join(err, e.jobs.SweepSoon(ctx))
	}
	return err
}

// prune deletes what is older than it is kept; by a clock that is ahead, that would be everything. So it looks at it first.
func (e *Engine) prune(ctx context.Context) (full bool, err error) {
	if err := e.compareClocks(ctx); err != nil || e.clock.off.Load() {
		return false, err
	}
	return e.sweeper.Prune(ctx)
}

// keepSweeping asks for a sweep when none has ended for longer than a period: River's leader inserts the periodic jobs, and
// the leader can be a client of the application's own that does not have ours.
func (e *Engine) keepSweeping(ctx context.Context) error {
	last, err := e.jobs.LastSweep(ctx)
	if err != nil || time.Since(last) < e.cfg.SweepEvery*5/4 {
		return err
	}
	return e.jobs.SweepSoon(ctx)
}

// Stop ends the work for good. No more deliveries are taken, and running handlers may go on for Config.DrainTimeout, or
// until ctx ends, if that is sooner. Then their contexts are cancelled with durable.ErrShutdown as the cause, and Stop waits
// up to Config.StopTimeout for them to return, and as long again for their jobs if they do not. A run that was cut short so
// spends no attempt and is woken again. The error says what has not ended; its deliveries run again, here or elsewhere,
// when their leases are over. Close the database after Stop. Publish still works; Start does not.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if state(e.state.Swap(int32(stopped))) != started {
		return nil // and Start will refuse: a shutdown may come first
	}
	e.stopRelay()
	e.deliveries.Stop()
	drain, cancelDrain := context.WithTimeout(ctx, e.cfg.DrainTimeout)
	defer cancelDrain()
	drained := e.jobs.Stop(drain)

	hard, cancelHard := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.StopTimeout)
	defer cancelHard()
	e.deliveries.Cancel()
	err := e.deliveries.Wait(hard)
	e.stopLoops()
	e.loops.Wait()
	if drained != nil {
		last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.StopTimeout)
		defer cancelLast()
		err = errors.Join(err, e.jobs.Abort(last))
	}
	if err != nil {
		return fmt.Errorf("loam: Stop: %w", err)
	}
	return nil
}
