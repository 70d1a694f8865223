package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// readEvidence reads the diaries in dir, line by line.
func readEvidence(dir string) (*evidence, error) {
	ev := newEvidence()
	if err := eachLine(filepath.Join(dir, parentDiary), ev.parentLine()); err != nil {
		return nil, err
	}
	for n := range ev.lives {
		r := childReader{ev: ev, n: n, open: map[string]place{}}
		err := eachLine(filepath.Join(dir, childDiary(n)), r.line)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // killed before it could write
			return nil, err
		}
	}
	return ev, nil
}

// eachLine calls f with the letter, the time and the words of each line. The last line of a process that was killed may be
// torn: the kill came where the write went from one page of the file to the next. It is as if it had not been written.
func eachLine(file string, f func(letter string, at int64, words []string) error) error {
	in, err := os.Open(file) //nolint:gosec // ours
	if err != nil {
		return err
	}
	defer in.Close()
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			return fmt.Errorf("%s: %q", file, line)
		}
		at, err := strconv.ParseInt(words[1], 10, 64)
		if err == nil {
			err = f(words[0], at, words[2:])
		}
		if err != nil {
			return fmt.Errorf("%s: %q: %w", file, line, err)
		}
	}
}

var errMalformed = errors.New("malformed")

// parentLine returns the reader of the parent's diary.
func (ev *evidence) parentLine() func(letter string, at int64, words []string) error {
	leases := map[int]map[what]leased{} // since the last stop line of the process
	return func(letter string, at int64, words []string) error {
		if letter == "v" {
			ev.violation = append(ev.violation, "the attacks: "+strings.Join(words, " "))
			return nil
		}
		if letter == "message" || letter == "aged" {
			return ev.streamLine(letter, at, words)
		}
		n, err := numbers(words, letter)
		if err != nil {
			return err
		}
		switch letter {
		case "crowd":
			ev.subscribers = withCrowd(int(n[0]))
			return nil
		case "over":
			ev.attacked = int(n[0])
			return nil
		case "broker":
			ev.broker, ev.handedOut = true, int(n[0])
			return nil
		case "full":
			ev.full = append(ev.full, [2]int64{at, n[0]})
			return nil
		}
		p := int(n[0])
		if letter == "start" {
			ev.lives[p] = &life{began: at, work: words[1] == "work", shift: time.Duration(n[1])}
			return nil
		}
		l := ev.lives[p]
		if l == nil {
			return errMalformed
		}
		switch letter {
		case "kill":
			l.struck, l.killed = at, n[1]
		case "exit":
			l.ended, l.code = at, int(n[1])
		case "stop":
			l.stopped = append(l.stopped, suspension{from: at, until: n[1], leases: leases[p]})
			delete(leases, p)
		case "lease":
			id, err := uuid.Parse(words[2])
			if err != nil {
				return err
			}
			if leases[p] == nil {
				leases[p] = map[what]leased{}
			}
			leases[p][what{id, intern(words[1]), intern(words[3])}] = leased{until: n[1] * 1e6, started: n[2] * 1e6}
		default:
			return errMalformed
		}
		return nil
	}
}

// numbers parses the words of a parent's line that are numbers.
func numbers(words []string, letter string) ([]int64, error) {
	places := map[string][]int{"start": {0, 3}, "kill": {0, 1}, "exit": {0, 1}, "stop": {0, 1}, "lease": {0, 4, 5}, "full": {0}, "crowd": {0}, "over": {0}, "broker": {0}}[letter]
	var out []int64
	for _, i := range places {
		if i >= len(words) {
			return nil, errMalformed
		}
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, errMalformed
	}
	return out, nil
}

// intern returns the one copy of a tenant or a key.
func intern(s string) string {
	for _, t := range tenants {
		if s == t {
			return t
		}
	}
	if known, ok := knownKeys[s]; ok {
		return known.key
	}
	return s
}

// place is where a run is noted.
type place struct {
	w what
	i int
}

// childReader reads the diary of process n.
type childReader struct {
	ev   *evidence
	n    int
	open map[string]place // by run
}

func (r *childReader) line(letter string, at int64, words []string) error {
	need := map[string]int{"s": 4, "c": 2, "e": 2, "r": 1, "a": 1, "g": 1, "t": 1, "f": 2, "k": 1, "u": 1, "v": 1}[letter]
	if need == 0 || len(words) < need {
		return errMalformed
	}
	switch letter {
	case "s":
		id, err := uuid.Parse(words[2])
		if err != nil {
			return err
		}
		w := what{id, intern(words[1]), intern(words[3])}
		r.open[words[0]] = place{w, len(r.ev.runs[w])}
		r.ev.runs[w] = append(r.ev.runs[w], handled{process: r.n, start: at})
	case "c", "e":
		p, ok := r.open[words[0]]
		if !ok {
			if letter == "c" {
				return nil // as it ended
			}
			return errMalformed
		}
		h := &r.ev.runs[p.w][p.i]
		if letter == "c" {
			h.cancel, h.lost = at, words[1] == "lost"
			return nil
		}
		h.end, h.result = at, words[1]
		delete(r.open, words[0])
	case "r":
		r.ev.refused[refusal{r.n, words[0]}]++
	case "a":
		r.ev.givenUp++
	case "g":
		r.ev.violation = append(r.ev.violation, fmt.Sprintf("process %d: the row of a run was no longer pending: %s", r.n, words[0]))
	case "v":
		r.ev.violation = append(r.ev.violation, fmt.Sprintf("process %d: %s", r.n, strings.Join(words, " ")))
	default:
		return r.published(letter, at, words)
	}
	return nil
}

func (r *childReader) published(letter string, at int64, words []string) error {
	id, err := uuid.Parse(words[0])
	if err != nil {
		return err
	}
	t := r.ev.events[id]
	queued := len(words) > 1 && words[1] != captureDirect
	switch letter {
	case "t":
		t.tried = t.tried || queued
	case "f":
		t.failures++
		r.ev.errors[words[1]]++
	case "k":
		t.queued = t.queued || queued
		if t.committed == 0 || at < t.committed {
			t.committed = at
		}
	case "u":
		t.undone = true
	}
	r.ev.events[id] = t
	return nil
}

// unresolved reads which events a publisher was about to publish without knowing the outcome.
func unresolved(dir string, n int) ([]uuid.UUID, error) {
	ev := newEvidence()
	r := childReader{ev: ev, n: n, open: map[string]place{}}
	err := eachLine(filepath.Join(dir, childDiary(n)), r.line)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var ids []uuid.UUID
	for id, t := range ev.events {
		if t.committed == 0 && !t.undone {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
