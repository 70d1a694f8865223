package model

// edge is a step from one state to another.
type edge[S comparable] struct {
	who   string // a process; "": another actor, which the name names
	row   int8   // -1: the whole job
	name  string
	plan  [maxRows]string // what the claim's transaction does with each row
	to    S
	bad   Violation
	final bool // an operator's step, which may change a final row
}

var workerNames = [workers]string{"worker 0", "worker 1", "worker 2"}

// steps collects the edges that leave a state. It is reused, so that exploring allocates little.
type steps struct {
	c    *config
	from state
	out  []edge[state]
}

func (b *steps) initial() state { return b.c.initial() }

func (b *steps) canonical(s *state) { b.c.canonical(s) }

func (b *steps) settled(s *state) bool { return b.c.settled(s) }

func (b *steps) add(who, row int, name string, to *state, bad Violation) *edge[state] {
	b.out = append(b.out, edge[state]{row: int8(row), name: name, to: *to, bad: bad}) //nolint:gosec // small numbers
	e := &b.out[len(b.out)-1]
	if who >= 0 {
		e.who = workerNames[who]
	}
	return e
}

// all returns the edges that leave s.
func (b *steps) all(s *state) []edge[state] {
	b.from, b.out = *s, b.out[:0]
	b.tick()
	for i := range b.c.procs {
		b.worker(i)
	}
	for r := range b.c.rows {
		b.sweep(r)
		b.lostCheck(r)
		b.operator(r)
	}
	for i := range b.out {
		b.c.check(&b.from, &b.out[i])
	}
	return b.out
}

func (b *steps) tick() {
	c, n := b.c, b.from
	for r := range c.rows {
		w := &n.row[r]
		w.next = c.clamp(w.next - 1)
		if w.led == inProgress {
			w.lease = c.clamp(w.lease - 1)
			if w.nobody && c.renewOrphan {
				w.lease = lease
			}
		}
		for i := range n.w {
			if u := &n.w[i].run[r]; u.pc >= running && u.pc < leaving {
				u.lease, u.tok = c.clamp(u.lease-1), c.clamp(u.tok-1)
			}
		}
	}
	for k := range n.wake[0] {
		now := min(n.wake[0][k]+n.wake[1][k], 2)
		if c.rows == 2 {
			now = min(now, 1)
		}
		for t := 0; t < horizon; t++ {
			n.wake[t][k] = n.wake[t+1][k]
		}
		n.wake[horizon][k], n.wake[0][k] = 0, now
	}
	if n != b.from {
		b.add(-1, -1, "a tick", &n, OK)
	}
}
