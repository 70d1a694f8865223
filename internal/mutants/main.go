// Command mutants puts faults into the code, one at a time, and runs the tests that should catch each. The tree is not
// touched: go test is given a changed copy of one file. It prints a table, and fails if a fault survives, if its place is
// no longer found, or if it does not compile.
//
//	go run ./internal/mutants          all of them
//	go run ./internal/mutants token    those whose name contains "token"
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// mutant is a fault: in a file, old becomes new, wherever it stands.
type mutant struct {
	name     string
	file     string
	old, new string
	// pkg and run name the tests that should catch it. They run on SQLite, which is quicker to set up, unless what is broken
	// can be seen on PostgreSQL only.
	pkg, run string
	postgres bool
}

// serverEnv has the URL of the PostgreSQL server of the tests.
const serverEnv = "LOAM_TEST_POSTGRES"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // the program's own
	defer stop()
	only := strings.Join(os.Args[1:], " ")
	survivors, err := runAll(ctx, only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

func runAll(ctx context.Context, only string) (survivors int, err error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var table strings.Builder
	table.WriteString("FAULT\tIN\tCAUGHT BY\tSECONDS\n")
	caught := 0
	for _, m := range mutants {
		if !strings.Contains(m.name, only) {
			continue
		}
		began := time.Now()
		by, err := m.test(ctx, dir)
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.name, err)
		}
		if len(by) == 0 {
			survivors++
			by = []string{"NOTHING: IT SURVIVES"}
		} else {
			caught++
		}
		fmt.Fprintf(&table, "%s\t%s\t%s\t%.0f\n", m.name, m.file, strings.Join(by, ", "), time.Since(began).Seconds())
		fmt.Fprintf(os.Stderr, "%s: %s\n", m.name, strings.Join(by, ", "))
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, err = fmt.Fprintf(out, "%s\n%d caught, %d survive\n", table.String(), caught, survivors)
	return survivors, errors.Join(err, out.Flush())
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// test returns the tests that fail with the fault.
func (m mutant) test(ctx context.Context, dir string) ([]string, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(text), m.old) {
		return nil, errors.New("its place is no longer in " + m.file + "; change the list")
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	here, err := filepath.Abs(m.file)
	if err != nil {
		return nil, err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{here: changed}})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		os.WriteFile(changed, []byte(strings.ReplaceAll(string(text), m.old, m.new)), 0o600), //nolint:gosec // the list below
		os.WriteFile(overlay, replace, 0o600),
	); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	test := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout=120s", "-run", m.run, m.pkg) //nolint:gosec // the list below
	switch server := os.Getenv(serverEnv); {
	case !m.postgres:
		test.Env = append(os.Environ(), serverEnv+"=")
	case server == "":
		return nil, errors.New("it needs PostgreSQL: run make postgres, and set " + serverEnv + " as it says")
	}
	out, err := test.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		if strings.Contains(string(out), "no tests to run") {
			return nil, fmt.Errorf("%s has no test %s", m.pkg, m.run)
		}
		return nil, nil
	case ctx.Err() != nil || !errors.As(err, &exit):
		return nil, errors.Join(err, ctx.Err())
	case strings.Contains(string(out), "build failed") || strings.Contains(string(out), "setup failed"):
		return nil, fmt.Errorf("it does not compile:\n%s", out)
	}
	var by []string
	for _, f := range failed.FindAllStringSubmatch(string(out), -1) {
		by = append(by, f[1])
	}
	if len(by) == 0 { // a panic or the time limit
		return []string{"a run that ends: " + firstLine(string(out))}, nil
	}
	return by, nil
}

func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return strings.TrimSpace(line)
		}
	}
	return "no test's name"
}
