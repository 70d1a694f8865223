package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// verdict is what comes out.
type verdict struct {
	events, kills, stops int
	queued, posted       int // events through event_queue, and in the books
	rows, runs, repeats  int
	attacked             int // rows that were final when the attacks ended
	lost, overlaps       int
	streamed             bool // there was a broker
	messages, handedOut  int  // in the stream, and to the application
	orphaned, unmarked   int  // rows that dead relays had claimed, and of those, that the stream had already
	refused              int
	overtaken            int // runs of zombies whose outcome had to be refused
	recoveries           int
	recoveryMax, waited  time.Duration
	errors               map[string]int // of publishes
	givenUp              int
	wrongs               int
	texts                []string // of the first wrongs
}

// textLimit is how many wrongs are printed.
const textLimit = 50

func newVerdict() *verdict { return &verdict{errors: map[string]int{}} }

// wrong notes an invariant that did not hold.
func (v *verdict) wrong(format string, args ...any) {
	v.wrongs++
	if len(v.texts) < textLimit {
		v.texts = append(v.texts, fmt.Sprintf(format, args...))
	}
}

func (v *verdict) recovered(took time.Duration, ok bool) {
	if ok {
		v.recoveries++
		v.recoveryMax = max(v.recoveryMax, took)
	}
}

func (v *verdict) good() bool { return v != nil && v.wrongs == 0 && v.lost == 0 && v.overlaps == 0 }

// deliveries is the line before the last.
func (v *verdict) deliveries() string {
	return fmt.Sprintf("deliveries=%d attacked=%d", v.rows, v.attacked)
}

// line is the last one.
func (v *verdict) line() string {
	return fmt.Sprintf("events=%d kills=%d stops=%d repeats=%d lost=%d overlaps=%d refused=%d recovery_max=%v",
		v.events, v.kills, v.stops, v.repeats, v.lost, v.overlaps, v.refused, v.recoveryMax.Round(time.Millisecond))
}

func (v *verdict) print(w io.Writer, attacks map[string]int, took time.Duration) {
	fmt.Fprintf(w, "%v in all; attacks:", took.Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		fmt.Fprintf(w, " %s %d;", name, attacks[name])
	}
	fmt.Fprintf(w, "\n%d deliveries of %d events, %d runs; %d runs were cut by a kill or a stop and begun again elsewhere; %d went on\n"+
		"all the same, as zombies, and their outcomes were to be refused\n", v.rows, v.events, v.runs, v.recoveries, v.overtaken)
	fmt.Fprintf(w, "the longest wait from a commit to the first run: %v; errors that publishers got and published again after:", v.waited.Round(time.Millisecond))
	if len(v.errors) == 0 {
		fmt.Fprint(w, " none")
	}
	for _, word := range slices.Sorted(maps.Keys(v.errors)) {
		fmt.Fprintf(w, " %s %d;", word, v.errors[word])
	}
	fmt.Fprintf(w, "\noutcomes given up at shutdown: %d; events through event_queue: %d; in the books: %d\n", v.givenUp, v.queued, v.posted)
	if v.streamed {
		fmt.Fprintf(w, "messages in the stream: %d; given to the application: %d times; rows whose relay was killed: %d, %d of them after the broker had the event\n",
			v.messages, v.handedOut, v.orphaned, v.unmarked)
	}
	if v.wrongs == 0 {
		fmt.Fprintln(w, "every invariant held")
		return
	}
	fmt.Fprintf(w, "%d violations:\n", v.wrongs)
	for _, text := range v.texts {
		fmt.Fprintln(w, " -", text)
	}
	if v.wrongs > len(v.texts) {
		fmt.Fprintf(w, " - and %d more\n", v.wrongs-len(v.texts))
	}
}
