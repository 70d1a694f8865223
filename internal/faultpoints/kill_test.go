package faultpoints_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// contract: N-03, N-06, O-01, O-03, O-05, D-04, D-06, D-07, D-08, D-09, D-10, D-20, D-25, J-01, J-03, S-03, L-02, L-03, L-08. A real process is killed at every
// point, after a commit too. What it leaves is looked at before anybody goes on: nothing that is pending is without a wake-up
// or a claim. Then another process brings everything to its end.
func TestEveryKill(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		h := open(t, db, faults)
		empty := template(t, db.Dialect())
		each(t, func(t *testing.T, s *script) {
			points, _ := listed(t, s, h)
			var tasks []task
			for i, p := range points {
				if i%every != 0 {
					continue
				}
				tasks = append(tasks, task{p, kills{before}})
				if p.kind == "commit" {
					tasks = append(tasks, task{p, kills{after}})
				}
			}
			sum := &summary{points: points, parts: s.parts}
			sum.walk(t, workers, tasks, func() func(t *testing.T, k task) []finding {
				var kept handles
				if db.Dialect() == database.PostgreSQL {
					kept = openAnother(t, db)
				}
				return func(t *testing.T, k task) []finding { return kill(t, s, kept, empty, k) }
			})
			sum.print(t)
		})
	})
}

// template makes a database as the script needs it, to be copied.
func template(t *testing.T, kind database.Dialect) dbtest.Place {
	t.Helper()
	at := dbtest.Fresh(t, kind)
	t.Run("template", func(t *testing.T) {
		db, _ := dbtest.OpenPlace(t, at)
		tables(t, db)
	})
	return at
}

// kill has a child killed at a point, and returns what that has broken. On SQLite nobody else has the database open meanwhile,
// so that who comes next must recover it; a server does that by itself, and takes long to copy one: its database is kept.
func kill(t *testing.T, s *script, h handles, empty dbtest.Place, k task) []finding {
	t.Helper()
	dir, kept := t.TempDir(), h.sound != nil
	var at dbtest.Place
	if kept {
		clean(t, h.sound)
		at = dbtest.PlaceOf(t, h.sound)
	} else {
		at = dbtest.Copy(t, empty)
	}
	died(t, order{
		Dir: dir, Place: named(t, at), Script: s.name, Part: k.p.part, Kind: k.p.kind, Text: k.p.text, N: k.p.n, Inside: k.p.inside, InsideAfter: k.p.insideAfter,
		After: k.f.when() == after,
	})
	if kept {
		ended(t, h.sound)
	} else {
		db, faults := dbtest.OpenPlace(t, at)
		h = handles{db, faults, db}
	}
	d := openDiary(t, dir)
	w := newWorld(t, s, h, restart(d.entries(t)), d)
	w.note(entry{What: "killed"})
	found := w.frozen()
	w.settle(true)
	w.redeliverDead(true)
	return append(found, w.check(false)...)
}

// childName is what the sessions of a child are called at a server.
const childName = "loam_child"

// named is a place whose sessions are called that.
func named(t *testing.T, at dbtest.Place) dbtest.Place {
	t.Helper()
	if at.Dialect != database.PostgreSQL {
		return at
	}
	u, err := url.Parse(at.At)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", childName)
	u.RawQuery = q.Encode()
	return dbtest.Place{Dialect: at.Dialect, At: u.String()}
}

// ended waits until the server knows that the child is dead, and has let go of what that had locked.
func ended(t *testing.T, db *database.DB) {
	t.Helper()
	for left := 1; left > 0; time.Sleep(time.Millisecond) {
		rig.Scan(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`,
			[]any{childName}, &left)
	}
}

// died runs a child until it is killed, by itself.
func died(t *testing.T, o order) {
	t.Helper()
	out, err := child(t, o)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("the child ended with %v:\n%s", err, out)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child was not killed: %v\n%s", err, out)
	}
}

// child runs a child to its end, and returns what it said.
func child(t *testing.T, o order) ([]byte, error) {
	t.Helper()
	program, err := dbtest.ChildProgram()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program) //nolint:gosec // built above
	cmd.Dir = filepath.Dir(program)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	return cmd.CombinedOutput()
}
