package sweep

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/openloam/loam/database"
)

// Keep says how long rows are kept that are done with. Zero and less are for ever.
type Keep struct {
	// Delivered is for deliveries, since they were delivered.
	Delivered time.Duration
	// Processed is for the ledger's rows of handlers that are done with an event, since they were.
	Processed time.Duration
	// Outbox is for rows of event_queue that are done, since they were written.
	Outbox time.Duration
	// Dead is for dead deliveries, since their last change, and for rows of event_queue that are dead_lettered, since they
	// were written.
	Dead time.Duration
}

const (
	// pruneBatch is how many rows one transaction deletes at most.
	pruneBatch = 500
	// pruneFor is when Prune begins no further round: sweeps of this process, and its stop, wait for it.
	pruneFor = 2 * time.Second
)

// purge deletes the rows of one state of one table.
type purge struct {
	what string
	keep time.Duration
	// some deletes at most pruneBatch rows that are older than a time, and reports whether there may be more.
	some func(ctx context.Context, before time.Time) (n int64, more bool, err error)
}

// Prune deletes what is older than Config.Keep says, and nothing that is pending or in progress. It crosses tenants. The tables
// have their turns, each for one short transaction, after which Prune waits for as long as that took: half of the time is the
// others'. It ends after about two seconds; full says that there may be more. A table that fails is left for the next time,
// and does not keep the others from their turns; the error names it. Several processes may prune at once.
func (s *Sweeper) Prune(ctx context.Context) (full bool, err error) {
	now, end := s.cfg.Now(), time.Now().Add(pruneFor)
	var todo []purge
	for _, p := range s.purges() {
		if p.keep > 0 {
			todo = append(todo, p)
		}
	}
	deleted, errs := map[string]int64{}, []error(nil)
	for len(todo) > 0 && time.Now().Before(end) {
		var rest []purge
		for _, p := range todo {
			begun := time.Now()
			n, more, err := s.prune(ctx, p, now.Add(-p.keep))
			deleted[p.what] += n
			if err != nil {
				errs = append(errs, fmt.Errorf("prune %s: %w", p.what, err))
			} else if more {
				rest = append(rest, p)
			}
			if wait(ctx, time.Since(begun)) != nil {
				return true, errors.Join(append(errs, context.Cause(ctx))...)
			}
		}
		todo = rest
	}
	for what, n := range deleted {
		if n > 0 {
			s.cfg.Logger.InfoContext(ctx, "pruned: rows older than they are kept", slog.String("what", what), slog.Int64("rows", n))
		}
	}
	return len(todo) > 0, errors.Join(errs...)
}

func (s *Sweeper) prune(ctx context.Context, p purge, before time.Time) (n int64, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return p.some(ctx, before)
}

// wait waits for d, or until ctx ends, which is its error.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// purges are the rules. Each state is said by a literal, so that its partial index is taken.
func (s *Sweeper) purges() []purge {
	k := s.cfg.Keep
	stamp := func(t time.Time) any { return database.At(t) }
	millis := func(t time.Time) any { return database.Millis(t) }
	return []purge{
		{"delivered deliveries", k.Delivered, s.oldest("event_deliveries", "id", `status = 'delivered' AND delivered_at < $1`, "delivered_at", stamp)},
		// Not while a delivery is pending: the mark is what keeps its handler from a second run. That can be, when the subscriber is
		// paused, and the mark came from Once or from before the event was published again. As a value, and not as a join or
		// EXISTS, it is asked of the key of each row.
		{"what the ledger remembers", k.Processed, s.oldest("processed_events", "tenant_id, event_id, handler", `status = 'done' AND processed_at < $1
			AND coalesce((SELECT d.status FROM event_deliveries AS d WHERE d.tenant_id = r.tenant_id AND d.event_id = r.event_id
			    AND d.subscriber_key = r.handler), '') <> 'pending'`, "processed_at", millis)},
		{"done rows of event_queue", k.Outbox, s.oldest("event_queue", "id", `status = 'done' AND created_at < $1`, "created_at, id", stamp)},
		{"dead deliveries", k.Dead, s.oldestDead()},
		// They are few: their index has no time.
		{"dead_lettered rows of event_queue", k.Dead, s.oldest("event_queue", "id", `status = 'dead_lettered' AND created_at < $1`, "id", stamp)},
	}
}

// oldest deletes rows of a table that a condition finds, $1 being the time as the table has it, in an order that an index has.
// Rows that another transaction has locked, like those that another process is deleting, are left out.
func (s *Sweeper) oldest(table, key, where, order string, as func(time.Time) any) func(context.Context, time.Time) (int64, bool, error) {
	statement := s.deletion(table, key, where, order)
	return func(ctx context.Context, before time.Time) (int64, bool, error) {
		n, err := s.exec(ctx, statement, as(before))
		return n, n == pruneBatch, err
	}
}

// deletion is one statement for both databases. The limit is a literal: of a parameter PostgreSQL would expect a tenth of the
// table.
func (s *Sweeper) deletion(table, key, where, order string) string {
	return fmt.Sprintf(`WITH old AS MATERIALIZED (SELECT %[2]s FROM %[1]s AS r WHERE %[3]s ORDER BY %[4]s LIMIT %[5]d%[6]s)
		DELETE FROM %[1]s WHERE (%[2]s) IN (SELECT %[2]s FROM old)`, table, key, where, order, pruneBatch, s.cfg.DB.Dialect().LockFree("r"))
}

func (s *Sweeper) exec(ctx context.Context, statement string, args ...any) (n int64, err error) {
	err = s.cfg.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if s.cfg.DB.Dialect() == database.PostgreSQL {
			// While its statistics are behind, it expects few old rows, and would read and sort all of them for each batch.
			if _, err := tx.ExecContext(ctx, `SET LOCAL enable_sort = off`); err != nil {
				return err
			}
		}
		res, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}

// oldestDead goes from tenant to tenant, as their index does.
func (s *Sweeper) oldestDead() func(context.Context, time.Time) (int64, bool, error) {
	statement := s.deletion("event_deliveries", "id", `tenant_id = $2 AND status = 'dead' AND updated_at < $1`, "updated_at, id")
	done := "" // up to this tenant
	return func(ctx context.Context, before time.Time) (int64, bool, error) {
		t, err := s.nextDead(ctx, done, database.At(before))
		if err != nil || t == "" {
			return 0, false, err
		}
		n, err := s.exec(ctx, statement, database.At(before), t)
		if n < pruneBatch {
			done = t
		}
		return n, true, err
	}
}

// nextDead is the next tenant after the given one that has a delivery dead since before a time; "" if there is none. It reads
// two index entries for each tenant that has dead ones.
func (s *Sweeper) nextDead(ctx context.Context, after string, before database.Time) (id string, err error) {
	err = s.cfg.DB.Own().QueryRowContext(ctx, `WITH RECURSIVE t (id) AS (
			SELECT min(tenant_id) FROM event_deliveries WHERE status = 'dead' AND tenant_id > $1
			UNION ALL
			SELECT (SELECT min(tenant_id) FROM event_deliveries WHERE status = 'dead' AND tenant_id > t.id) FROM t WHERE t.id IS NOT NULL
		) SELECT id FROM t WHERE (SELECT updated_at FROM event_deliveries WHERE status = 'dead' AND tenant_id = t.id
			ORDER BY updated_at LIMIT 1) < $2 LIMIT 1`,
		after, before).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, database.Explain(err)
}
