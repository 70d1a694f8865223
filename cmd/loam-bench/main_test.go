package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/dburl"
)

func TestMain(m *testing.M) {
	_ = os.Unsetenv(dburl.Env) // no test measures somebody's database
	goleak.VerifyTestMain(m)
}

// bench runs the command as it is typed.
func bench(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	root := command()
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(twoDashes(args))
	err = root.ExecuteContext(t.Context())
	if err == nil && errs.Len() > 0 {
		t.Errorf("%q logged:\n%s", args, errs.String())
	}
	return out.String(), err
}

// on are the flags that choose a kind. PostgreSQL is skipped where it is not tested.
func on(t *testing.T, kind database.Dialect) []string {
	t.Helper()
	args := []string{"-database", string(kind)}
	if kind == database.PostgreSQL {
		args = append(args, "-url", dbtest.Empty(t, kind).At)
	}
	return args
}

func forEach(t *testing.T, f func(t *testing.T, kind database.Dialect)) {
	t.Helper()
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f(t, kind)
		})
	}
}

// contract: J-04. The report is one line with the figures of as many events as were asked for, and with what they depend on.
func TestLatency(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, kind database.Dialect) {
		began := time.Now()
		out, err := bench(t, append([]string{"latency", "-events", "20", "-pause", "3ms", "-json"}, on(t, kind)...)...)
		if err != nil {
			t.Fatal(err)
		}
		took := float64(time.Since(began).Milliseconds())
		var r latencyReport
		dec := json.NewDecoder(strings.NewReader(out))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&r); err != nil || strings.Count(out, "\n") != 1 {
			t.Fatalf("not one line of JSON: %v\n%s", err, out)
		}
		if r.Benchmark != "latency" || r.Database != string(kind) || r.Events != 20 || r.PauseMS != 3 {
			t.Errorf("it is the report of something else: %s", out)
		}
		if r.Version == "" || r.Cores < 1 || !strings.HasPrefix(r.Go, "go") || !strings.Contains(r.System, "/") {
			t.Errorf("facts are missing: %s", out)
		}
		for _, f := range []times{r.times, r.Publish} {
			if !(0 < f.P50 && f.P50 <= f.P99 && f.P99 <= f.Max && f.Max < took) {
				t.Errorf("no figures of a run of %v ms: %s", took, out)
			}
		}
		if r.Late < 0 || r.Late > r.Events || (r.Late > 0) != (r.Max > 100) {
			t.Errorf("late is wrong: %s", out)
		}
	})
}

// Without -json the same is to be read.
func TestLatencyText(t *testing.T) {
	t.Parallel()
	out, err := bench(t, "latency", "--events=1", "--pause=0")
	if err != nil || !strings.HasPrefix(out, "sqlite 3.") || !strings.Contains(out, "\npublish to handler  p50 ") || !strings.Contains(out, " cores, go") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The database is new, and gone afterwards, also when the measurement was interrupted.
func TestFresh(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, kind database.Dialect) {
		for range 2 {
			target := target{kind: string(kind)}
			if kind == database.PostgreSQL {
				target.url = dbtest.Empty(t, kind).At
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			db, drop, err := target.fresh(ctx)
			if err != nil {
				t.Fatal(err)
			}
			name := `SELECT file FROM pragma_database_list WHERE name = 'main'`
			if kind == database.PostgreSQL {
				name = `SELECT current_database()`
			}
			var where string
			if _, err := db.Write().ExecContext(ctx, `CREATE TABLE x (y INTEGER)`); err != nil {
				t.Error(err)
			}
			if err := db.Own().QueryRowContext(ctx, name).Scan(&where); err != nil {
				t.Error(err)
			}
			cancel()
			if err := drop(); err != nil {
				t.Error(err)
			}
			if there(t, target, where) {
				t.Errorf("%s is still there", where)
			}
		}
	})
}

// there reports whether the database is there.
func there(t *testing.T, target target, where string) bool {
	t.Helper()
	if target.kind == string(database.SQLite) {
		_, err := os.Stat(where)
		return err == nil
	}
	server, err := target.server()
	if err != nil {
		t.Fatal(err)
	}
	db, err := server.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.Own().QueryRowContext(t.Context(), `SELECT count(*) FROM pg_database WHERE datname = $1`, where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"latency -database postgres", "LOAM_DATABASE_URL: is empty; "},
		{"latency -database postgres", "give --url postgres://USER@HOST:PORT/DATABASE, or the same in LOAM_DATABASE_URL"},
		{"latency -database postgres -url app.db", "--url: must begin with postgres://"},
		{"latency -database postgres -url postgres://me:secret@127.0.0.1:1/app", database.ErrUnreachable.Error()},
		{"latency -database sqlite -url postgres://me:secret@h/app", "--url is for --database postgres"},
		{"latency -database mysql", `--database: "mysql" is not known, it must be sqlite or postgres`},
		{"latency -events 0", "--events: is 0"},
		{"latency -pause -1s", "--pause: is -1s"},
		{"latency extra", "extra"},
		{"latenzy", "unknown command"},
	} {
		out, err := bench(t, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error()+out, "secret") {
			t.Errorf("%s: %v, want %q\n%s", c.args, err, c.want, out)
		}
	}
}

// A file of SQLite's is no server to measure PostgreSQL on.
func TestEnvironmentOfSQLite(t *testing.T) {
	t.Setenv(dburl.Env, "app.db")
	if _, err := bench(t, "latency", "-database", "postgres"); err == nil || !strings.Contains(err.Error(), "names a file of SQLite; to measure PostgreSQL give") {
		t.Error(err)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]times{1: {1, 1, 1}, 2: {1, 2, 2}, 100: {50, 99, 100}, 500: {250, 495, 500}, 101: {51, 100, 101}} {
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = time.Duration(n-i) * time.Millisecond
		}
		if got := timesOf(all); got != want || !slices.IsSorted(all) {
			t.Errorf("of %d: %v, want %v", n, got, want)
		}
	}
}

func TestTwoDashes(t *testing.T) {
	t.Parallel()
	got := twoDashes([]string{"latency", "-database", "postgres", "-h", "--json", "-pause", "-1s", "-events=5", "-", "--"})
	want := []string{"latency", "--database", "postgres", "-h", "--json", "--pause", "-1s", "--events=5", "-", "--"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
