package natsjs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// errDenied is a publish that the broker refuses for want of a right.
var errDenied = errors.New("the broker refuses the subject: permissions violation for publish")

var deniedRE = regexp.MustCompile(`Permissions Violation for Publish to "([^"]+)"`)

// denials tells who waits for an answer that a right is missing: the broker says so beside the answer, which never comes.
// The zero value is ready. It is safe for use by several goroutines.
type denials struct {
	mu   sync.Mutex
	open map[string]*denial // by subject
	last error              // that was noted
}

type denial struct {
	said    chan struct{} // closed when the broker refuses the subject
	waiting int
}

// watch returns a channel that is closed when the broker refuses a publish to the subject, until stop.
func (d *denials) watch(subject string) (said <-chan struct{}, stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[string]*denial{}
	}
	w := d.open[subject]
	if w == nil {
		w = &denial{said: make(chan struct{})}
		d.open[subject] = w
	}
	w.waiting++
	return w.said, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if w.waiting--; w.waiting == 0 && d.open[subject] == w {
			delete(d.open, subject)
		}
	}
}

// note looks whether err says that a subject was refused.
func (d *denials) note(err error) {
	if err == nil {
		return
	}
	m := deniedRE.FindStringSubmatch(err.Error())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
	if m == nil {
		return
	}
	if w := d.open[m[1]]; w != nil {
		close(w.said)
		delete(d.open, m[1])
	}
}

// notedLimit is how long noted waits.
const notedLimit = time.Second

// noted waits until the last error of the connection was noted, and so all before it. Not all of them come here.
func (d *denials) noted(ctx context.Context, nc *nats.Conn) {
	ctx, cancel := context.WithTimeout(ctx, notedLimit)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		d.mu.Lock()
		last := d.last
		d.mu.Unlock()
		if last == nc.LastError() { //nolint:errorlint // this very one, not one of its kind
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// asking calls f, which publishes a request to the subject and waits for the answer, and ends its context when the broker
// refuses that: then the error is errDenied.
func (d *denials) asking(ctx context.Context, subject string, f func(context.Context) error) error {
	said, stop := d.watch(subject)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-said:
			cancel(fmt.Errorf("%w to %s", errDenied, subject))
		case <-done:
		}
	})
	err := f(ctx)
	close(done)
	wait.Wait()
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errDenied) {
		return cause
	}
	return err
}
