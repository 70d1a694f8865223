package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

// backlogLimit is how many pending deliveries and events make publishers wait, without a crowd, so that the end can be reached.
const backlogLimit = 1500

// publish publishes until ctx ends, at about the rate it was given.
func (c *child) publish(ctx context.Context) error {
	if c.Publish == 0 {
		return nil
	}
	if c.After != 0 {
		left, err := unresolved(c.Dir, c.After)
		if err != nil {
			return err
		}
		for _, id := range left {
			if draw(2, id.String(), "again") == 0 { // the others stay what they are: there, or not
				c.publishUntilDone(ctx, id)
			}
		}
	}
	pace := time.NewTicker(time.Second / time.Duration(c.Publish))
	defer pace.Stop()
	var looked time.Time
	full := false
	for {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return nil
		}
		if time.Since(looked) > time.Second {
			looked = time.Now()
			var n int
			err := c.db.Read().QueryRowContext(ctx, `SELECT (SELECT count(*) FROM event_deliveries WHERE status = 'pending')
				+ (SELECT count(*) FROM event_queue WHERE status = 'pending')`).Scan(&n)
			full = err == nil && n > backlogLimit+crowdBacklog*c.Crowd
		}
		if full {
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		c.publishUntilDone(ctx, id)
	}
}

// errUndone rolls back.
var errUndone = errors.New("rolled back on purpose")

// publishUntilDone publishes an event, again with the same id for as long as there is an error.
func (c *child) publishUntilDone(ctx context.Context, id uuid.UUID) {
	p := plan(id)
	tctx, way := tenant.With(ctx, p.tenant), c.ways[0]
	for ctx.Err() == nil {
		c.diary.add("t", id, way.capture)
		err := publishOnce(tctx, way.engine, id, p)
		switch {
		case err == nil && p.kind == undone:
			c.diary.add("v", "a transaction that was to be rolled back was committed:", id)
			return
		case errors.Is(err, errUndone):
			c.diary.add("u", id)
			return
		case err == nil:
			c.diary.add("k", id, way.capture)
			if p.kind != twice {
				return
			}
			p.kind, way = direct, c.ways[1] // once more, the other way: a relay may be at it
			continue
		case ctx.Err() == nil && !passing(err):
			c.diary.add("v", "publishing", id, "failed:", err)
			return
		}
		c.diary.add("f", id, errorWord(err))
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func publishOnce(ctx context.Context, engine *loam.Engine, id uuid.UUID, p planned) error {
	if !p.ownRow() {
		return engine.Publish(ctx, p.name, payload(id), events.WithID(id.String()))
	}
	return engine.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO torture_orders (id, tenant) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, id.String(), p.tenant); err != nil {
			return err
		}
		if err := engine.PublishTx(ctx, tx, p.name, payload(id), events.WithID(id.String())); err != nil {
			return err
		}
		if p.kind == undone {
			return errUndone
		}
		return nil
	})
}

// passing reports whether err is of the attacks: the database could not be written just then.
func passing(err error) bool {
	err = database.Explain(err)
	return database.Unavailable(err) || errors.Is(err, database.ErrConflict)
}

func errorWord(err error) string {
	switch {
	case errors.Is(err, database.ErrFull):
		return "full"
	case errors.Is(err, database.ErrBusy):
		return "busy"
	case errors.Is(err, database.ErrWait):
		return "wait"
	case errors.Is(err, database.ErrUnreachable):
		return "unreachable"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return err.Error()
}
