package model_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/internal/model"
)

var traces = flag.Bool("traces", false, "print the shortest way to what is wrong with each variant that fails")

// The protocol as it is must hold, and each variant that lacks a condition must fail, in the ways that its line says, and in
// no other. With -v it prints a line for each, with -traces the shortest ways to what is wrong.
func TestModel(t *testing.T) {
	t.Parallel()
	variants := model.Variants()
	lines := make([]string, len(variants))
	partial := make([]bool, len(variants))
	t.Run("variants", func(t *testing.T) {
		for k := range variants {
			v := &variants[k]
			t.Run(v.String(), func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				res := v.Explore(limit)
				lines[k] = fmt.Sprintf("%-64s %8d states %6d ms  %s", v, res.States, time.Since(began).Milliseconds(), verdict(&res))
				partial[k] = res.Partial
				if *traces && len(res.Found) > 0 {
					t.Log("\n" + strings.Join(res.Trace, "\n"))
				}
				if !right(v, &res) {
					t.Errorf("got %s, want %v; the shortest way to the first:\n%s", verdict(&res), v.Want, strings.Join(res.Trace, "\n"))
				}
			})
		}
	})
	t.Log("\n" + strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "\n"))
	if limit == 0 && slices.Contains(partial, true) {
		t.Error("not all states were looked at")
	}
}

// right: everything that was found is wanted, and all that is wanted was found, if all was looked at.
func right(v *model.Variant, res *model.Result) bool {
	for _, f := range res.Found {
		if !slices.Contains(v.Want, f) {
			return false
		}
	}
	return res.Partial || len(res.Found) == len(v.Want)
}

func verdict(res *model.Result) string {
	text := "holds"
	if len(res.Found) > 0 {
		text = fmt.Sprintf("%v", res.Found)
	}
	if res.Partial {
		return text + ", not all looked at"
	}
	return text
}

// Tests name variants by their numbers.
func TestNumbers(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for _, v := range model.Variants() {
		if seen[v.Number] || len(v.Name) == 0 {
			t.Errorf("number %d is there twice, or has no name", v.Number)
		}
		seen[v.Number] = true
	}
	for _, n := range []int{0, 5, 10, 15, 20, 26, 30, 31, 40, 42, 50, 53, 60, 63, 70, 73, 130, 135, 149, 160, 175, 182, 190, 197, 204, 210, 217, 224, 230} {
		if !seen[n] {
			t.Errorf("number %d is gone", n)
		}
	}
}
