package faultpoints_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// childEnv is set in a child: the order, as JSON, of what it is to do instead of running tests.
const childEnv = "LOAM_FAULTPOINT"

// order is what a child is told: to run the script over the database at Place, with its diary in Dir, and be killed at a point.
type order struct {
	Dir              string
	Place            dbtest.Place
	Script           string
	Part, Kind, Text string
	N                int
	Inside, After    bool // where the point is, and whether the kill comes after the operation
	InsideAfter      bool
	Engine           bool // an engine instead of the script; killed at its Nth operation, if N is not 0
}

// runChild is the main function of a child. Of the script, it is to be killed; returning is a failure.
func runChild(text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if o.Engine {
		if err := runEngine(o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	t := &childTB{}
	faulty, faults := dbtest.OpenPlace(t, o.Place)
	sound, _ := dbtest.OpenPlace(t, o.Place)
	s := scripts[slices.IndexFunc(scripts, func(s *script) bool { return s.name == o.Script })]
	w := newWorld(t, s, handles{faulty, faults, sound}, rig.NewClock(), openDiary(t, o.Dir))
	s.prepare(w)
	w.hook.arm(point{o.Part, o.Kind, o.Text, o.N, o.Inside, o.InsideAfter}, kills{moment(o.After)})
	w.hook.start()
	s.run(w)
	fmt.Fprintln(os.Stderr, "the point was not reached")
	return 1
}

// childTB is a testing.TB outside of a test.
type childTB struct{ testing.TB }

func (*childTB) Helper()                  {}
func (*childTB) Cleanup(func())           {} // the process is killed
func (*childTB) Context() context.Context { return context.Background() }
func (t *childTB) Error(args ...any)      { t.Fatal(args...) }
func (t *childTB) Errorf(format string, args ...any) {
	t.Fatal(fmt.Sprintf(format, args...))
}

func (t *childTB) Fatalf(format string, args ...any) {
	t.Fatal(fmt.Sprintf(format, args...))
}

func (*childTB) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}
