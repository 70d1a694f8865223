package loam_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/tenant"
)

// dirEnv is the directory that a child and its parent share.
const dirEnv = "LOAM_TEST_DIR"

// children are the programs that the test binary can be (childEnv). Each runs until its context ends, which is when its
// standard input is closed: by the parent, or because the parent has died. Other files may add theirs in init.
var children = map[string]func(ctx context.Context) error{}

// runChild is the main function of a child process.
func runChild(name string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	program, ok := children[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no child program", name)
		return 2
	}
	if err := program(ctx); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}

// inDir is a file of the directory that the child shares with its parent.
func inDir(name string) string { return filepath.Join(os.Getenv(dirEnv), name) }

// envInt is a number that the parent has set.
func envInt(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

// urlEnv has the URL of PostgreSQL's database that the child is to work; without it, that is SQLite's app.db.
const urlEnv = "LOAM_TEST_URL"

// openChild opens the child's database.
func openChild(ctx context.Context) (*database.DB, error) {
	if url := os.Getenv(urlEnv); url != "" {
		return postgres.Open(ctx, url)
	}
	return sqlite.Open(ctx, inDir("app.db"))
}

// site is what children share with their parent: a directory and a database.
type site struct {
	dir   string
	place dbtest.Place
}

// newSite makes a directory and a place for a database, where nothing is yet.
func newSite(t *testing.T, kind database.Dialect) site {
	t.Helper()
	dir := t.TempDir()
	if kind == database.SQLite {
		return site{dir, dbtest.Place{Dialect: kind, At: filepath.Join(dir, "app.db")}}
	}
	return site{dir, dbtest.Empty(t, kind)}
}

// eachSite runs f as a parallel subtest for every kind of database.
func eachSite(t *testing.T, f func(t *testing.T, s site)) {
	t.Helper()
	for _, kind := range []database.Dialect{database.SQLite, database.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f(t, newSite(t, kind))
		})
	}
}

// work is a child's main part: an engine over the database that runs until ctx ends. publish, if not nil, runs beside it; its
// error ends the child.
func work(ctx context.Context, reg *durable.Registry, change func(*loam.Config),
	publish func(ctx context.Context, engine *loam.Engine) error,
) (err error) {
	db, err := openChild(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	cfg := loam.Config{DB: db, Registry: reg, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	change(&cfg)
	engine, err := loam.New(cfg)
	if err != nil {
		return err
	}
	if err := errors.Join(engine.Migrate(ctx), engine.AddTenant(ctx, "acme"), engine.Start(ctx)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop(context.WithoutCancel(ctx))) }()
	if err := os.WriteFile(inDir(fmt.Sprintf("up.%d", os.Getpid())), nil, 0o600); err != nil {
		return err
	}
	if publish != nil {
		if err := publish(tenant.With(ctx, "acme"), engine); err != nil && ctx.Err() == nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// diary is a file of this process to which it adds lines. What was written is there after a kill.
type diary struct {
	mu sync.Mutex
	f  *os.File
}

func openDiary(name string) (*diary, error) {
	f, err := os.OpenFile(inDir(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &diary{f: f}, err
}

func (d *diary) add(words ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := fmt.Fprintln(d.f, words...)
	return err
}

// noted wraps a handler's work in two lines: "start EVENT SUBSCRIBER NANOSECONDS" and "end …".
func (d *diary) noted(key string, f func(ctx context.Context, e events.Event) error) durable.HandlerFunc {
	return func(ctx context.Context, e events.Event) error {
		if err := d.add("start", e.ID, key, time.Now().UnixNano()); err != nil {
			return err
		}
		err := f(ctx, e)
		return errors.Join(err, d.add("end", e.ID, key, time.Now().UnixNano()))
	}
}

// process is a running child, seen from its parent.
type process struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer // to be read after the end
	ended  chan struct{}
	err    error
}

// startChild starts a child program. It ends with the test at the latest.
func startChild(t *testing.T, name string, s site, env ...string) *process {
	t.Helper()
	program, err := dbtest.ChildProgram()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, dir: s.dir, ended: make(chan struct{})}
	p.cmd = exec.Command(program) //nolint:gosec // built above
	p.cmd.Env = append(append(os.Environ(), childEnv+"="+name, dirEnv+"="+s.dir), env...)
	if s.place.Dialect == database.PostgreSQL {
		p.cmd.Env = append(p.cmd.Env, urlEnv+"="+s.place.At)
	}
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if s := p.stderr.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") {
			t.Errorf("%s said:\n%s", name, s)
		}
	})
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// up waits until the child's engine has started.
func (p *process) up() {
	p.t.Helper()
	until(p.t, 60*time.Second, "up", func() bool {
		_, err := os.Stat(filepath.Join(p.dir, fmt.Sprintf("up.%d", p.pid())))
		p.running()
		return err == nil
	})
}

// running fails the test if the child has ended.
func (p *process) running() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("the child has ended by itself: %v\n%s", p.err, p.stderr.String())
	default:
	}
}

// kill is kill -9. It returns a time at which the child was certainly dead.
func (p *process) kill() time.Time {
	p.t.Helper()
	p.running()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.ended
	return time.Now()
}

// wait waits for the end of the child, and reports whether it was killed.
func (p *process) wait() (killed bool) {
	p.t.Helper()
	receive(p.t, p.ended, 1, "children ended")
	var exit *exec.ExitError
	return errors.As(p.err, &exit) && !exit.Exited()
}

// stop lets the child end in its own way, which must be without an error.
func (p *process) stop() {
	p.t.Helper()
	_ = p.stdin.Close()
	p.wait()
	if p.err != nil {
		p.t.Errorf("the child ended with %v\n%s", p.err, p.stderr.String())
	}
}
