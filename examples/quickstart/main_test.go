package main_test

import (
	"bytes"
	"context"
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
		if buildDir, err = os.MkdirTemp("", "quickstart-test-"); err != nil {
			return "", err
		}
		file := filepath.Join(buildDir, "quickstart")
		return file, exec.Command("go", "build", "-o", file, ".").Run() //nolint:gosec // the file is ours
	})
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(buildDir)
		os.Exit(code)
	}))
}

// command is the program with these arguments; temporary files go to a directory of the test.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, temp string) {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err)
	}
	temp = t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, file, args...) //nolint:gosec // built above
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	return cmd, temp
}

// row is a line of a table.
type row struct{ tenant, event, subscriber, status, attempts string }

// table returns the rows of the table with this title.
func table(t *testing.T, out, title string) []row {
	t.Helper()
	_, after, found := strings.Cut(out, "== "+title+"\n")
	if !found {
		t.Fatalf("no table %q in:\n%s", title, out)
	}
	text, _, _ := strings.Cut(after, "\n\n")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if head := strings.Join(strings.Fields(lines[0]), " "); head != "TENANT EVENT SUBSCRIBER STATUS ATTEMPTS LAST ERROR" {
		t.Fatalf("the table's head is %q", head)
	}
	var rows []row
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if len(f) < 5 {
			t.Fatalf("a row is %q", line)
		}
		rows = append(rows, row{f[0], f[1], f[2], f[3], f[4]})
	}
	return rows
}

// same checks that the table has each delivery of both tenants times over, and nothing else: the handlers' states as given.
func same(t *testing.T, what string, rows []row, times int, states map[string][2]string) map[row]int {
	t.Helper()
	got := map[row]int{}
	for _, r := range rows {
		got[r]++
	}
	for _, tenant := range []string{"acme", "globex"} {
		for _, event := range []string{"billing.invoice.paid", "billing.invoice.voided"} {
			for key, s := range states {
				r := row{tenant, event, key, s[0], s[1]}
				if got[r] != times {
					t.Errorf("%s: %d rows %v, want %d", what, got[r], r, times)
				}
				delete(got, r)
			}
		}
	}
	return got
}

// The story, twice over one file: the first table has what is delivered, delivered after two failures, and dead after three;
// the last has everything delivered. The second run finds the rows of the first, and changes none of them.
//
// contract: D-08, D-10, A-03
func TestOnceTwice(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kept.db")
	broken := map[string][2]string{
		"mailer.receipt": {"delivered", "0"}, "crm.sync": {"delivered", "2"}, "warehouse.export": {"dead", "3"},
	}
	repaired := map[string][2]string{
		"mailer.receipt": {"delivered", "0"}, "crm.sync": {"delivered", "2"}, "warehouse.export": {"delivered", "0"},
	}
	for run := 1; run <= 2; run++ {
		cmd, temp := command(t, "-once", "-db", file)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		began := time.Now()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("run %d: %v\n%s\n%s", run, err, errs.String(), out)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("run %d took %v", run, took)
		}
		first := table(t, string(out), "All deliveries: one handler is broken")
		if run == 1 {
			if rest := same(t, "the first table", first, 1, broken); len(rest) > 0 {
				t.Errorf("the first table has more: %v", rest)
			}
		} else if len(first) != 24 {
			t.Errorf("the first table of the second run has %d rows, want those of both runs", len(first))
		}
		if rest := same(t, "the last table", table(t, string(out), "All deliveries: nothing is dead"), run, repaired); len(rest) > 0 {
			t.Errorf("the last table has more: %v", rest)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("temporary files are left: %v, %v", left, err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the database was not kept: %v", err)
	}
}

// Without -db nothing is left behind, and Ctrl-C is a good end: in the middle of the story, and after it.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]string{"in the story": "== Publish", "after it": "One event a second"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, temp := command(t)
			cmd.Dir = t.TempDir()
			out, errs := &watched{want: when, seen: make(chan struct{})}, &bytes.Buffer{}
			cmd.Stdout, cmd.Stderr = out, errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-out.seen:
			case err := <-ended:
				t.Fatalf("it ended by itself: %v", err)
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("after Ctrl-C: %v\n%s", err, errs.String())
			}
			for _, dir := range []string{temp, cmd.Dir} {
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("files are left: %v, %v", left, err)
				}
			}
		})
	}
}

// watched closes seen when the text has come.
type watched struct {
	want string
	text bytes.Buffer
	seen chan struct{}
	once sync.Once
}

func (w *watched) Write(p []byte) (int, error) {
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}
