package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"sync"

	"github.com/riverqueue/river/riverdriver"
)

// On PostgreSQL River tells workers of new jobs by a notice that the inserting transaction carries, at most one for each queue
// and cooldown: of two transactions that overlap, the second to commit may carry none, and its jobs wait for the next poll, a
// second later (18 of 20 did, in a test made for it). So what this process has committed itself it also tells its own River,
// which then fetches at once. On SQLite, where River looks for its notices every 50 ms, the same would cost half as much
// processor time again for each event, for it begins that look anew each time.

// insertTopic is the topic of River's notices of new jobs.
const insertTopic = "river_insert"

// nudges are the queues that have something new, for one River client that works.
type nudges struct {
	mu     sync.Mutex
	queues map[string]bool
	some   chan struct{}
}

func newNudges() *nudges { return &nudges{queues: map[string]bool{}, some: make(chan struct{}, 1)} }

// add notes a queue. It never waits.
func (n *nudges) add(queue string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queues[queue] = true
	n.signal()
}

func (n *nudges) signal() {
	select {
	case n.some <- struct{}{}:
	default: // it is signalled
	}
}

// take returns a queue's notice. It is called after some.
func (n *nudges) take() *riverdriver.Notification {
	n.mu.Lock()
	defer n.mu.Unlock()
	for queue := range n.queues {
		delete(n.queues, queue)
		if len(n.queues) > 0 {
			n.signal()
		}
		payload, _ := json.Marshal(map[string]string{"queue": queue}) // strings always encode
		return &riverdriver.Notification{Topic: insertTopic, Payload: string(payload)}
	}
	return nil
}

// nudgedDriver is River's driver, whose listeners also hear nudges.
type nudgedDriver struct {
	riverdriver.Driver[*sql.Tx]
	nudges *nudges
}

// GetListener implements riverdriver.Driver.
func (d nudgedDriver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return nudgedListener{d.Driver.GetListener(params), d.nudges}
}

type nudgedListener struct {
	riverdriver.Listener
	nudges *nudges
}

// WaitForNotification implements riverdriver.Listener: it returns the next notice or nudge. A nudge interrupts the wait for a
// notice, as River itself does to change what it listens for.
func (l nudgedListener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	type notice struct {
		*riverdriver.Notification
		err error
	}
	for {
		waiting, stop := context.WithCancel(ctx)
		came := make(chan notice, 1)
		go func() {
			n, err := l.Listener.WaitForNotification(waiting)
			came <- notice{n, err}
		}()
		select {
		case n := <-came:
			stop()
			return n.Notification, n.err
		case <-l.nudges.some:
			stop()
			if n := <-came; n.err == nil || ctx.Err() != nil { // at the same moment: the nudge is for the next call
				l.nudges.signal()
				return n.Notification, n.err
			}
			if n := l.nudges.take(); n != nil {
				return n, nil
			}
		}
	}
}
