package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

// The stream has what is done in the queue, once, and nothing else.
//
// contract: N-01, O-01, O-03
func TestStreamIsJudged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(s *story)
		want  string // "" if it is in order
	}{
		"in order":         {spoil: func(*story) {}},
		"without one":      {spoil: func(s *story) { s.ev.broker, s.ev.stream = false, nil }},
		"marked, not sent": {spoil: func(s *story) { clear(s.ev.stream) }, want: "is done, and the stream does not have it"},
		"stored twice":     {spoil: func(s *story) { s.ev.stream[s.id] = []int64{at(1), at(2)} }, want: "2 times"},
		"sent before the commit": {spoil: func(s *story) {
			s.ev.stream[uuid.UUID{9}] = []int64{at(1)}
		}, want: "the stream has event " + uuid.UUID{9}.String() + ", and it is not in event_queue"},
	} {
		s := newStory(t, direct, ok)
		s.queued()
		s.ev.broker, s.ev.stream[s.id] = true, []int64{at(1)}
		c.spoil(s)
		v := s.judge(t)
		if v.good() != (c.want == "") || !strings.Contains(strings.Join(v.texts, "\n"), c.want) {
			t.Errorf("%s: want %q, got %q", name, c.want, v.texts)
		}
	}
}

// Of the rows whose relay was killed, those are counted that the broker had by then: they were to be marked.
func TestUnmarkedAreCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stored, aged       float64
		orphaned, unmarked int
	}{{1, 0, 0, 0}, {1, 2, 1, 1}, {3, 2, 1, 0}} {
		s := newStory(t, direct, ok)
		s.queued()
		s.ev.broker, s.ev.stream[s.id], s.ev.handedOut = true, []int64{at(c.stored)}, 5
		if c.aged != 0 {
			s.ev.aged[s.id] = at(c.aged)
		}
		if v := s.judge(t); !v.good() || v.orphaned != c.orphaned || v.unmarked != c.unmarked || v.messages != 1 || v.handedOut != 5 {
			t.Errorf("%+v: %+v", c, v)
		}
	}
}
