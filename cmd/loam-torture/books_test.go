package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
)

// What the transactional subscriber has done is compared to the unit, and what is wrong is said with the event.
//
// contract: D-17
func TestBooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script script // succeeds
		spoil  func(s *story, r *row)
		want   string
	}{
		"in order":   {spoil: func(*story, *row) {}},
		"it failed":  {script: script{by: fails, failures: 1}, spoil: func(*story, *row) {}},
		"it is dead": {script: script{by: parks, failures: 1}, spoil: func(*story, *row) {}},
		"a deadline missed": {spoil: func(_ *story, r *row) {
			r.attempts, r.history, r.timeouts = 2, 2, 2
		}},
		"a unit too much": {spoil: func(s *story, r *row) { s.state.books.balances[r.w.tenant]++ }, want: "the balance of "},
		"another tenant's": {spoil: func(s *story, r *row) {
			delete(s.state.books.balances, r.w.tenant)
			s.state.books.balances[tenants[0]], s.state.books.balances[tenants[1]] = 1, 1
		}, want: "the balance of "},
		"twice":      {spoil: func(s *story, r *row) { s.state.books.booked[s.id] = 2 }, want: "is delivered to the books, and is in them 2 times"},
		"not at all": {spoil: func(s *story, r *row) { clear(s.state.books.booked) }, want: "is delivered to the books, and is in them 0 times"},
		"of a run that failed": {script: script{by: parks, failures: 1}, spoil: func(s *story, r *row) {
			s.state.books.booked[s.id] = 1
		}, want: "is not delivered to the books, and is in them 1 times"},
		"of no event": {spoil: func(s *story, r *row) { s.state.books.booked[uuid.UUID{9}] = 1 }, want: "is not delivered to the books"},
		"a failure too much": {spoil: func(_ *story, r *row) {
			r.attempts, r.history, r.timeouts = 2, 2, 1
		}, want: "is delivered after 2 failures, and should be delivered after 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.script == (script{}) {
				c.script = ok
			}
			scripts := map[string]script{"mail.receipt": ok, "ledger.post": ok, "stock.move": ok, "legacy.sync": ok, "books.post": c.script}
			s := storyOf(t, direct, "shop.order.paid", scripts)
			c.spoil(s, &s.rows[len(s.rows)-1])
			v := s.judge(t)
			if text := strings.Join(v.texts, "\n"); v.good() != (c.want == "") || !strings.Contains(text, c.want) {
				t.Errorf("want %q among:\n%s", c.want, text)
			}
		})
	}
}

// The script of the transactional subscriber never runs into the limit of attempts, which its deadlines share.
func TestBooksScripts(t *testing.T) {
	t.Parallel()
	for n := range 5000 {
		id := uuid.UUID{14: byte(n >> 8), 15: byte(n)}
		if _, attempts := scriptOf(id, "books.post").final(); attempts >= maxAttempts {
			t.Fatalf("event %s fails %d times", id, attempts)
		}
	}
}

// A row's history says how many of its runs missed their deadline, and one that cannot be read is an error.
func TestHistory(t *testing.T) {
	t.Parallel()
	n, timeouts, err := failures(`[{"error":"*errors.errorString: as the script says"},{"error":"*errors.errorString: durable: the handler's time limit is over"}]`)
	if n != 2 || timeouts != 1 || err != nil {
		t.Errorf("%d failures, %d of them deadlines, %v; want 2 and 1", n, timeouts, err)
	}
	if _, _, err := failures(`{`); err == nil {
		t.Error("what is no history was read")
	}
}
