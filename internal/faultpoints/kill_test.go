package faultpoints_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
)

// contract: D-04, D-06, D-07, D-08, D-09, D-10, D-20, D-25, J-01, J-03, S-03, L-02, L-03, L-08. A real process is killed at every
// point, after a commit too. What it leaves is looked at before anybody goes on: nothing that is pending is without a wake-up
// or a claim. Then another process brings everything to its end.
func TestEveryKill(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, faults *dbtest.Faults) {
		points := listed(t, open(t, db, faults))
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
		empty := template(t, db.Dialect())
		sum := &summary{points: points}
		sum.walk(t, workers, tasks, func() func(t *testing.T, k task) []finding {
			return func(t *testing.T, k task) []finding { return kill(t, empty, k) }
		})
		sum.print(t)
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

// kill has a child killed at a point, and returns what that has broken.
func kill(t *testing.T, empty dbtest.Place, k task) []finding {
	t.Helper()
	dir, at := t.TempDir(), dbtest.Copy(t, empty)
	died(t, order{
		Dir: dir, Place: at, Part: k.p.part, Kind: k.p.kind, Text: k.p.text, N: k.p.n, Inside: k.p.inside, InsideAfter: k.p.insideAfter,
		After: k.f.when() == after,
	})
	db, faults := dbtest.OpenPlace(t, at)
	d := openDiary(t, dir)
	w := newWorld(t, handles{db, faults, db}, restart(d.entries(t)), d)
	w.note(entry{What: "killed"})
	found := w.frozen()
	w.settle(true)
	w.redeliverDead(true)
	return append(found, w.check(false)...)
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
