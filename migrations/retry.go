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

// retry calls f again while another process is in the way, or the connection breaks: 5 times, 100 ms to 1 s apart. What the
// other has applied, f finds applied.
func retry(ctx context.Context, f func() error) error {
	wait := firstWait
	for n := 0; ; n++ {
		err := f()
		if err == nil || n == retries || !passing(err) {
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

// passing reports whether err is of the moment: another process is in the way, or a connection broke.
func passing(err error) bool {
	for _, e := range []error{database.ErrBusy, database.ErrWait, database.ErrConflict, database.ErrUnreachable, database.ErrTooMany} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
