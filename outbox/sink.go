package outbox

import (
	"context"
	"database/sql"
	"errors"

	"github.com/openloam/loam/events"
)

// Capturer writes the deliveries of events and their wake-ups in tx. It returns for each event nil, or why it never can be
// captured; with err nothing of tx may be committed.
type Capturer interface {
	CaptureAll(ctx context.Context, tx *sql.Tx, evs []events.Event) (refused []error, err error)
}

// Sink is outside the database.
type Sink interface {
	// Send sends events and returns for each nil once it is safe there, or why it is not: an error marked by Permanent or
	// Unavailable, or any other, which spends an attempt. An event may come again with the same id. No transaction is open
	// meanwhile. It must return when ctx ends, which is before the claim on the events does.
	Send(ctx context.Context, evs []events.Event) []error
}

var (
	errPermanent   = errors.New("it is of no use to try again")
	errUnavailable = errors.New("the sink cannot be reached")
)

type marked struct {
	error
	mark error
}

func (m marked) Unwrap() []error { return []error{m.error, m.mark} }

// Permanent marks the error of an event that a sink will never take: its row is dead_lettered at once.
func Permanent(err error) error { return marked{err, errPermanent} }

// Unavailable marks an error of the transport: it says nothing about the event, spends no attempt, and pauses the relay.
func Unavailable(err error) error { return marked{err, errUnavailable} }
