package database_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/openloam/loam/database"
)

// stated is an error as PostgreSQL's driver makes them.
type stated string

func (s stated) Error() string    { return "driver says " + string(s) }
func (s stated) SQLState() string { return string(s) }

// What the database refuses for what it was asked is told from what it could not do, and from an answer that did not come.
func TestRejected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("lost"), false},
		{context.Canceled, false},
		{stated("23503"), true},
		{stated("P0001"), true},
		{stated("40001"), false},
		{stated("40P01"), false},
		{stated("57P01"), false},
		{stated("53100"), false},
		{stated("1"), false},
		{coded(19), true},
		{coded(19 | 3<<8), true}, // SQLITE_CONSTRAINT_FOREIGNKEY
		{coded(13), false},
		{coded(5), false},
		{coded(1), false},
	} {
		if got := database.Rejected(database.Explain(c.err)); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
		if c.err == nil {
			continue
		}
		if got := database.Rejected(database.Explain(fmt.Errorf("commit: %w", c.err))); got != c.want {
			t.Errorf("%v, wrapped: %v", c.err, got)
		}
	}
}
