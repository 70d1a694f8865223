package loam_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// output is what a running program has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// readmeProgram is the first whole program of README.md.
func readmeProgram(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], "\nfunc main() {") {
			return block[1]
		}
	}
	t.Fatal("README.md has no block of Go with a main function")
	return ""
}

// The README's program, in a module of its own that needs this one: it builds, handles the event that it publishes and the
// one that it publishes in a transaction, and ends without an error at Ctrl-C.
//
// contract: D-01
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	module := strings.Replace(string(ours), "module "+mod, "module example.com/app", 1) +
		"\nrequire " + mod + " v0.0.0\n\nreplace " + mod + " => " + root + "\n"
	for name, text := range map[string]string{"main.go": readmeProgram(t), "go.mod": module, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "app", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the README's program does not build: %v\n%s", err, out)
	}

	var out, errs output
	app := exec.Command(filepath.Join(dir, "app")) //nolint:gosec // built above
	app.Dir, app.Stdout, app.Stderr = dir, &out, &errs
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Wait() }()
	t.Cleanup(func() { _ = app.Process.Kill() })
	until(t, 60*time.Second, "through with both events", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("the program has ended: %v\n%s%s", err, out.String(), errs.String())
		default:
		}
		return strings.Contains(out.String(), "receipt for invoice 42 of acme\n") &&
			strings.Contains(out.String(), "receipt for invoice 43 of acme\n")
	})
	if err := app.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after Ctrl-C: %v\n%s", err, errs.String())
		}
	case <-time.After(30 * time.Second):
		t.Error("the program does not end at Ctrl-C")
	}
	if n := strings.Count(out.String(), "receipt"); n != 2 {
		t.Errorf("%d receipts for two events:\n%s", n, out.String())
	}
}
