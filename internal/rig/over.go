package rig

import (
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
)

// Over makes a process over a database in which New has made the tables of a rig before, on a handle of its own and by the
// clock that it is given: what is left of a process that was killed can be worked on.
func Over(t testing.TB, db *database.DB, clock *Clock, change ...func(*durable.Config)) *Rig {
	t.Helper()
	r := &Rig{T: t, DB: db, Clock: clock, Wakeups: &Wakeups{t: t, db: db}}
	r.build(change)
	return r
}
