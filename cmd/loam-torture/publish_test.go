package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
)

// Only errors that the attacks cause are published again after; any other is a violation.
func TestPassing(t *testing.T) {
	t.Parallel()
	for _, err := range []error{database.ErrFull, database.ErrUnreachable, database.ErrConflict, context.DeadlineExceeded} {
		if !passing(fmt.Errorf("loam: %w", err)) {
			t.Errorf("%v is not passing", err)
		}
	}
	for _, err := range []error{errors.New("a constraint failed"), events.ErrIDReused, events.ErrInTransaction} {
		if passing(fmt.Errorf("loam: %w", err)) {
			t.Errorf("%v is passing", err)
		}
	}
}
