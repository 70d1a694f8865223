package jobs

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"github.com/openloam/loam/durable"
)

// wakeQueue is a queue of wake-ups, and whether this process works it.
type wakeQueue struct {
	config river.QueueConfig
	state  queueState
}

type queueState int

const (
	worked   queueState = iota
	stopping            // River was told, and has not finished
	paused
)

func wakeQueues(w Work) map[string]*wakeQueue {
	state := worked
	if w.Paused {
		state = paused
	}
	queues := map[string]*wakeQueue{
		durable.DefaultQueue: {river.QueueConfig{MaxWorkers: w.Concurrency}, state},
		durable.SuspectQueue: {river.QueueConfig{MaxWorkers: 1}, state},
	}
	for _, name := range w.Queues {
		queues[name] = &wakeQueue{river.QueueConfig{MaxWorkers: w.Concurrency}, state}
	}
	return queues
}

// SetPaused stops or begins again to fetch wake-ups in this process; others go on. Stopping waits until ctx ends for the
// jobs that are being worked; after an error call it again. It is called from one goroutine.
func (j *Jobs) SetPaused(ctx context.Context, pause bool) error {
	var errs []error
	for name, q := range j.queues {
		if q.state == stopping || pause && q.state == worked {
			q.state = stopping
			if err := j.work.Queues().Remove(ctx, name); err != nil {
				errs = append(errs, err)
				continue
			}
			q.state = paused
		}
		if !pause && q.state == paused {
			if err := j.work.Queues().Add(name, q.config); err != nil {
				errs = append(errs, err)
				continue
			}
			q.state = worked
		}
	}
	return errors.Join(errs...)
}
