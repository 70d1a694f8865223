package model

const (
	maxRows = 2
	workers = 3
)

// The status of a row.
const (
	pending int8 = iota
	delivered
	dead
)

// The status in the ledger.
const (
	free int8 = iota
	inProgress
	done
)

// Where a worker is with its job.
const (
	idle     int8 = iota
	fetched       // has a job, has read nothing
	selected      // has looked at the rows
	repeat        // has claimed, the answer was lost
	busy          // has claimed
)

// Where a run is.
const (
	none      int8 = iota
	asked          // claimed, the answer was lost
	running        // the handler runs
	stuck          // the handler never returns
	succeeded      // the handler has returned, the outcome is not yet committed; so up to lost
	failed
	snoozed
	cut
	lost
	unsure  // a transactional handler's commit was not answered
	leaving // the outcome is committed, the run is still in its process's table
	sawDone // has read that the ledger says done, has not yet marked the row
)

// row is a delivery, its row in the ledger, and its subscriber's pause.
type row struct {
	status, att int8
	next        int8 // next_attempt_at
	unf, runs   int8
	payload     int8
	led, lease  int8
	nobody      bool // the claim's taker does not know of it, or is gone
	paused      bool
	announced   bool // resume has inserted its wake-up, and not yet lifted the pause
	swept       bool // the sweep has selected the row, and not yet inserted its wake-up

	// What really happened.
	fails   int8 // recorded since the last redelivery
	crashes int8 // runs lost since the last outcome
	want    bool // an operator asked for a run that has not started yet
	effect  int8 // how often a transactional handler's effect was committed, since a delivered row was redelivered
}

// run is a worker's claim on a row.
type run struct {
	pc      int8
	tok     int8 // started_at; low: no longer equal to anything
	eq      bool // started_at is the ledger's
	mine    bool // the claim in the ledger is this run's
	lease   int8 // as the worker knows it
	snap    int8 // attempts, or the payload's version, as read
	twice   bool // the outcome was committed once, the answer was lost
	outside bool // found lost: no longer in its process's table
	voided  bool // an operator's decision has ended the claim, and the handler runs on until it is found lost
}

// worker is a process, or with config.oneProcess one of two jobs of a process.
type worker struct {
	alive bool
	pc    int8
	ids   int8 // the rows of its job, a set
	owes  int8 // rows to be handed on, a set
	run   [maxRows]run
}

// budget is how often things may still happen.
type budget struct{ crashes, redels, lostAnswers, snoozes, gone, anews, repubs, pauses, stucks, parks int8 }

type state struct {
	row  [maxRows]row
	w    [workers]worker
	wake [horizon + 1][1<<maxRows - 1]int8 // by time and set of rows
	left budget
}

func (c *config) initial() state {
	s := state{left: budget{c.crashes, c.redels, c.lostAnswers, c.snoozes, c.gone, c.anews, c.repubs, c.pauses, c.stucks, c.parks}}
	for r := range s.row {
		s.row[r].next = c.low()
		if r >= c.rows {
			s.row[r].status = delivered
		}
	}
	for i := range c.procs {
		s.w[i].alive = true
	}
	c.wake(&s, 1<<c.rows-1, 0)
	return s
}

// wake adds a wake-up. Two of a kind at once are needed for two workers to meet; more add nothing.
func (c *config) wake(s *state, ids, at int8) {
	if ids == 0 {
		return
	}
	at = min(max(at, 0), horizon)
	most := int8(1)
	if at == 0 && c.rows == 1 {
		most = 2
	}
	if s.wake[at][ids-1] < most {
		s.wake[at][ids-1]++
	}
}

// release deletes the ledger's row. Whoever held it has lost its token.
func (s *state) release(r int) {
	s.row[r].led, s.row[r].lease, s.row[r].nobody = free, 0, false
	s.disown(r)
}

// void is release by an operator.
func (s *state) void(r int) {
	for i := range s.w {
		if u := &s.w[i].run[r]; u.mine {
			u.voided = true
		}
	}
	s.release(r)
}

func (s *state) disown(r int) {
	for i := range s.w {
		s.w[i].run[r].mine, s.w[i].run[r].eq = false, false
	}
}

// end forgets a run, and with the last one its job: states that differ in what is dead are one.
func (s *state) end(i, r int) {
	s.w[i].run[r] = run{}
	s.rest(i)
}

func (s *state) rest(i int) {
	w := &s.w[i]
	for r := range w.run {
		if w.run[r].pc != none {
			return
		}
	}
	if w.owes == 0 {
		*w = worker{alive: w.alive}
	}
}

// tabled reports whether the run is in its process's table.
func (u *run) tabled() bool { return u.pc >= running && u.pc <= leaving && !u.outside }

// ending reports whether the handler has returned and the outcome is to be written.
func (u *run) ending() bool { return u.pc >= succeeded && u.pc <= lost }

// canonical makes states one that differ in the names of workers and rows only.
func (c *config) canonical(s *state) {
	if c.rows == 2 && s.row[1].before(&s.row[0]) {
		s.row[0], s.row[1] = s.row[1], s.row[0]
		for i := range s.w {
			w := &s.w[i]
			w.run[0], w.run[1] = w.run[1], w.run[0]
			w.ids, w.owes = swapped(w.ids), swapped(w.owes)
		}
		for t := range s.wake {
			s.wake[t][0], s.wake[t][1] = s.wake[t][1], s.wake[t][0]
		}
	}
	if c.symmetric() && s.w[1].before(&s.w[0]) {
		s.w[0], s.w[1] = s.w[1], s.w[0]
	}
}

// swapped is a set of rows with the rows' names exchanged.
func swapped(ids int8) int8 { return ids>>1 | ids&1<<1 }

func (w *worker) before(o *worker) bool {
	a, b := pack(bit(w.alive), w.pc, w.ids, w.owes), pack(bit(o.alive), o.pc, o.ids, o.owes)
	for r := 0; a == b && r < maxRows; r++ {
		a, b = w.run[r].pack(), o.run[r].pack()
	}
	return a < b
}

func (u *run) pack() uint64 {
	return pack(u.pc, u.tok, bit(u.eq), bit(u.mine), u.lease, u.snap, bit(u.twice)<<2|bit(u.outside)<<1|bit(u.voided))
}

func (r *row) before(o *row) bool {
	a, b := r.packed()
	x, y := o.packed()
	return a < x || a == x && b < y
}

func (r *row) packed() (a, b uint64) {
	return pack(r.status, r.att, r.next, r.unf, r.runs, r.payload, r.led, r.lease), pack(
		bit(r.nobody), bit(r.paused), bit(r.announced), bit(r.swept), r.fails, r.crashes, bit(r.want)<<4|r.effect)
}

func pack(xs ...int8) uint64 {
	var k uint64
	for _, x := range xs {
		k = k<<8 | uint64(uint8(x)) //nolint:gosec // any one-to-one image will do
	}
	return k
}

func bit(b bool) int8 {
	if b {
		return 1
	}
	return 0
}
