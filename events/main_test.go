package events_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/openloam/loam/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limits are those of a publish with a payload of at most n bytes.
func limits(n int) events.Limits {
	return events.Limits{PayloadBytes: n, Depth: events.DefaultMaxDepth}
}
