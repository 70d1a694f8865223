// Command loam-torture attacks Loam's guarantees with real processes over a real database, and says whether they held.
//
//	go run ./cmd/loam-torture -for 30s -database sqlite
//
// It starts publishers and workers (itself, as children), which use the public API as an application does, kills them,
// suspends them past their leases, fills the disk, shifts clocks and deletes jobs, all at random; with -capture nats also the
// broker between them. Then it lets everything
// settle and compares the database with what the processes have written down about themselves, in files of their own. The last line is the verdict; docs/guarantees.md says how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if env := os.Getenv(childEnv); env != "" {
		os.Exit(childMain(env))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the command's flags.
type options struct {
	length   time.Duration
	database string
	capture  string
	rate     int
	crowd    int
	dir      string
	judge    string
	seed     uint64
	keep     bool
	verbose  bool
}

// How events are captured (loam.Capture).
const (
	captureDirect = "direct"
	captureOutbox = "outbox"
	captureBoth   = "both"
	// captureNATS is outbox with a bus.
	captureNATS = "nats"
)

var captures = []string{captureDirect, captureOutbox, captureBoth, captureNATS}

// shortest is the shortest run that makes sense: the processes must come up and be attacked.
const shortest = 3 * time.Second

// Two processes publish, each one event after the other.
const leastRate, mostRate = 2, 1000

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("loam-torture", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&o.length, "for", 30*time.Second, "how long to attack; what follows takes up to two minutes more")
	fs.StringVar(&o.database, "database", "sqlite", "the `kind` of database: "+strings.Join(backendNames(), ", "))
	fs.StringVar(&o.capture, "capture", captureBoth, "how events are captured, the `mode`: "+strings.Join(captures, ", ")+
		" (both: by turns, so that processes of either kind work side by side; nats: outbox, and through a broker)")
	fs.IntVar(&o.rate, "rate", 60, "how many `events` a second to publish, while the workers keep up")
	fs.IntVar(&o.crowd, "crowd", 0, "how many more `subscribers` every event has that nearly always succeed: for more deliveries")
	fs.StringVar(&o.dir, "dir", "", "where to put the database and the files, in a new `directory` (default: the system's temporary one)")
	fs.Uint64Var(&o.seed, "seed", 0, "the `number` that the attacks are drawn with (default: a new one)")
	fs.StringVar(&o.judge, "judge", "", "judge the files of an earlier run on SQLite again, in this `directory`, instead of a run")
	fs.BoolVar(&o.keep, "keep", false, "keep the database and the files of a run that went well, too")
	fs.BoolVar(&o.verbose, "v", false, "say each attack on standard error")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q: there are only flags", fs.Arg(0)))
	}
	if o.length < shortest {
		errs = append(errs, fmt.Errorf("-for: %v is too short, at least %v are needed", o.length, shortest))
	}
	if o.rate < leastRate || o.rate > mostRate {
		errs = append(errs, fmt.Errorf("-rate: %d is not between %d and %d", o.rate, leastRate, mostRate))
	}
	if o.crowd < 0 || o.crowd > mostCrowd {
		errs = append(errs, fmt.Errorf("-crowd: %d is not between 0 and %d", o.crowd, mostCrowd))
	}
	if backends[o.database] == nil {
		errs = append(errs, fmt.Errorf("-database: %q is not known, it must be one of: %s", o.database, strings.Join(backendNames(), ", ")))
	}
	if !slices.Contains(captures, o.capture) {
		errs = append(errs, fmt.Errorf("-capture: %q is not known, it must be one of: %s", o.capture, strings.Join(captures, ", ")))
	}
	if o.dir != "" {
		if info, err := os.Stat(o.dir); err != nil {
			errs = append(errs, fmt.Errorf("-dir: %w", err))
		} else if !info.IsDir() {
			errs = append(errs, fmt.Errorf("-dir: %s is not a directory", o.dir))
		}
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	err := errors.Join(errs...)
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return o, err
}

// command returns the exit code: 0 when every guarantee held, 1 when one did not or the run could not be made, 2 for bad
// flags.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	run := torture
	if o.judge != "" {
		run = judgeAgain
	}
	v, err := run(ctx, o, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "loam-torture:", err)
		return 1
	}
	fmt.Fprintln(stdout, v.deliveries())
	fmt.Fprintln(stdout, v.line())
	if !v.good() {
		return 1
	}
	return 0
}
