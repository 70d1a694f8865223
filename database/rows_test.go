package database_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
)

// Rows gives back what it was given, row by row and in order, whatever the texts are.
func TestRows(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		first := []string{"a", "", `quoted " ' \\ {x,NULL}`, "NULL", "line\nend", "ü ☃ \U0001F600"}
		second := []string{"1", "2", "3", `{"n":1.0}`, "[]", ","}
		table, args := db.Dialect().Rows(2, first, second)
		found, err := db.Own().QueryContext(t.Context(), `SELECT CAST($1 AS TEXT), j.c0, j.c1 FROM `+table, append([]any{"x"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer found.Close()
		var got []string
		for found.Next() {
			var x, a, b string
			if err := found.Scan(&x, &a, &b); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s|%s|%s", x, a, b))
		}
		var want []string
		for i := range first {
			want = append(want, fmt.Sprintf("x|%s|%s", first[i], second[i]))
		}
		if found.Err() != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, found.Err(), want)
		}
	})
}
