package migrations

import (
	"context"
	"errors"
	"time"

	"github.com/openloam/loam/database"
)

const (
	retries   = 5
	firstWait = 100 * time.Millisecond
	maxWait   = time.Second
)

// retry calls f again while another process is in the way: 5 times, 100 ms to 1 s apart. What the other has applied, f
// finds applied.
func retry(ctx context.Context, f func() error) error {
	wait := firstWait
	for n := 0; ; n++ {
		err := f()
		if err == nil || n == retries || !errors.Is(err, database.ErrBusy) && !errors.Is(err, database.ErrWait) {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		wait = min(2*wait, maxWait)
	}
}
