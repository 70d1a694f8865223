package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openloam/loam/internal/loop"
)

// The first call is at once; then each waits for the interval, less up to a tenth and never more.
func TestIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval, calls = 10 * time.Second, 200
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var at []time.Time
		loop.Run(ctx, interval, time.Minute, func(context.Context) error {
			if at = append(at, time.Now()); len(at) == calls {
				cancel()
			}
			return nil
		})
		if len(at) != calls || !at[0].Equal(start) {
			t.Fatalf("%d calls, the first after %v", len(at), at[0].Sub(start))
		}
		differ := false
		for i := 1; i < calls; i++ {
			d := at[i].Sub(at[i-1])
			if d > interval || d < interval*9/10 {
				t.Errorf("call %d came %v after the one before", i+1, d)
			}
			differ = differ || d != at[1].Sub(at[0])
		}
		if !differ {
			t.Error("there is no jitter")
		}
	})
}

// Each call has its own time limit, and the next one waits for it.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := 0
		loop.Run(ctx, time.Second, 30*time.Second, func(ctx context.Context) error {
			start := time.Now()
			<-ctx.Done()
			if took := time.Since(start); took != 30*time.Second {
				t.Errorf("call %d ended after %v", calls+1, took)
			}
			if calls++; calls == 3 {
				cancel()
			}
			return nil
		})
		if calls != 3 {
			t.Errorf("%d calls", calls)
		}
	})
}

// Run returns when its context has ended and the last call has returned, not before and not long after.
func TestRunWaitsForTheLastCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			loop.Run(ctx, time.Hour, 24*time.Hour, func(context.Context) error { <-release; return nil })
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("Run returned before its last call")
		default:
		}
		start := time.Now()
		close(release)
		<-ended
		if waited := time.Since(start); waited != 0 {
			t.Errorf("Run returned %v after its last call", waited)
		}
	})
}

// An interval too short for jitter is one too.
func TestShortestInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		loop.Run(ctx, 1, time.Second, func(context.Context) error {
			if calls++; calls == 5 {
				cancel()
			}
			return nil
		})
		if calls < 5 {
			t.Errorf("%d calls", calls)
		}
	})
}

// After a failure the next call comes within a second, however long the interval.
func TestSoonAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var at []time.Duration
		loop.Run(ctx, time.Minute, time.Second, func(context.Context) error {
			if at = append(at, time.Since(start)); len(at) == 4 {
				cancel()
			}
			if len(at) < 3 {
				return errors.New("failed")
			}
			return nil
		})
		if at[1] != time.Second || at[2] != 2*time.Second || at[3]-at[2] < 54*time.Second {
			t.Errorf("calls at %v", at)
		}
	})
}
