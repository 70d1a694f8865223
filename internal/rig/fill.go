package rig

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
)

// fillBatch keeps a statement short: SQLite looks for each parameter's name among those before it.
const fillBatch = 50

// Insert adds n rows to a table, many with each statement: row returns the values of the columns (separated by commas) for
// i = 1 to n.
func Insert(t testing.TB, db *database.DB, table, columns string, n int, row func(i int) []any) {
	t.Helper()
	err := db.InTx(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		for first := 1; first <= n; first += fillBatch {
			var text strings.Builder
			var args []any
			for i := first; i <= min(n, first+fillBatch-1); i++ {
				sep := ", ("
				if i == first {
					sep = "("
				}
				for _, value := range row(i) {
					args = append(args, value)
					fmt.Fprintf(&text, "%s$%d", sep, len(args))
					sep = ", "
				}
				text.WriteString(")")
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO `+table+` (`+columns+`) VALUES `+text.String(), args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Dump is every value that a query finds, a line for each row.
func Dump(t testing.TB, db *database.DB, query string, args ...any) string {
	t.Helper()
	rows, err := db.Read().QueryContext(context.Background(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		words := make([]string, len(columns))
		for i, v := range values {
			words[i] = word(v)
		}
		lines = append(lines, strings.Join(words, "|"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func word(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}
