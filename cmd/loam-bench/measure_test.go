package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// idle publishes, and delivers nothing.
type idle struct{ published func(n int64) error }

func (c idle) publish(_ context.Context, n int64) error { return c.published(n) }
func (idle) unfinished(context.Context) (int, error)    { return 1, nil }
func (idle) copies() []string                           { return nil }
func (idle) verify(context.Context, int) error          { return nil }
func (idle) stop(context.Context) error                 { return nil }
func (c idle) drive(t *testing.T, handled *atomic.Int64) error {
	t.Helper()
	return setup{&throughput{publishers: 3}, nil, 2, handled}.drive(t.Context(), c, 10, 20)
}

// A measurement that cannot end is given up: when nothing is delivered any more, when what was handled is never committed, and
// at once when the publishing fails.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handled := new(atomic.Int64)
		handled.Store(39)
		var published atomic.Int64
		began := time.Now()
		c := idle{func(int64) error { published.Add(1); return nil }}
		if err := c.drive(t, handled); err == nil || err.Error() != "nothing was delivered for 30s: 39 of 40 handlers have run" || published.Load() != 10 {
			t.Errorf("%v, %d published", err, published.Load())
		}
		if took := time.Since(began); took < standstill || took > standstill+time.Second {
			t.Errorf("given up after %v", took)
		}
		handled.Store(40)
		if err := c.drive(t, handled); err == nil || !strings.HasPrefix(err.Error(), "nothing was delivered for 30s: 40 of 40") {
			t.Error(err)
		}
		broken := errors.New("broken")
		c = idle{func(n int64) error {
			if n == 12 {
				return broken
			}
			return nil
		}}
		if err := c.drive(t, handled); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "publish: ") {
			t.Error(err)
		}
	})
}
