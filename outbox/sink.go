package outbox

import (
	"context"
	"database/sql"
	"errors"
	"time"

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

// Bus is a broker that other services read too: a Sink, and a consumer of what it holds.
type Bus interface {
	Sink
	// Consume brings what the bus has for this service to in, until ctx ends; only then does it return. A process that works
	// deliveries calls it once. It connects by itself, again after every outage, and is silent but for one log line at the
	// begin of an outage and one at its end.
	Consume(ctx context.Context, in Inbox)
	// Away is since when Consume has not been able to receive, because the broker is away; zero if it can, or does not run.
	Away() time.Time
}

// Inbox is where a bus brings what it has for this service. It is safe for use by several goroutines.
type Inbox interface {
	// Receive commits the deliveries of events for this service's subscribers and returns for each event nil once they are
	// there, or why they are not: an error marked by Permanent (it never can be captured), by Unavailable (this service's own
	// database is away, which says nothing about the event), or any other, which spends an attempt. An event that comes again
	// adds nothing.
	Receive(ctx context.Context, evs []events.Event) []error
	// DeadLetter stores a message that is given up as a row that is dead_lettered, once, however often it is called. An error
	// marked by Unavailable says that the database is away; any other that it does not take this letter.
	DeadLetter(ctx context.Context, l Letter) error
	// Attempts is how often a message is received before it is given up: that of the rows of event_queue.
	Attempts() int
}

// Letter is a message that a bus could not bring, as it came.
type Letter struct {
	// Origin says where the bus has it, uniquely: a stream and a sequence.
	Origin string
	// EventID, EventType, TenantID, Payload and Headers (events.Headers as JSON) are what it said; what it did not is empty.
	EventID, EventType, TenantID, Payload, Headers string
	// Attempts is how often it was received.
	Attempts int
	// Why is the last error.
	Why error
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

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool { return errors.Is(err, errPermanent) }

// IsUnavailable reports whether err was marked by Unavailable.
func IsUnavailable(err error) bool { return errors.Is(err, errUnavailable) }

// Permanent marks the error of an event that a sink will never take: its row is dead_lettered at once.
func Permanent(err error) error { return marked{err, errPermanent} }

// Unavailable marks an error of the transport: it says nothing about the event, spends no attempt, and pauses the relay.
func Unavailable(err error) error { return marked{err, errUnavailable} }
