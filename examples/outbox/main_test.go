package main_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	buildDir string
	program  = sync.OnceValues(func() (string, error) {
		var err error
		if buildDir, err = os.MkdirTemp("", "outbox-test-"); err != nil {
			return "", err
		}
		file := filepath.Join(buildDir, "outbox")
		return file, exec.Command("go", "build", "-o", file, ".").Run() //nolint:gosec // the file is ours
	})
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(buildDir)
		os.Exit(code)
	}))
}

// once runs the program with -once and this value of EVENT_QUEUE_MAX_ATTEMPTS. It must leave no files.
func once(t *testing.T, attempts string) (stdout, stderr string, err error) {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, "-once") //nolint:gosec // built above
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "EVENT_QUEUE_MAX_ATTEMPTS="+attempts)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if left, dirErr := os.ReadDir(temp); dirErr != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, dirErr)
	}
	return out.String(), errs.String(), err
}

// Two orders have their events, one that was rolled back has none, and what is no event is dead_lettered and in nobody's way.
// The number of attempts is that of the environment, or the default.
//
// contract: D-06, O-01, O-04, O-07
func TestOnce(t *testing.T) {
	t.Parallel()
	for attempts, may := range map[string]string{"": "A row may fail 5 times", "3": "A row may fail 3 times"} {
		out, errs, err := once(t, attempts)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, errs, out)
		}
		before, after, found := strings.Cut(out, "\nA worker starts.")
		if !found {
			t.Fatal(out)
		}
		for _, want := range []string{
			"order A-1 was committed\n", "order A-2 was committed\n", "order A-3 was rolled back: an order must cost something\n",
			"row 1: shop.order.placed is pending\n", "row 2: shop.order.placed is pending\n", "deliveries: 0\n", may,
		} {
			if strings.Count(before, want) != 1 {
				t.Errorf("%q is not there once before the worker starts:\n%s", want, out)
			}
		}
		for _, want := range []string{
			"mailer.receipt got order A-1\n", "mailer.receipt got order A-2\n", "row 1: shop.order.placed is done\n",
			"row 2: shop.order.placed is done\n", "row 3: shop.order.placed is dead_lettered (loam: invalid payload: ", "deliveries: 2\n",
		} {
			if strings.Count(after, want) != 1 {
				t.Errorf("%q is not there once after the worker has started:\n%s", want, out)
			}
		}
		if strings.Contains(after, "A-3") || strings.Count(out, "event_queue row") != 5 {
			t.Errorf("there is more:\n%s", out)
		}
	}
}

// A bad value in the environment is named, with what is allowed, and nothing is begun.
//
// contract: O-04
func TestBadEnvironment(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"many", "0", "-1", "2.5", " "} {
		out, errs, err := once(t, value)
		want := `EVENT_QUEUE_MAX_ATTEMPTS: "` + value + `" is not a whole number of 1 or more; leave it out for 5`
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: %v\n%s%s\nwant %s", value, err, out, errs, want)
		}
	}
}
