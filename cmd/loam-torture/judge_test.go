package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// story is made-up evidence that is in order, for a test to spoil: two workers, 1 and 2, and an event that both its
// subscribers' first runs have delivered. Times are in seconds from zero.
type story struct {
	ev    *evidence
	rows  []row
	state state
	id    uuid.UUID
}

func at(seconds float64) int64 { return int64(seconds * 1e9) }

// eventOf finds an event of this kind and name whose scripts for these subscribers are as wanted.
func eventOf(t *testing.T, k kind, name string, scripts map[string]script) uuid.UUID {
	t.Helper()
	for n := range uint32(1_000_000) {
		id := uuid.UUID{15: byte(n), 14: byte(n >> 8), 13: byte(n >> 16)}
		fits := plan(id).kind == k && plan(id).name == name
		for key, s := range scripts {
			fits = fits && scriptOf(id, key) == s
		}
		if fits {
			return id
		}
	}
	t.Fatal("no such event")
	return uuid.UUID{}
}

func newStory(t *testing.T, k kind, mail script) *story {
	t.Helper()
	return storyOf(t, k, "shop.order.placed", map[string]script{"mail.receipt": mail, "stock.move": ok, "report.build": ok})
}

// storyOf is the story of an event of this name, with the scripts of its subscribers.
func storyOf(t *testing.T, k kind, name string, scripts map[string]script) *story {
	t.Helper()
	id := eventOf(t, k, name, scripts)
	s := &story{ev: newEvidence(), id: id}
	s.ev.lives[1], s.ev.lives[2] = &life{work: true, began: at(0.5), ended: at(90)}, &life{work: true, began: at(0.5), ended: at(90)}
	s.ev.events[id] = told{committed: at(1), undone: k == undone}
	s.state.orders, s.state.queue = map[uuid.UUID]string{}, map[uuid.UUID]entry{}
	s.state.books = books{balances: map[string]int64{}, booked: map[uuid.UUID]int{}}
	if k == inTx {
		s.state.orders[id] = plan(id).tenant
	}
	for _, sub := range subscribers {
		key := sub.key
		if _, wanted := scripts[key]; !wanted {
			continue
		}
		status, attempts := scriptOf(id, key).final()
		s.rows = append(s.rows, row{id: "row of " + key, w: s.w(key), name: name, status: status, attempts: attempts, history: attempts})
		for n := range attempts {
			s.ran(key, 1, 2+float64(n), 2.1+float64(n), string(scriptOf(id, key).by))
		}
		if status == "delivered" {
			s.ran(key, 1, 10, 11, "ok")
			s.state.done++
			if sub.transactional {
				s.state.books.booked[id], s.state.books.balances[plan(id).tenant] = 1, amount(id)
			}
		}
	}
	return s
}

// queued has the event published through event_queue.
func (s *story) queued() {
	p := plan(s.id)
	s.state.queue[s.id] = entry{id: 7, tenant: p.tenant, name: p.name, status: "done"}
	s.ev.events[s.id] = told{committed: at(1), tried: true, queued: true}
}

// enqueued changes the event's row in event_queue.
func (s *story) enqueued(change func(e *entry)) {
	e := s.state.queue[s.id]
	change(&e)
	s.state.queue[s.id] = e
}

func (s *story) w(key string) what { return what{s.id, plan(s.id).tenant, key} }

// ran adds a run; an end of 0 is none.
func (s *story) ran(key string, process int, start, end float64, result string) *handled {
	runs := append(s.ev.runs[s.w(key)], handled{process: process, start: at(start), end: at(end), result: result})
	s.ev.runs[s.w(key)] = runs
	return &runs[len(runs)-1]
}

// suspended suspends a process, and says until when its claim on mail.receipt is.
func (s *story) suspended(process int, from, until, leaseUntil, claimed float64) {
	l := s.ev.lives[process]
	l.stopped = append(l.stopped, suspension{
		from: at(from), until: at(until),
		leases: map[what]leased{s.w("mail.receipt"): {until: at(leaseUntil) + int64(l.shift), started: at(claimed) + int64(l.shift)}},
	})
}

func (s *story) killed(process int, when float64) {
	l := s.ev.lives[process]
	l.ended, l.struck, l.killed = 0, at(when), at(when)+1000
}

func (s *story) judge(t *testing.T) *verdict {
	t.Helper()
	v := newVerdict()
	s.state.rows = func(yield func(row) error) error {
		for _, r := range s.rows {
			if err := yield(r); err != nil {
				return err
			}
		}
		return nil
	}
	s.ev.judgeRuns(v)
	if err := s.ev.judgeState(&s.state, v); err != nil {
		t.Fatal(err)
	}
	s.ev.judgeLives(v)
	return v
}

