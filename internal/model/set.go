package model

import "hash/maphash"

// chunk is how many states are stored together: what is stored is never copied.
const chunk = 1 << 10

// set numbers states, from 0, in the order in which they come. A map would take twice the memory and the time.
type set[S comparable] struct {
	n      uint32
	chunks [][]S
	table  []uint64 // open addressing: the high half of the hash, and the state's number plus 1
	mask   uint64   // of the table's places
	seed   maphash.Seed
}

func newSet[S comparable]() *set[S] {
	const places = 1 << 12
	return &set[S]{table: make([]uint64, places), mask: places - 1, seed: maphash.MakeSeed()}
}

func (x *set[S]) at(n uint32) *S { return &x.chunks[n/chunk][n%chunk] }

// number returns the number of s, and whether it is new.
func (x *set[S]) number(s *S) (n uint32, isNew bool) {
	if 2*uint64(x.n) > x.mask {
		x.grow()
	}
	h := maphash.Comparable(x.seed, *s)
	for k := h & x.mask; ; k = (k + 1) & x.mask {
		e := x.table[k]
		if e == 0 {
			n = x.n
			if n%chunk == 0 {
				x.chunks = append(x.chunks, make([]S, chunk))
			}
			*x.at(n) = *s
			x.n++
			x.table[k] = h>>32<<32 | uint64(x.n)
			return n, true
		}
		if n = uint32(e&(1<<32-1)) - 1; e>>32 == h>>32 && *x.at(n) == *s {
			return n, false
		}
	}
}

func (x *set[S]) grow() {
	x.table = make([]uint64, 4*len(x.table))
	x.mask = 4*x.mask + 3
	for n := range x.n {
		h := maphash.Comparable(x.seed, *x.at(n))
		k := h & x.mask
		for x.table[k] != 0 {
			k = (k + 1) & x.mask
		}
		x.table[k] = h>>32<<32 | uint64(n+1)
	}
}
