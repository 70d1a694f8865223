package model

import (
	"fmt"
	"slices"
	"strings"
)

// trace finds the way to state k and the violation there. It walks it again, so that the names of workers and rows stay the
// same along it.
func (g *graph[S]) trace(k uint32, bad Violation) []string {
	var way []uint32
	for n := k; n > 0; n = g.parent[n] {
		way = append(way, n)
	}
	p := g.open() // explore is in the middle of the other one's edges
	at := p.initial()
	var lines []string
	for _, n := range slices.Backward(way) {
		for _, e := range p.all(&at) {
			same := e.to
			if p.canonical(&same); e.bad == OK && same == *g.states.at(n) {
				lines = append(lines, e.String())
				at = e.to
				break
			}
		}
	}
	if bad == Orphan {
		return append(lines, "=> ORPHAN: from here no steps lead to the rows being settled")
	}
	for _, e := range p.all(&at) {
		if e.bad == bad {
			return append(lines, e.String(), "=> "+bad.String())
		}
	}
	return lines
}

func (e *edge[S]) String() string {
	var s strings.Builder
	if e.who != "" {
		s.WriteString(e.who + ": ")
	}
	s.WriteString(e.name)
	if e.row >= 0 {
		fmt.Fprintf(&s, " (row %d)", e.row)
	}
	for r, p := range e.plan {
		if p != "" {
			fmt.Fprintf(&s, "; row %d: %s", r, p)
		}
	}
	return s.String()
}
