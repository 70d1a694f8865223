package model

import "slices"

// Result is what exploring a variant found.
type Result struct {
	States uint32
	// Partial says that there are more states than it was to look at: what is wrong in the others, and orphans, are not known.
	Partial bool
	// Found are the ways in which it fails, the one with the shortest trace first; none if it holds.
	Found []Violation
	// Trace is the shortest way to the first, a line a step.
	Trace []string
}

// protocol is what explore looks at: states, and the steps between them.
type protocol[S comparable] interface {
	initial() S
	// canonical makes states one that differ in names only.
	canonical(s *S)
	// all returns the edges that leave s. The next call overwrites them.
	all(s *S) []edge[S]
	// settled: nothing is left to do.
	settled(s *S) bool
}

// graph is what was reached: the states, by their distance from the first, and the steps between them.
type graph[S comparable] struct {
	open   func() protocol[S]
	p      protocol[S]
	states *set[S]
	parent []uint32
	from   []uint32 // where each state's edges begin in to
	to     []uint32
	edges  uint32 // in to
	cut    []bool // by state: a violation leaves it
}

// explore looks at every state that can be reached, and not behind a violation; at limit states at most, if limit is not 0.
func explore[S comparable](open func() protocol[S], limit uint32) Result {
	p := open()
	g := &graph[S]{open: open, p: p, states: newSet[S](), parent: []uint32{0}}
	first := p.initial()
	p.canonical(&first)
	g.states.number(&first)
	var res Result
	found := func(q uint32, bad Violation) {
		if slices.Contains(res.Found, bad) {
			return
		}
		if res.Found = append(res.Found, bad); len(res.Found) == 1 {
			res.Trace = g.trace(q, bad)
		}
	}
	for q := uint32(0); q < g.states.n; q++ {
		if limit > 0 && g.states.n > limit {
			res.States, res.Partial = g.states.n, true
			return res
		}
		g.from, g.cut = append(g.from, g.edges), append(g.cut, false)
		edges := p.all(g.states.at(q))
		for k := range edges {
			e := &edges[k]
			if e.bad != OK {
				g.cut[q] = true
				found(q, e.bad)
				continue
			}
			p.canonical(&e.to)
			n, isNew := g.states.number(&e.to)
			if isNew {
				g.parent = append(g.parent, q)
			}
			g.to = append(g.to, n)
			g.edges++
		}
	}
	g.from = append(g.from, g.edges)
	res.States = g.states.n
	if q, some := g.orphan(); some {
		found(q, Orphan)
	}
	return res
}

// orphan returns the first state from which no steps lead to a settled one. What is behind a violation is not known.
func (g *graph[S]) orphan() (n uint32, some bool) {
	first := make([]uint32, g.states.n+1) // where the edges into a state begin in back
	for _, t := range g.to {
		first[t+1]++
	}
	for k := range g.states.n {
		first[k+1] += first[k]
	}
	back, next := make([]uint32, len(g.to)), slices.Clone(first)
	for q := range g.states.n {
		for _, t := range g.to[g.from[q]:g.from[q+1]] {
			back[next[t]] = q
			next[t]++
		}
	}
	good := make([]bool, g.states.n)
	var todo []uint32
	for k := range g.states.n {
		if g.cut[k] || g.p.settled(g.states.at(k)) {
			good[k] = true
			todo = append(todo, k)
		}
	}
	for len(todo) > 0 {
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range back[first[k]:first[k+1]] {
			if !good[p] {
				good[p] = true
				todo = append(todo, p)
			}
		}
	}
	for k := range g.states.n {
		if !good[k] {
			return k, true
		}
	}
	return 0, false
}
