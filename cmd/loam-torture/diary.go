package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// diary is the file of one process to which it adds lines about itself: outside the database, one write a line, so that
// what was written is there after a kill. A line is a letter, the time in nanoseconds, and words.
//
// Of a child:
//
//	s TIME RUN TENANT EVENT KEY   a handler begins
//	c TIME RUN CAUSE              its context was cancelled
//	e TIME RUN RESULT             it ends
//	r TIME DELIVERY               an outcome was refused, for the claim was lost
//	a TIME DELIVERY               an outcome was given up at shutdown
//	g TIME DELIVERY               an outcome found its row no longer pending
//	t TIME EVENT CAPTURE          an event is about to be published
//	f TIME EVENT ERROR            publishing it returned an error
//	k TIME EVENT CAPTURE          it is committed
//	u TIME EVENT                  its transaction was rolled back, on purpose
//	v TIME TEXT                   something that must not happen
//
// Of the parent (P is a child's number):
//
//	start TIME P ROLE PUBLISH SHIFT PID
//	kill TIME P AFTER             killed between TIME and AFTER
//	stop TIME P AFTER             suspended from TIME to AFTER
//	lease TIME P TENANT EVENT KEY LEASE_UNTIL STARTED_AT   the claims while P was suspended, read at TIME
//	exit TIME P CODE
//	crowd TIME N                  how many subscribers there are in the crowd
//	over TIME MADE                the attacks end; so many deliveries are made
//	aged TIME EVENT               the claim on its row was a dead relay's, and is over by the parent's doing
//	broker TIME DELIVERIES        at the end: so often it has given messages to the application
//	message TIME EVENT            and its stream has one of this event, stored at TIME
//	full TIME AFTER               nothing could be written from TIME to AFTER: the disk was full, the server out of reach
type diary struct {
	mu sync.Mutex
	f  *os.File
}

func openDiary(dir, name string) (*diary, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // ours
	return &diary{f: f}, err
}

// childDiary is the name of a child's diary.
func childDiary(n int) string { return fmt.Sprintf("child-%d.diary", n) }

// parentDiary is the name of the parent's.
const parentDiary = "parent.diary"

// add writes a line with the time it is now. The time is taken under the lock: lines are in order.
func (d *diary) add(letter string, words ...any) { d.addAt(letter, 0, words...) }

// addAt is add with a time that was taken before.
func (d *diary) addAt(letter string, at int64, words ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at == 0 {
		at = time.Now().UnixNano()
	}
	var b strings.Builder
	fmt.Fprint(&b, letter, " ", at)
	for _, w := range words {
		b.WriteByte(' ')
		b.WriteString(strings.ReplaceAll(fmt.Sprint(w), "\n", " | "))
	}
	b.WriteByte('\n')
	if _, err := d.f.WriteString(b.String()); err != nil {
		// Without evidence nothing can be judged.
		fmt.Fprintln(os.Stderr, "panic: the diary cannot be written:", err)
		os.Exit(3)
	}
}

func (d *diary) close() error { return d.f.Close() }
