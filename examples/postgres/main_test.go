package main_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openloam/loam/internal/dburl"
)

const limit = 2 * time.Minute

var (
	buildDir string
	program  = sync.OnceValues(func() (string, error) {
		var err error
		if buildDir, err = os.MkdirTemp("", "postgres-test-"); err != nil {
			return "", err
		}
		file := filepath.Join(buildDir, "shop")
		return file, exec.Command("go", "build", "-o", file, ".").Run() //nolint:gosec // the file is ours
	})
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(buildDir)
		os.Exit(code)
	}))
}

// process is the program, or run.sh, over a database.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	out   *output
	errs  bytes.Buffer
	ended chan struct{}
	err   error
}

// start starts the program; it is killed at the end of the test if it still runs.
func start(t *testing.T, url string, args ...string) *process {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return startFile(t, file, url, args...)
}

func startFile(t *testing.T, file, url string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	p := &process{t: t, name: fmt.Sprint(args), out: newOutput(), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, file, args...) //nolint:gosec // built above
	p.cmd.Env = append(os.Environ(), dburl.Env+"="+url)
	p.cmd.Stdout, p.cmd.Stderr = p.out, &p.errs
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) } // run.sh then ends its processes
	p.cmd.WaitDelay = 10 * time.Second
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// says waits until the process has printed the text.
func (p *process) says(text string) {
	p.t.Helper()
	deadline := time.After(limit)
	for {
		found, changed := p.out.has(text)
		if found {
			return
		}
		select {
		case <-changed:
		case <-p.ended:
			if found, _ := p.out.has(text); !found {
				p.t.Fatalf("%s ended without %q: %v\n%s%s", p.name, text, p.err, p.out, &p.errs)
			}
		case <-deadline:
			p.t.Fatalf("%s does not say %q:\n%s", p.name, text, p.out)
		}
	}
}

// succeeds waits until the process has ended well, and returns what it printed.
func (p *process) succeeds() string {
	p.t.Helper()
	<-p.ended // at the latest when its time is over
	if p.err != nil || p.errs.Len() > 0 {
		p.t.Errorf("%s: %v\n%s%s", p.name, p.err, p.out, &p.errs)
	}
	return p.out.String()
}

// fails waits until the process has ended with exit code 1, and checks what it complained of.
func (p *process) fails(want string) {
	p.t.Helper()
	<-p.ended
	if p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.errs.String(), want) {
		p.t.Errorf("%s: %v, want %q\n%s%s", p.name, p.err, want, p.out, &p.errs)
	}
}

// output is what a process prints.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// has reports whether the text is there, and returns what is closed when there is more.
func (o *output) has(text string) (bool, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(o.text.String(), text), o.changed
}
