package faultpoints_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// entry is something that happened, as it is noted outside the database.
type entry struct {
	What   string   `json:"what"` // publish, published, start, end, job, jobdone, cleared, redeliver, redelivered, removed, enqueue, enqueued, sent, handed, ack, nak, mended, requeued, clock
	Proc   string   `json:"proc"`
	Event  string   `json:"event,omitempty"`  // an event's id
	Key    string   `json:"key,omitempty"`    // a subscriber's, or an event's name
	Run    int      `json:"run,omitempty"`    // or the sequence of a message
	Result string   `json:"result,omitempty"` // of end: ok, snoozed, or the error
	IDs    []string `json:"ids,omitempty"`    // deliveries
	Clock  int64    `json:"clock"`
}

// diary is a file beside the database. What was written to it is there after a kill.
type diary struct {
	mu sync.Mutex
	f  *os.File
}

const diaryName = "diary"

func openDiary(t testing.TB, dir string) *diary {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, diaryName), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a directory of the test's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &diary{f: f}
}

func (d *diary) add(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.f.Write(append(line, '\n'))
	return err
}

// entries reads the diary from its beginning, in the order in which things happened.
func (d *diary) entries(t testing.TB) []entry {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	var out []entry
	for lines := bufio.NewScanner(d.f); lines.Scan(); {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil { // a kill does not cut a line: it is one write
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		out = append(out, e)
	}
	return out
}
