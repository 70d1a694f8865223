package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/outage"
)

// How a relay learns of new rows before it looks for them by itself: a commit of its own process nudges it. A process that
// does not relay sends a notice of PostgreSQL's, after the commit and for all its commits of the moment together: a notice in
// each transaction would have them commit one after the other.

// channel is where PostgreSQL is told of new rows, and notify how.
const (
	channel = "loam_event_queue"
	notify  = `SELECT pg_notify($1, '')`
)

const listening = "listening for rows of event_queue"

// tellLimit is the time limit of one notice.
const tellLimit = 5 * time.Second

type nudges struct {
	nudged chan struct{}
	relays atomic.Bool // this process does
	untold atomic.Bool // there are rows of which no notice was sent
	tells  atomic.Bool // a goroutine sends notices
}

// Nudge has the relay of this process look for rows soon. It never waits.
func (q *Queue) Nudge() {
	select {
	case q.nudged <- struct{}{}:
	default: // it is nudged
	}
}

// tell says that rows were committed. It never waits.
func (q *Queue) tell(ctx context.Context) {
	if q.relays.Load() {
		q.Nudge()
		return
	}
	if q.DB.Dialect() != database.PostgreSQL {
		return
	}
	q.untold.Store(true)
	if q.tells.CompareAndSwap(false, true) {
		go q.sendNotices(context.WithoutCancel(ctx))
	}
}

// sendNotices sends one for all that is untold, until nothing is.
func (q *Queue) sendNotices(ctx context.Context) {
	for {
		for q.untold.Swap(false) {
			limited, cancel := context.WithTimeout(ctx, tellLimit)
			_, err := q.DB.Own().ExecContext(limited, notify, channel)
			cancel()
			if err != nil { // relays look by themselves, too; and the process may have closed its database by now
				q.Logger.DebugContext(ctx, "relays were not told of rows of event_queue", slog.Any("error", err))
			}
		}
		q.tells.Store(false)
		if !q.untold.Load() || !q.tells.CompareAndSwap(false, true) {
			return
		}
	}
}

// Listen nudges the relay when another process has committed rows, until ctx ends. Only PostgreSQL says so; elsewhere it
// returns at once, and the relay looks every 500 ms.
func (q *Queue) Listen(ctx context.Context) {
	if q.DB.Dialect() != database.PostgreSQL {
		return
	}
	var log outage.Log
	for {
		err := q.DB.Notices(ctx, channel, func() {
			q.Nudge()
			log.Succeeded(ctx, q.Logger, listening)
		})
		if ctx.Err() != nil {
			return
		}
		log.Failed(ctx, q.Logger, listening, err)
		wait(ctx, time.Second, nil)
	}
}
