package main

import (
	"strings"
	"testing"
	"time"
)

// Runs of the same (event, subscriber) in processes 1 and 2. The first is from second 20; its lease is renewed until it
// ends at second 22 or as the case says. What overlaps within a lease is found; what the contract's exception covers is not
// called an overlap.
//
// contract: L-02
func TestOverlaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tell     func(s *story)
		overlaps int
	}{
		"one after the other": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 21, "ok")
			s.ran("mail.receipt", 2, 21.001, 22, "ok")
		}, 0},
		"in two processes": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 21, "ok")
			s.ran("mail.receipt", 2, 20.999, 22, "ok")
		}, 1},
		"noted in the other order": {func(s *story) {
			s.ran("mail.receipt", 2, 20.999, 22, "ok")
			s.ran("mail.receipt", 1, 20, 21, "ok")
		}, 1},
		"in one process": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 21, "ok")
			s.ran("mail.receipt", 1, 20.5, 20.6, "ok")
		}, 1},
		"with the one before the last": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 30, "ok")
			s.ran("mail.receipt", 2, 21, 22, "ok")
			s.ran("mail.receipt", 2, 23, 24, "ok")
		}, 2},
		"of another subscriber": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 21, "ok")
			s.ran("stock.move", 2, 20, 21, "ok")
		}, 0},
		"after the first was cancelled for its lost claim": {func(s *story) {
			h := s.ran("mail.receipt", 1, 20, 23, "cut")
			h.cancel, h.lost = at(21), true
			s.ran("mail.receipt", 2, 21.5, 22, "ok")
		}, 0},
		"before the first was cancelled": {func(s *story) {
			h := s.ran("mail.receipt", 1, 20, 23, "ok")
			h.cancel, h.lost = at(21), true
			s.ran("mail.receipt", 2, 20.5, 22, "ok")
		}, 1},
		"after the first was cancelled by a shutdown, which keeps the claim": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 23, "ok").cancel = at(21)
			s.ran("mail.receipt", 2, 21.5, 22, "ok")
		}, 1},
		"after the kill": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 0, "")
			s.killed(1, 21)
			s.ran("mail.receipt", 2, 23.4, 24, "ok")
		}, 0},
		"before the kill": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 0, "")
			s.killed(1, 21)
			s.ran("mail.receipt", 2, 20.9, 24, "ok")
		}, 1},
		"while suspended, after the lease": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "cut")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.ran("mail.receipt", 2, 23.3, 24, "ok")
		}, 0},
		"while suspended, within the lease": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "cut")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.ran("mail.receipt", 2, 22.4, 24, "ok")
		}, 1},
		"while suspended, after the lease less the margin": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "cut")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.ran("mail.receipt", 2, 22.6, 24, "ok")
		}, 0},
		"with a clock that is ahead, within the lease": {func(s *story) {
			s.ev.lives[1].shift = 100 * time.Millisecond
			s.ran("mail.receipt", 1, 20, 25.01, "cut")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.ran("mail.receipt", 2, 22.45, 24, "ok")
		}, 1},
		"before the suspension, past the lease: the process was at it": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "cut")
			s.suspended(1, 21, 25, 20.5, 19.999)
			s.ran("mail.receipt", 2, 20.9, 24, "ok")
		}, 1},
		"with another's claim seen while suspended": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "cut")
			s.suspended(1, 21, 25, 24, 21.01)
			s.ran("mail.receipt", 2, 21.02, 24, "ok")
		}, 0},
		"suspended for less than the lease": {func(s *story) {
			s.ran("mail.receipt", 1, 20, 23, "ok")
			s.suspended(1, 21, 21.5, 22.9, 19.999)
			s.ran("mail.receipt", 2, 22, 22.2, "ok")
		}, 1},
		"suspended, and the process has claimed it anew since": {func(s *story) {
			s.suspended(1, 14, 18, 15.9, 10)
			s.ran("mail.receipt", 1, 20, 23, "ok")
			s.ran("mail.receipt", 2, 22, 22.2, "ok")
		}, 1},
		"suspended between the claim and the start, cancelled at once": {func(s *story) {
			s.suspended(1, 15, 20, 16.9, 14.99)
			h := s.ran("mail.receipt", 1, 20.001, 20.01, "cut")
			h.cancel, h.lost = at(20.002), true
			s.ran("mail.receipt", 2, 18, 22, "ok")
		}, 0},
		"suspended between the claim and the start, too short to be cancelled": {func(s *story) {
			s.suspended(1, 15, 20, 16.9, 14.99)
			s.ran("mail.receipt", 1, 20.001, 20.002, "ok")
			s.ran("mail.receipt", 2, 18, 22, "ok")
		}, 0},
		"suspended while another has the claim, and started beside it afterwards": {func(s *story) {
			s.suspended(1, 15, 20, 16.9, 14.99)
			s.ran("mail.receipt", 2, 15, 22, "ok")
			s.ran("mail.receipt", 1, 20.001, 20.002, "ok")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t, direct, ok)
			c.tell(s)
			v := s.judge(t)
			if v.overlaps != c.overlaps || v.wrongs != c.overlaps || v.good() != (c.overlaps == 0) {
				t.Errorf("%d overlaps, want %d: %v", v.overlaps, c.overlaps, v.texts)
			}
			if c.overlaps > 0 && !strings.Contains(v.texts[0], s.id.String()) {
				t.Errorf("the event is not named: %v", v.texts)
			}
		})
	}
}

// Repeats are the runs after the first success, and recovery is from the kill or the stop to the next start elsewhere.
func TestFigures(t *testing.T) {
	t.Parallel()
	s := newStory(t, direct, ok) // with a success in second 10
	s.ran("mail.receipt", 1, 20, 0, "")
	s.killed(1, 21)
	s.ran("mail.receipt", 2, 23.5, 24, "ok")
	s.ran("mail.receipt", 2, 30, 36, "cut")
	s.suspended(2, 31, 35, 32.9, 29.99)
	s.ev.lives[3] = &life{work: true, began: at(0.5), ended: at(90)}
	s.ran("mail.receipt", 3, 34.5, 34.6, "ok")
	s.ev.refused[refusal{1, "a"}], s.ev.refused[refusal{2, "b"}] = 1, 2
	v := s.judge(t)
	want := "events=1 kills=1 stops=1 repeats=4 lost=0 overlaps=0 refused=3 recovery_max=3.5s"
	if v.line() != want || !v.good() || v.recoveries != 2 || v.waited != 9*time.Second {
		t.Errorf("%s\nwant\n%s\n%+v", v.line(), want, v)
	}
}
