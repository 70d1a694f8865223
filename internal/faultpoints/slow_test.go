package faultpoints_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: L-02, L-08, D-08. Every outcome takes the database 1.5 s, so that those of 200 deliveries stand in line for several
// leases, and many are given up at their limit of 30 s and tried again. The process renews its claims meanwhile, and another looks for lost ones: each handler has run once, nothing was
// counted as a failure, and when the database is fast again all rows are done.
// scenario: B045
//
//nolint:paralleltest // synctest forbids it
func TestSlowOutcomesRunNothingTwice(t *testing.T) {
	n := 200
	if every > 1 { // under the race detector
		n = 40
	}
	synctest.Test(t, func(t *testing.T) {
		db, faults := dbtest.Open(t)
		r := rig.New(t, db)
		same := func(c *durable.Config) { c.Registry, c.Concurrency = r.Registry, n }
		handle, _ := dbtest.Again(t, db)
		other := rig.Over(t, handle, r.Clock, same)
		p := r.Second(same)
		var calls atomic.Int64
		r.Registry.RegisterFunc("mailer", paid, func(context.Context, events.Event) error {
			calls.Add(1)
			return nil
		})
		var ids []string
		for range n {
			p.Publish("acme", paid, nil)
		}
		for _, row := range r.Rows("acme") {
			ids = append(ids, row.ID)
		}
		var slow atomic.Bool
		slow.Store(true)
		faults.Before(func(op dbtest.Op) error {
			if where(op.Kind, op.SQL).part == "outcome" && op.Kind == "begin" && slow.Load() {
				time.Sleep(1500 * time.Millisecond)
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- p.Deliveries.Deliver(p.Ctx("acme"), ids...) }()
		lost := 0
		for tick := range 20 { // five minutes
			time.Sleep(15 * time.Second)
			r.Clock.Add(15 * time.Second)
			k, err := other.Sweeper.LostClaims(t.Context())
			if lost += k; err != nil {
				t.Error(err)
			}
			if err := p.Deliveries.Renew(t.Context()); err != nil {
				t.Errorf("renewal %d: %v", tick, err)
			}
		}
		slow.Store(false)
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, row := range r.Rows("acme") {
			if row.Status != durable.Delivered || row.Attempts != 0 || row.Runs != 1 || row.Unfinished != 0 {
				t.Errorf("%s", describe(&row))
			}
		}
		if calls.Load() != int64(n) || lost != 0 {
			t.Errorf("%d runs of %d deliveries, %d claims taken for lost", calls.Load(), n, lost)
		}
	})
}
