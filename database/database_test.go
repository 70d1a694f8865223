package database_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// coded is an error as SQLite's driver makes them.
type coded int

func (c coded) Error() string { return fmt.Sprintf("driver says %d", int(c)) }
func (c coded) Code() int     { return int(c) }

// The driver's codes, extended ones too, become errors that say what they mean, with the driver's own still inside.
func TestExplain(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]error{
		5: database.ErrBusy, 5 | 2<<8: database.ErrBusy, // SQLITE_BUSY_SNAPSHOT
		8: database.ErrReadOnly, 8 | 4<<8: database.ErrReadOnly,
		11: database.ErrNotADatabase, 26: database.ErrNotADatabase,
		13: database.ErrFull, 14: database.ErrCannotOpen, 14 | 2<<8: database.ErrCannotOpen,
	} {
		err := database.Explain(fmt.Errorf("insert: %w", coded(code)))
		var inner coded
		if !errors.Is(err, want) || !errors.As(err, &inner) || int(inner) != code || !strings.Contains(err.Error(), "insert: driver says") {
			t.Errorf("code %d: got %v, want %v with the driver's own", code, err, want)
		}
		if again := database.Explain(fmt.Errorf("publish: %w", err)); strings.Count(again.Error(), want.Error()) != 1 {
			t.Errorf("code %d is explained twice: %v", code, again)
		}
	}
	for _, err := range []error{nil, errors.New("x"), coded(1), coded(19), context.Canceled} {
		if got := database.Explain(err); got != err { //nolint:errorlint // the same value
			t.Errorf("%v became %v", err, got)
		}
	}
}

// New reports everything that is missing at once, each by its field.
func TestNewReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := database.New(database.Config{Dialect: "oracle"})
	for _, want := range []string{`Dialect: "oracle"`, "Write: ", "Read: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	pool := sql.OpenDB(fake{})
	t.Cleanup(func() { _ = pool.Close() })
	db, err := database.New(database.Config{Dialect: database.SQLite, Write: pool, Read: pool, Own: pool})
	if err != nil || db.Dialect() != "sqlite" || db.Write() != pool || db.Read() != pool {
		t.Errorf("a good Config: %v", err)
	}
}

// A list is one bound parameter, whatever its strings hold; an empty one matches nothing.
func TestLists(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		odd := []string{"a", "", `"`, `'; DROP TABLE x --`, `\`, "é 日本", "]", ",", "<&>", "\u2028"}
		rig.Exec(t, db, `CREATE TABLE words (n BIGINT, word TEXT)`)
		rig.Insert(t, db, "words", "n, word", len(odd)+1, func(i int) []any { return []any{i, append(odd, "other")[i-1]} })
		for _, ids := range [][]string{nil, {}, {"a"}, odd} {
			got := texts(t.Context(), t, db, `SELECT word FROM words WHERE `+db.Dialect().AnyOf("word", 1)+` ORDER BY n`, database.List(ids))
			if !slices.Equal(got, ids) {
				t.Errorf("of %q it finds %q", ids, got)
			}
		}
	})
}

// texts reads columns as text, "NULL" for NULL. SQLite's times are what is stored; PostgreSQL's get the same form.
func texts(ctx context.Context, t *testing.T, db *database.DB, query string, args ...any) []string {
	t.Helper()
	rows, err := db.Read().QueryContext(ctx, query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for rows.Next() {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			switch v := v.(type) {
			case nil:
				out = append(out, "NULL")
			case time.Time:
				out = append(out, v.UTC().Format("2006-01-02 15:04:05.000000"))
			default:
				out = append(out, fmt.Sprint(v))
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