var ok = script{by: succeeds}

// What is in order is found to be.
func TestStoriesInOrder(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{direct, inTx, twice} {
		for _, mail := range []script{ok, {by: fails, failures: 2}, {by: fails, failures: maxAttempts}, {by: parks, failures: 1}, {by: snoozes}} {
			for _, outbox := range []bool{false, true} {
				s := newStory(t, k, mail)
				if outbox {
					s.queued()
				}
				v := s.judge(t)
				if !v.good() || v.events != 1 || v.rows != 3 || v.repeats != 0 || (v.queued == 1) != outbox {
					t.Errorf("%s, %v: %+v", k, mail, v)
				}
			}
		}
	}
}

// Each thing that can be wrong is seen, and said with the name of what it happened to.
func TestWhatIsWrongIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  kind // direct
		mail  script
		spoil func(s *story)
		want  string
		lost  int
	}{
		"an event without deliveries": {spoil: func(s *story) { s.rows, s.state.done = nil, 0 }, want: "has no delivery for stock.move", lost: 3},
		"a delivery missing":          {spoil: func(s *story) { s.rows, s.state.done = s.rows[1:], 2 }, want: "has no delivery for mail.receipt", lost: 1},
		"a delivery pending": {
			spoil: func(s *story) { s.rows[0].status, s.state.done = "pending", 2 }, want: "is pending after 0 failures, and should be delivered", lost: 1,
		},
		"delivered and never run": {spoil: func(s *story) { delete(s.ev.runs, s.w("mail.receipt")) }, want: "no run of it has succeeded", lost: 1},
		"delivered by a run that was cut": {
			spoil: func(s *story) { s.ev.runs[s.w("mail.receipt")][0].result = "cut" }, want: "no run of it has succeeded", lost: 1,
		},
		"two rows": {spoil: func(s *story) {
			s.rows, s.state.done = append(s.rows, s.rows[0]), 4
		}, want: "has more than one row"},
		"half of an event that was not confirmed": {spoil: func(s *story) {
			s.ev.events[s.id] = told{}
			s.rows, s.state.done = s.rows[1:], 2
		}, want: "(committed: false, in event_queue: false) has no delivery for mail.receipt", lost: 1},
		"an event that nobody published": {spoil: func(s *story) { delete(s.ev.events, s.id) }, want: "nobody published the event"},
		"another's subscriber":           {spoil: func(s *story) { s.rows[0].w.key, s.rows[0].name = "legacy.sync", "shop.order.placed" }, want: "should not be", lost: 1},
		"another tenant":                 {spoil: func(s *story) { s.rows[0].w.tenant = "nobody" }, want: "should not be", lost: 1},
		"rolled back and there":          {kind: undone, spoil: func(*story) {}, want: "was rolled back, and has deliveries"},
		"its own row is missing":         {kind: inTx, spoil: func(s *story) { clear(s.state.orders) }, want: "the application's row there: false"},
		"its own row without deliveries": {kind: inTx, spoil: func(s *story) {
			s.ev.events[s.id] = told{}
			s.rows, s.state.done = nil, 0
		}, want: "its deliveries there: false, the application's row there: true"},
		"its own row of another tenant": {kind: inTx, spoil: func(s *story) { s.state.orders[s.id] = "nobody" }, want: "the application's row there: true"},
		"a foreign own row":             {spoil: func(s *story) { s.state.orders[uuid.UUID{1}] = "acme" }, want: "nobody published it"},
		"a zombie's failure was written": {spoil: func(s *story) {
			s.rows[0].attempts, s.rows[0].history = 1, 1
			s.ran("mail.receipt", 2, 5, 6, "fail")
		}, want: "is delivered after 1 failures, and should be delivered after 0"},
		"a zombie's success was written": {spoil: func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "ok")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.ran("mail.receipt", 2, 23.4, 27, "ok")
			s.ev.refused[refusal{2, "row of mail.receipt"}] = 1 // the wrong one was refused
		}, want: "process 1 was overtaken while it ran this, and its outcome was not refused"},
		"a zombie's success was written, and its process killed later": {spoil: func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "ok")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.killed(1, 28)
			s.ran("mail.receipt", 2, 23.4, 27, "ok")
		}, want: "process 1 was overtaken while it ran this, and its outcome was not refused"},
		"a failure was not written": {
			mail: script{by: fails, failures: 2}, spoil: func(s *story) { s.rows[0].attempts, s.rows[0].history = 1, 1 },
			want: "is delivered after 1 failures, and should be delivered after 2",
		},
		"a failure counted and not recorded": {
			mail: script{by: fails, failures: 2}, spoil: func(s *story) { s.rows[0].history = 1 }, want: "2 failures were counted and 1 recorded",
		},
		"a failure counted that was none": {
			mail: script{by: fails, failures: 2}, spoil: func(s *story) { s.ev.runs[s.w("mail.receipt")][0].result = "cut" },
			want: "2 failures were counted, and 1 runs have failed",
		},
		"a deadline missed that is none": {spoil: func(s *story) {
			s.rows[0].attempts, s.rows[0].history, s.rows[0].timeouts = 1, 1, 1
		}, want: "is delivered after 1 failures, and should be delivered after 0"},
		"a clock that is far off, and relays": {spoil: func(s *story) { s.state.latest = time.Now().Add(farShift) }, want: "whose clock is far off"},
		"queued by nobody": {spoil: func(s *story) {
			s.queued()
			s.ev.events[s.id] = told{committed: at(1)}
		}, want: "in event_queue (7), and nobody published it through that"},
		"rolled back and queued": {kind: undone, spoil: func(s *story) {
			s.rows, s.state.done = nil, 0
			s.queued()
		}, want: "was rolled back, and is in event_queue"},
		"queued and gone": {spoil: func(s *story) {
			s.queued()
			clear(s.state.queue)
		}, want: "was committed to event_queue, and is not in it"},
		"queued as another": {spoil: func(s *story) {
			s.queued()
			s.enqueued(func(e *entry) { e.tenant = "nobody" })
		}, want: "is shop.order.placed of nobody, and should be"},
		"not relayed": {spoil: func(s *story) {
			s.queued()
			s.enqueued(func(e *entry) { e.status = "processing" })
		}, want: "in event_queue (7) is processing after 0 attempts", lost: 1},
		"dead_lettered": {spoil: func(s *story) {
			s.queued()
			s.enqueued(func(e *entry) { e.status, e.lastError = "dead_lettered", "for a reason" })
		}, want: "in event_queue (7) is dead_lettered after 0 attempts (for a reason)", lost: 1},
		"an attempt spent on a relay that was killed": {spoil: func(s *story) {
			s.queued()
			s.enqueued(func(e *entry) { e.attempts = 1 })
		}, want: "is done, and 1 attempts of it have failed"},
		"done, not confirmed, and without deliveries": {spoil: func(s *story) {
			s.queued()
			s.ev.events[s.id] = told{tried: true}
			s.rows, s.state.done = nil, 0
		}, want: "(committed: false, in event_queue: true) has no delivery for stock.move", lost: 3},
		"dead for no reason":             {spoil: func(s *story) { s.rows[0].status, s.state.done = "dead", 2 }, want: "is dead after 0 failures"},
		"dead too early":                 {mail: script{by: fails, failures: maxAttempts}, spoil: func(s *story) { s.rows[0].attempts, s.rows[0].history = 4, 4 }, want: "is dead after 4 failures"},
		"not dead":                       {mail: script{by: parks, failures: 1}, spoil: func(s *story) { s.rows[0].status, s.state.done = "delivered", 3 }, want: "and should be dead", lost: 1},
		"a crash left behind":            {spoil: func(s *story) { s.rows[0].unfinished = 1 }, want: "counts 1 crashes"},
		"a claim left behind":            {spoil: func(s *story) { s.state.claims = 1 }, want: "1 claims are left in progress"},
		"a row of the ledger is missing": {spoil: func(s *story) { s.state.done-- }, want: "the ledger says that 2 are done, and 3 rows are delivered"},
		"a row no longer pending": {spoil: func(s *story) {
			r := childReader{ev: s.ev, n: 2}
			if err := r.line("g", 1, []string{"d"}); err != nil {
				panic(err)
			}
		}, want: "the row of a run was no longer pending"},
		"a clock that is far off": {spoil: func(s *story) { s.ev.lives[1].shift = farShift }, want: "whose clock was 20m0s off"},
		"a process that broke":    {spoil: func(s *story) { s.ev.lives[2].code = 1 }, want: "process 2 has ended by itself, with code 1"},
		"a process that panicked": {spoil: func(s *story) {
			s.ev.lives[2].code = 2
		}, want: "process 2 has ended by itself, with code 2"},
		"a run without an end": {spoil: func(s *story) {
			s.ran("mail.receipt", 2, 20, 0, "")
			s.ev.lives[2].ended = 0
		}, want: "process 2 has ended neither its run nor itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.kind == "" {
				c.kind = direct
			}
			if c.mail == (script{}) {
				c.mail = ok
			}
			s := newStory(t, c.kind, c.mail)
			c.spoil(s)
			v := s.judge(t)
			if v.good() || v.lost != c.lost || v.overlaps != 0 || !strings.Contains(strings.Join(v.texts, "\n"), c.want) {
				t.Errorf("%d lost, %d overlaps, want %d and 0, and %q among:\n%s", v.lost, v.overlaps, c.lost, c.want, strings.Join(v.texts, "\n"))
			}
		})
	}
}

