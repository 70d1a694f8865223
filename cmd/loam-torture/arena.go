package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openloam/loam/database"
)

// arena is the parent's side of a run.
type arena struct {
	options
	backend  backend
	db       *database.DB
	location string
	files    string // the directory of this run
	diary    *diary
	broker   *broker // nil without one
	stderr   io.Writer
	self     string // the program

	mu      sync.Mutex
	rng     *rand.Rand
	slots   []*slot
	lastN   int
	counts  map[string]int
	closing bool
	running sync.WaitGroup // goroutines that watch children
}

// slot is a place for a process, which is filled again and again.
type slot struct {
	name    string
	work    bool
	publish int  // events a second
	outbox  bool // its process captures through event_queue, or the one before did: they take turns

	busy    bool // an attack is at it
	filling bool // a process is being started
	proc    *proc
	last    int // the number of the process before
}

// proc is a child, seen from here.
type proc struct {
	n        int
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	ended    chan struct{}
	foreseen atomic.Bool // its end is the attacks' doing
	began    time.Time
}

// random returns a number below n.
func (a *arena) random(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rng.IntN(n)
}

func (a *arena) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what]++
}

func (a *arena) say(format string, args ...any) {
	if a.verbose {
		fmt.Fprintf(a.stderr, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// wait waits, less if ctx ends.
func (a *arena) wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// launch starts a child with the orders, of which it fills in what is the same for all.
func (a *arena) launch(o orders) (*proc, error) {
	a.mu.Lock()
	a.lastN++
	o.N = a.lastN
	a.mu.Unlock()
	o.Database, o.Location, o.Dir, o.Seed, o.Crowd = a.database, a.location, a.files, a.seed, a.crowd
	if a.broker != nil {
		o.Bus = a.broker.url()
	}
	env, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	stderr, err := os.OpenFile(filepath.Join(a.files, stderrOf(o.N)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer stderr.Close() // the child has its own

	p := &proc{n: o.N, cmd: exec.Command(a.self), ended: make(chan struct{}), began: time.Now()} //nolint:gosec,noctx // this program; it is ended with care
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	p.cmd.Stderr = stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	a.diary.add("start", o.N, boolWord(o.Work, "work", "-"), o.Publish, int64(o.Shift), p.cmd.Process.Pid)
	a.running.Go(func() {
		err := p.cmd.Wait()
		var exit *exec.ExitError
		if err == nil || errors.As(err, &exit) && exit.Exited() {
			a.diary.add("exit", p.n, p.cmd.ProcessState.ExitCode())
		} else if !p.foreseen.Load() {
			a.diary.add("exit", p.n, -1)
		}
		close(p.ended)
	})
	return p, nil
}

func stderrOf(n int) string { return fmt.Sprintf("child-%d.stderr", n) }

func boolWord(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

// fillSlot starts a process in s, unless one lives there or is being started, and starts another should it end by itself.
func (a *arena) fillSlot(s *slot) {
	a.mu.Lock()
	if s.filling || s.proc != nil && !s.proc.dead() {
		a.mu.Unlock()
		return
	}
	s.filling = true
	o := orders{Work: s.work, Publish: s.publish, After: s.last, Capture: [2]string{a.capture, a.capture}}
	if a.capture == captureBoth {
		o.Capture = [2]string{captureDirect, captureOutbox}
		if s.outbox = !s.outbox; s.outbox {
			o.Capture = [2]string{captureOutbox, captureDirect}
		}
	}
	if o.Work && a.rng.IntN(2) == 0 {
		o.Shift = time.Duration(a.rng.Int64N(2*int64(shiftLimit)+1)) - shiftLimit
	}
	a.mu.Unlock()
	p, err := a.launch(o)
	if err != nil { // the machine is out of something: the next attack on the slot tries again
		fmt.Fprintln(a.stderr, "start a process:", err)
		a.diary.add("v", "start a process:", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.proc, s.filling = p, false
	if p == nil {
		return
	}
	s.last = p.n
	a.running.Go(func() {
		<-p.ended
		if p.foreseen.Load() {
			return
		}
		a.say("%s (process %d) has ended by itself: %v", s.name, p.n, p.cmd.ProcessState)
		<-time.After(300 * time.Millisecond)
		a.mu.Lock()
		again := !a.closing && s.proc == p && !s.busy
		a.mu.Unlock()
		if again {
			a.fillSlot(s)
		}
	})
}

// take chooses a slot that no attack is at. The caller puts it back.
func (a *arena) take() *slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	var free []*slot
	for _, s := range a.slots {
		if !s.busy && s.proc != nil {
			free = append(free, s)
		}
	}
	if len(free) == 0 {
		return nil
	}
	s := free[a.rng.IntN(len(free))]
	s.busy = true
	return s
}

// putBack ends an attack on a slot; one without a living process gets a new one.
func (a *arena) putBack(s *slot) {
	a.mu.Lock()
	p := s.proc
	s.busy = false
	a.mu.Unlock()
	if p == nil || p.dead() {
		a.fillSlot(s)
	}
}

func (p *proc) dead() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// tell gives an order to all children.
func (a *arena) tell(order string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.slots {
		if s.proc != nil { // one that is suspended hears it later
			fmt.Fprintln(s.proc.stdin, order) // to one that is gone: no matter
		}
	}
}

// patience is how long a process may take to end in its own way.
const patience = 45 * time.Second

// end lets a process end in its own way.
func (a *arena) end(p *proc) {
	p.foreseen.Store(true)
	_ = p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(patience):
		a.diary.add("v", "process", p.n, "has not ended", patience, "after it was asked to")
		a.killProc(p)
	}
}

// killProc is kill -9. It reports whether that was the end of the process.
func (a *arena) killProc(p *proc) bool {
	p.foreseen.Store(true)
	before := time.Now().UnixNano()
	if err := p.cmd.Process.Kill(); err != nil {
		return false // it has ended before
	}
	<-p.ended
	if p.cmd.ProcessState.Exited() { // it was quicker
		return false
	}
	a.diary.addAt("kill", before, p.n, time.Now().UnixNano())
	return true
}
