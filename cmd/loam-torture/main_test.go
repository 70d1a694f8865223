package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/pgserver"
)

// built is where the program is.
var built string

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(built)
		os.Exit(code)
	}))
}

// program builds the program once, without the race detector: SQLite, which is C translated to Go, is some thirty times slower
// under it.
var program = sync.OnceValues(func() (file string, err error) {
	if built, err = os.MkdirTemp("", "loam-torture-"); err != nil {
		return "", err
	}
	file = filepath.Join(built, "loam-torture")
	if out, err := exec.Command("go", "build", "-race=false", "-o", file, ".").CombinedOutput(); err != nil { //nolint:gosec // this program
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return file, nil
})

func build(t *testing.T) string {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Nearly half a minute of it: nothing is lost, no two runs overlap, and there were attacks.
//
// contract: D-06, D-17, D-20, D-23, E-10, L-02, L-03, L-08, O-01, O-05, S-03
// scenario: B013, B048, B050, B051, B092, B098
func TestTorture(t *testing.T) { //nolint:paralleltest // one after the other: they need the machine, and their time limits are real
	program := build(t)
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} { //nolint:paralleltest // see above
		t.Run(string(kind), func(t *testing.T) {
			server := ""
			if kind == database.PostgreSQL {
				server = dbtest.Server(t)
			}
			tortured(t, program, string(kind), server, "-for", "25s").hard(t)
		})
	}
}

// figures are those of a verdict that a test has its own limits for.
type figures struct {
	attacked     int           // deliveries that were made when the attacks ended
	recovery     time.Duration // the longest
	kills, stops int
	said         string // on standard output
}

// hard checks that there were attacks. A short run has time for few, and chance decides which.
func (f figures) hard(t *testing.T) {
	t.Helper()
	if !testing.Short() && (f.kills < 5 || f.stops < 1) {
		t.Errorf("%d kills, %d stops: want at least 5, and 1", f.kills, f.stops)
	}
}

// tortured runs the program, with more flags, and checks its verdict.
func tortured(t *testing.T, program, kind, server string, more ...string) figures {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"-database", kind, "-dir", dir}, more...)
	if testing.Short() {
		args = append(args, "-for", "5s")
	}
	cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // built above
	cmd.Env = append(os.Environ(), serverEnv+"="+server)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s%s", err, stdout.String(), stderr.String(), saved(t, dir))
	}
	said := regexp.MustCompile(`events through event_queue: (\d+); in the books: (\d+)\n`).FindStringSubmatch(stdout.String())
	if said == nil || !testing.Short() && (said[1] == "0" || said[2] == "0") {
		t.Errorf("%q: none were captured through event_queue, or came to the transactional subscriber", said)
	}
	lines := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
	last := lines[len(lines)-1]
	var events, killed, stopped, repeats, lost, overlaps, refused, deliveries, attacked int
	var recovery string
	n, err := fmt.Sscanf(last, "events=%d kills=%d stops=%d repeats=%d lost=%d overlaps=%d refused=%d recovery_max=%s",
		&events, &killed, &stopped, &repeats, &lost, &overlaps, &refused, &recovery)
	if err != nil || n != 8 {
		t.Fatalf("the last line is %q (%v)", last, err)
	}
	took, err := time.ParseDuration(recovery)
	if err != nil {
		t.Errorf("recovery_max: %v", err)
	}
	if n, err := fmt.Sscanf(lines[len(lines)-2], "deliveries=%d attacked=%d", &deliveries, &attacked); err != nil || n != 2 || deliveries < attacked {
		t.Errorf("the line before the last is %q (%v)", lines[len(lines)-2], err)
	}
	if lost != 0 || overlaps != 0 || events < 20 {
		t.Errorf("%s; want at least 20 events", last)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v (%v)", left, err)
	}
	t.Log(stdout.String())
	return figures{attacked, took, killed, stopped, stdout.String()}
}

// All goes through a broker, which is killed and suspended as well, while relays send and consumers receive: some seconds of it, and
// a minute at night. The stream has every event once.
//
// contract: D-17, N-01, N-06, O-01, O-03, O-05
// scenario: B104, B110
func TestTortureWithBroker(t *testing.T) { //nolint:paralleltest // see TestTorture; both databases at once, for there is more waiting in it
	program := build(t)
	length := "5s"
	if os.Getenv("LOAM_NIGHTLY") == "1" {
		length = "60s"
	}
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := ""
			if kind == database.PostgreSQL {
				server = dbtest.Server(t)
			}
			got := tortured(t, program, string(kind), server, "-for", length, "-rate", "30", "-capture", "nats")
			if !strings.Contains(got.said, "broker killed ") || !strings.Contains(got.said, "broker frozen ") {
				t.Error("the broker was not attacked")
			}
			var stream, queue int
			_, after, _ := strings.Cut(got.said, "events through event_queue: ")
			if _, err := fmt.Sscanf(after, "%d", &queue); err != nil {
				t.Error(err)
			}
			_, after, _ = strings.Cut(got.said, "messages in the stream: ")
			if _, err := fmt.Sscanf(after, "%d", &stream); err != nil || stream != queue || queue < 20 {
				t.Errorf("%d messages in the stream, %d events in event_queue (%v)", stream, queue, err)
			}
		})
	}
}