// What is no fault of Loam's is not called one.
func TestWhatIsExcused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *story){
		"not confirmed, and there":     func(s *story) { s.ev.events[s.id] = told{} },
		"not confirmed, and not there": func(s *story) { s.ev.events[s.id], s.rows, s.state.done = told{}, nil, 0 },
		"queued, not confirmed, and there": func(s *story) {
			s.queued()
			s.ev.events[s.id] = told{tried: true}
		},
		"tried through event_queue, and not there": func(s *story) { s.ev.events[s.id], s.rows, s.state.done = told{tried: true}, nil, 0 },
		"a process that found no database at its start": func(s *story) {
			s.ev.lives[2].code = exitNotUp
		},
		"a process that was told to stop with a full disk": func(s *story) {
			s.ev.lives[2].code = exitLate
		},
		"a zombie's success that was refused": func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "ok")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.ran("mail.receipt", 2, 23.4, 27, "ok")
			s.ev.refused[refusal{1, "row of mail.receipt"}] = 1
		},
		"a zombie's success that a kill kept from being tried": func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "ok")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.killed(1, 25.1)
			s.ran("mail.receipt", 2, 23.4, 27, "ok")
		},
		"a zombie's success that a full disk and a kill kept from being tried": func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "ok")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.killed(1, 28)
			s.ev.full = [][2]int64{{at(24), at(27.5)}}
			s.ran("mail.receipt", 2, 23.4, 27, "ok")
		},
		"a zombie's success that another suspended process and a kill kept from being tried": func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "ok")
			s.suspended(1, 21, 25, 22.9, 19.999)
			s.killed(1, 28)
			s.ran("mail.receipt", 2, 23.4, 23.9, "ok")
			s.suspended(2, 24, 27.5, 0, 0)
		},
		"a zombie that nobody has overtaken": func(s *story) {
			s.ran("mail.receipt", 1, 20, 25.01, "ok")
			s.suspended(1, 21, 25, 22.9, 19.999)
		},
		"a failure that a kill kept from being written": func(s *story) {
			s.ran("mail.receipt", 2, 4, 4.1, "fail")
			s.killed(2, 4.2)
		},
	} {
		s := newStory(t, direct, ok)
		change(s)
		if v := s.judge(t); !v.good() {
			t.Errorf("%s: %v", name, v.texts)
		}
	}
}

