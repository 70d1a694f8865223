package model

import (
	"fmt"
	"slices"
	"strings"
)

// trace finds the way to state k and the violation there. It walks it again, so that the names of workers and rows stay the
// same along it.
func (g *graph) trace(k uint32, bad Violation) []string {
	var way []uint32
	for n := k; n > 0; n = g.parent[n] {
		way = append(way, n)
	}
	b := steps{c: g.c}
	at := g.c.initial()
	var lines []string
	for _, n := range slices.Backward(way) {
		for _, e := range b.all(&at) {
			same := e.to
			if g.c.canonical(&same); e.bad == OK && same == *g.states.at(n) {
				lines = append(lines, e.String())
				at = e.to
				break
			}
		}
	}
	if bad == Orphan {
		return append(lines, "=> ORPHAN: from here no steps lead to the rows being settled")
	}
	for _, e := range b.all(&at) {
		if e.bad == bad {
			return append(lines, e.String(), "=> "+bad.String())
		}
	}
	return lines
}

func (e *edge) String() string {
	var s strings.Builder
	if e.who >= 0 {
		fmt.Fprintf(&s, "worker %d: ", e.who)
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