// Three workers and two publishers, killed, suspended and cut off at random, and the server itself is restarted twice in the middle,
// as after a crash: a minute of it at night, in which 20,000 deliveries are made, and half a minute otherwise. What was cut runs
// again within two minutes.
//
// contract: J-04, L-08, M-02
// scenario: B074
func TestTortureWithRestarts(t *testing.T) { //nolint:paralleltest // see TestTorture
	program, server := build(t), pgserver.Start(t)
	length, least := 30*time.Second, 3000
	if os.Getenv("LOAM_NIGHTLY") == "1" {
		length, least = time.Minute, 20_000
	}
	restarts, began, over := 0, time.Now(), make(chan struct{})
	var restarting sync.WaitGroup
	restarting.Go(func() {
		for range 2 {
			select {
			case <-time.After(length / 3):
				server.Down()
				server.Up()
				if time.Since(began) < length { // it was in the middle
					restarts++
				}
			case <-over:
				return
			}
		}
	})
	end := sync.OnceFunc(func() { close(over); restarting.Wait() })
	defer end()
	got := tortured(t, program, "postgres", server.URL(), "-for", length.String(), "-rate", "160", "-crowd", "28")
	end()
	got.hard(t)
	if got.attacked < least || restarts != 2 {
		t.Errorf("%d deliveries were made in the attacks, and %d restarts of the server: want at least %d, and 2", got.attacked, restarts, least)
	}
	if got.recovery > 2*time.Minute {
		t.Errorf("what was cut began again after %v, want two minutes at most", got.recovery)
	}
}

// saved keeps the evidence of a failed run from the end of the test, and says where.
func saved(t *testing.T, dir string) string {
	t.Helper()
	to, err := os.MkdirTemp("", "loam-torture-failed-") //nolint:usetesting // it must outlive the test
	if err == nil {
		err = os.CopyFS(to, os.DirFS(dir))
	}
	return fmt.Sprintf("\nthe files of %s are in %s (%v)", dir, to, err)
}

// Bad flags are all named, with what is allowed, and nothing is begun.
func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-for", "1s"}, []string{"-for: 1s is too short, at least 3s are needed"}},
		{[]string{"-for", "soon"}, []string{"-for"}},
		{[]string{"-database", "oracle"}, []string{`-database: "oracle" is not known, it must be one of: postgres, sqlite`}},
		{[]string{"-dir", "/does/not/exist"}, []string{"-dir: stat /does/not/exist"}},
		{[]string{"-dir", os.Args[0]}, []string{"is not a directory"}},
		{[]string{"-seed", "-1"}, []string{"-seed"}},
		{[]string{"-capture", "all"}, []string{`-capture: "all" is not known, it must be one of: direct, outbox, both, nats`}},
		{[]string{"-rate", "0"}, []string{"-rate: 0 is not between 2 and 1000"}},
		{[]string{"-crowd", "41"}, []string{"-crowd: 41 is not between 0 and 40"}},
		{[]string{"-shake"}, []string{"-shake"}},
		{[]string{"-for", "0s", "-database", "", "go"}, []string{"-for: 0s", `-database: ""`, `unknown argument "go"`}},
	} {
		var stdout, stderr bytes.Buffer
		if code := command(t.Context(), c.args, &stdout, &stderr); code != 2 || stdout.Len() != 0 {
			t.Errorf("%q: exit %d, want 2\n%s", c.args, code, stdout.String())
		}
		for _, want := range c.want {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%q: %q is not said:\n%s", c.args, want, stderr.String())
			}
		}
	}
	var stdout, stderr bytes.Buffer
	if code := command(t.Context(), []string{"-help"}, &stdout, &stderr); code != 0 || !strings.Contains(stderr.String(), "-database kind") {
		t.Errorf("-help: exit %d\n%s", code, stderr.String())
	}
}

// An unexpected end of the input of a child is not waited for: a child without orders says so.
func TestChildWithoutOrders(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), build(t)) //nolint:gosec // built above
	cmd.Env = append(os.Environ(), childEnv+"=nonsense")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "orders:") {
		t.Errorf("%v\n%s", err, out)
	}
}
