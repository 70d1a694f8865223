package main

import (
	"slices"
	"testing"

	"github.com/google/uuid"
)

// The crowd is judged as the other subscribers are: each of it has a row of each event, and nobody has one who is not in it.
func TestCrowdIsJudged(t *testing.T) {
	t.Parallel()
	first, second := withCrowd(2)[len(subscribers)], withCrowd(2)[len(subscribers)+1]
	scripts := map[string]script{"mail.receipt": ok, "stock.move": ok, "report.build": ok, first.key: ok, second.key: ok}
	story := func(crowd int, have ...subscriber) *story {
		s := newStory(t, direct, ok)
		s.id = eventOf(t, direct, "shop.order.placed", scripts)
		s.ev, s.rows, s.state.done = newEvidence(), nil, 0
		s.ev.subscribers = withCrowd(crowd)
		s.ev.lives[1] = &life{work: true, began: at(0.5), ended: at(90)}
		s.ev.events[s.id] = told{committed: at(1)}
		for _, sub := range append(have, subscribers...) {
			if !sub.matches("shop.order.placed") {
				continue
			}
			s.rows = append(s.rows, row{id: "row of " + sub.key, w: s.w(sub.key), name: "shop.order.placed", status: "delivered"})
			s.ran(sub.key, 1, 10, 11, "ok")
			s.state.done++
		}
		return s
	}
	if v := story(2, first, second).judge(t); !v.good() || v.rows != 5 || v.events != 1 {
		t.Errorf("in order: %d rows of %d events, %v", v.rows, v.events, v.texts)
	}
	if v := story(2, first).judge(t); v.lost != 1 {
		t.Errorf("a row is missing: %d are lost, %v", v.lost, v.texts)
	}
	if v := story(1, first, second).judge(t); v.good() {
		t.Error("a row is there of one who is not in the crowd")
	}
	s := story(2, first, second)
	s.ran(second.key, 2, 10.5, 12, "ok")
	s.ev.lives[2] = &life{work: true, began: at(0.5), ended: at(90)}
	if v := s.judge(t); v.overlaps != 1 {
		t.Errorf("two runs at once: %d overlaps, %v", v.overlaps, v.texts)
	}
}

// Each of the largest crowd has a bit of its own, and most of what it does succeeds at once; but not all.
func TestLargestCrowd(t *testing.T) {
	t.Parallel()
	all := withCrowd(mostCrowd)
	if len(all) > 64 {
		t.Errorf("there are %d subscribers, and 64 bits", len(all))
	}
	calmly, others := 0, 0
	for n := range byte(200) {
		for _, s := range all[len(subscribers):] {
			if scriptOf(uuid.UUID{n}, s.key) == ok {
				calmly++
			} else {
				others++
			}
		}
	}
	if others == 0 || calmly < 50*others {
		t.Errorf("%d succeed at once, and %d do not", calmly, others)
	}
	if slices.ContainsFunc(subscribers, func(s subscriber) bool { return s.crowd }) {
		t.Error("somebody is in the crowd without one")
	}
}
