package jobs

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/riverqueue/river/riverdriver"
)

// still is a listener that hears what it is given.
type still struct {
	riverdriver.Listener
	notices chan *riverdriver.Notification
}

func (s still) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case n := <-s.notices:
		return n, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A nudge interrupts the wait, each queue is told once, notices still come, and the end of the context ends it.
//
// contract: J-04
func TestNudges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := still{notices: make(chan *riverdriver.Notification, 1)}
		l := nudgedListener{inner, newNudges()}
		ctx, cancel := context.WithCancel(t.Context())
		heard := make(chan string, 10)
		ended := make(chan error, 1)
		go func() {
			for {
				n, err := l.WaitForNotification(ctx)
				if err != nil {
					ended <- err
					return
				}
				heard <- n.Topic + n.Payload
			}
		}()
		synctest.Wait()
		for range 3 {
			l.nudges.add("loam")
		}
		l.nudges.add("slow")
		inner.notices <- &riverdriver.Notification{Topic: "river_control", Payload: "{}"}
		got := map[string]int{}
		for range 3 {
			synctest.Wait()
			got[<-heard]++
		}
		synctest.Wait()
		if len(heard) != 0 || got[`river_insert{"queue":"loam"}`] != 1 || got[`river_insert{"queue":"slow"}`] != 1 || got["river_control{}"] != 1 {
			t.Errorf("heard %v, and %d more", got, len(heard))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// River ends a wait now and then, to ping or to listen to more. A nudge of that very moment is heard by the next wait.
func TestANudgeAtTheEndOfAWait(t *testing.T) {
	t.Parallel()
	for range 200 { // which comes first is drawn by lot
		l := nudgedListener{still{}, newNudges()}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l.nudges.add("loam")
		n, err := l.WaitForNotification(ctx)
		if err != nil {
			n, err = l.WaitForNotification(t.Context())
		}
		if err != nil || n == nil || n.Payload != `{"queue":"loam"}` {
			t.Fatalf("heard %v, %v", n, err)
		}
	}
}

var _ riverdriver.Driver[*sql.Tx] = nudgedDriver{}
