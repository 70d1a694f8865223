// Package txmark marks a context as being inside a transaction of a database.
//
// The mark is only a mark: the transaction itself is always an argument. It exists so that a call that would open a
// second transaction can refuse at once instead of waiting for SQLite's one write connection, which its own caller
// holds.
package txmark

import (
	"context"
	"errors"
)

// ErrInTransaction is what a call returns that would open a second transaction.
var ErrInTransaction = errors.New("loam: this context is inside a transaction, and the call would open a second one and " +
	"wait for ever: pass the transaction (PublishTx), or call after it has ended")

type key struct{ db any }

// With returns a context that is marked as inside a transaction of db.
func With(ctx context.Context, db any) context.Context {
	return context.WithValue(ctx, key{db}, true)
}

// In reports whether ctx carries the mark for db.
func In(ctx context.Context, db any) bool {
	return ctx.Value(key{db}) != nil
}
