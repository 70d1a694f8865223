package txmark_test

import (
	"context"
	"testing"

	"github.com/openloam/loam/internal/txmark"
)

// contract: E-16. The mark is of one database: a transaction of another is none of ours, and what is derived stays marked.
func TestMarkIsPerDatabase(t *testing.T) {
	t.Parallel()
	a, b := new(int), new(int)
	outer := t.Context()
	inA := txmark.With(outer, a)
	type key struct{}
	derived, cancel := context.WithCancel(context.WithValue(inA, key{}, 1))
	cancel()
	both := txmark.With(inA, b)
	for _, c := range []struct {
		name       string
		ctx        context.Context
		inA, marks bool
	}{
		{"outside", outer, false, false},
		{"in a", inA, true, false},
		{"derived from a's", derived, true, false},
		{"in both", both, true, true},
		{"without cancel", context.WithoutCancel(both), true, true},
	} {
		if gotA, gotB := txmark.In(c.ctx, a), txmark.In(c.ctx, b); gotA != c.inA || gotB != c.marks {
			t.Errorf("%s: in a %v, in b %v; want %v, %v", c.name, gotA, gotB, c.inA, c.marks)
		}
	}
}