// The lines of the diaries come to what they say, and a line that is none is an error.
func TestDiaries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	parent, err := openDiary(dir, parentDiary)
	if err != nil {
		t.Fatal(err)
	}
	child, err := openDiary(dir, childDiary(1))
	if err != nil {
		t.Fatal(err)
	}
	id, other := uuid.UUID{1}, uuid.UUID{2}
	w := what{id, "acme", "stock.move"}
	parent.addAt("crowd", 4, 3)
	parent.addAt("start", 5, 1, "work", 30, int64(-time.Millisecond), 4711)
	parent.addAt("start", 6, 2, "-", 30, 0, 4712)
	parent.addAt("lease", 7, 1, "acme", id, "stock.move", 9, 8)
	parent.addAt("stop", 10, 1, 20)
	parent.addAt("kill", 30, 1, 31)
	parent.addAt("exit", 40, 2, 1)
	parent.addAt("full", 41, 42)
	parent.addAt("over", 43, 12345)
	parent.addAt("aged", 44, id)
	parent.addAt("broker", 50, 678)
	parent.addAt("message", 43, id)
	parent.addAt("message", 49, id)
	child.addAt("s", 11, 1, "acme", id, "stock.move")
	child.addAt("s", 12, 2, "acme", id, "stock.move")
	child.addAt("c", 13, 1, "lost")
	child.addAt("e", 14, 1, "cut")
	child.addAt("c", 15, 1, "end")
	child.addAt("c", 16, 2, "shutdown")
	child.addAt("r", 17, "d")
	child.addAt("a", 17, "d")
	child.addAt("t", 18, id, captureNATS)
	child.addAt("f", 19, id, "full")
	child.addAt("k", 20, id, captureOutbox)
	child.addAt("k", 21, id)
	child.addAt("t", 22, other)
	child.addAt("v", 23, "it\nis bad")

	ev, err := readEvidence(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := ev.lives[1]
	if !l.work || l.began != 5 || l.shift != -time.Millisecond || l.struck != 30 || l.killed != 31 || l.ended != 0 || len(l.stopped) != 1 {
		t.Errorf("process 1: %+v", l)
	}
	if s := l.stopped[0]; s.from != 10 || s.until != 20 || !maps.Equal(s.leases, map[what]leased{w: {9e6, 8e6}}) {
		t.Errorf("suspended: %+v", s)
	}
	if l := ev.lives[2]; l.work || l.ended != 40 || l.code != 1 {
		t.Errorf("process 2: %+v", l)
	}
	if len(ev.subscribers) != len(subscribers)+3 || ev.attacked != 12345 {
		t.Errorf("%d subscribers, %d deliveries when the attacks ended", len(ev.subscribers), ev.attacked)
	}
	if !ev.broker || ev.handedOut != 678 || ev.aged[id] != 44 || !slices.Equal(ev.stream[id], []int64{43, 49}) {
		t.Errorf("the broker: %v, %d deliveries, stream %v, aged %v", ev.broker, ev.handedOut, ev.stream, ev.aged)
	}
	if !slices.Equal(ev.full, [][2]int64{{41, 42}}) {
		t.Errorf("full: %v", ev.full)
	}
	runs := []handled{{process: 1, start: 11, cancel: 13, end: 14, lost: true, result: "cut"}, {process: 1, start: 12, cancel: 16}}
	if !slices.Equal(ev.runs[w], runs) {
		t.Errorf("runs: %+v", ev.runs)
	}
	if ev.events[id] != (told{committed: 20, failures: 1, tried: true, queued: true}) || ev.refused[refusal{1, "d"}] != 1 || ev.givenUp != 1 || ev.errors["full"] != 1 {
		t.Errorf("events %v, refused %v, given up %d, errors %v", ev.events, ev.refused, ev.givenUp, ev.errors)
	}
	if !slices.Equal(ev.violation, []string{"process 1: it | is bad"}) {
		t.Errorf("violations: %q", ev.violation)
	}
	if left, err := unresolved(dir, 1); err != nil || !slices.Equal(left, []uuid.UUID{other}) {
		t.Errorf("unresolved: %v (%v)", left, err)
	}
	if left, err := unresolved(dir, 99); err != nil || len(left) != 0 {
		t.Errorf("unresolved of a process that wrote nothing: %v (%v)", left, err)
	}

	child.addAt("e", 24, 77, "ok") // of a run that did not begin
	if _, err := readEvidence(dir); err == nil {
		t.Error("an end without a start was read")
	}
	if err := os.WriteFile(filepath.Join(dir, childDiary(1)), []byte("s 11\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readEvidence(dir); err == nil {
		t.Error("a start without a run was read")
	}
}

// A panic that killed a process is found in what it said last.
func TestPanicsAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"time=1 level=WARN msg=\"x panic: y\"\n":        0,
		"panic: runtime error\n\ngoroutine 1 [running]": 1,
		"fatal error: all goroutines are asleep\n":      1,
		"[signal SIGBUS: bus error code=2]\n":           1,
	} {
		file := filepath.Join(t.TempDir(), "stderr")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		v := newVerdict()
		if err := panicsIn(file, v); err != nil || v.wrongs != want {
			t.Errorf("%q: %d wrongs, want %d (%v)", text, v.wrongs, want, err)
		}
	}
}

// A process that is suspended again before it could write had no time to be refused.
func TestAfterWritable(t *testing.T) {
	t.Parallel()
	ev := &evidence{full: [][2]int64{{40, 50}}, lives: map[int]*life{1: {stopped: []suspension{{from: 10, until: 20}, {from: 21, until: 30}}}}}
	for _, c := range []struct{ from, long, want int64 }{{0, 5, 5}, {0, 10, 10}, {9, 1, 10}, {9, 2, 21}, {9, 3, 31}, {15, 1, 21}, {35, 6, 51}, {60, 2, 62}} {
		if got := ev.afterWritable(c.from, c.long); got != c.want {
			t.Errorf("%d for %d: %d, want %d", c.from, c.long, got, c.want)
		}
	}
}
