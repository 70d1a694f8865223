package model

// edge is a step from one state to another.
type edge struct {
	who   int8 // the worker; -1: another actor
	row   int8 // -1: the whole job
	name  string
	plan  [maxRows]string // what the claim's transaction does with each row
	to    state
	bad   Violation
	final bool // an operator's step, which may change a final row
}

// steps collects the edges that leave a state. It is reused, so that exploring allocates little.
type steps struct {
	c    *config
	from state
	out  []edge
}

func (b *steps) add(who, row int, name string, to *state, bad Violation) *edge {
	b.out = append(b.out, edge{who: int8(who), row: int8(row), name: name, to: *to, bad: bad}) //nolint:gosec // small numbers
	return &b.out[len(b.out)-1]
}

// all returns the edges that leave s.
func (b *steps) all(s *state) []edge {
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
