package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/openloam/loam/database"
)

// State is how the queue is.
type State struct {
	// Waiting rows have not been taken by a relay; Oldest is when the first of them was written.
	Waiting int
	Oldest  time.Time
	// Deferred rows are pending and not due: they have failed, or the sink was away.
	Deferred int
	// DeadLettered rows wait for an operator.
	DeadLettered int
}

// countLimit is how far rows are counted.
const countLimit = 10_000

// State counts rows of all tenants, each kind up to 10,000.
func (q *Queue) State(ctx context.Context) (State, error) {
	var s State
	var oldest database.Time
	now := database.At(q.Now())
	count := func(where string) string {
		return fmt.Sprintf(`(SELECT count(*) FROM (SELECT 1 FROM event_queue WHERE %s LIMIT %d) AS n)`, where, countLimit)
	}
	err := q.DB.Own().QueryRowContext(ctx, `SELECT `+
		count(fresh)+` + `+
		count(tried+` <= $1`)+`, `+
		count(tried+` > $1`)+`, `+
		count(`status = 'dead_lettered'`)+`,
		(SELECT created_at FROM event_queue WHERE `+fresh+` ORDER BY id LIMIT 1)`, now).
		Scan(&s.Waiting, &s.Deferred, &s.DeadLettered, loose{&oldest})
	s.Oldest = oldest.Time
	return s, database.Explain(err)
}
