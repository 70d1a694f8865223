package main

import (
	"cmp"
	"fmt"
	"slices"
)

// figures are those of one measurement, or the medians of several.
type figures struct {
	// EventsPerSecond counts from the first publish until the last delivery is committed.
	EventsPerSecond float64 `json:"events_per_s"`
	// ToRiver is EventsPerSecond divided by that of plain River in the same round.
	ToRiver float64 `json:"ratio_to_river"`
	// CPUPerEvent is the processor time of this process, in microseconds; 0 where the system does not tell.
	CPUPerEvent float64 `json:"process_cpu_us_per_event"`
}

// throughputReport is a line of -json.
type throughputReport struct {
	Benchmark string `json:"benchmark"`
	facts
	Mode        string `json:"mode"`
	Subscribers int    `json:"subscribers"`
	Events      int    `json:"events"`
	Publishers  int    `json:"publishers"`
	// figures are the medians of Rounds, each for itself.
	figures
	DeliveriesPerSecond float64   `json:"deliveries_per_s"`
	Rounds              []figures `json:"rounds"`
}

func (r throughputReport) String() string {
	ratio := func(f figures) float64 { return f.ToRiver }
	byRatio := slices.SortedFunc(slices.Values(r.Rounds), func(a, b figures) int { return cmp.Compare(ratio(a), ratio(b)) })
	return fmt.Sprintf("%11d %-8s %9.0f %13.0f %9.2f %15s %10.0f µs", r.Subscribers, r.Mode, r.EventsPerSecond, r.DeliveriesPerSecond, r.ToRiver,
		fmt.Sprintf("%.2f - %.2f", ratio(byRatio[0]), ratio(byRatio[len(byRatio)-1])), r.CPUPerEvent)
}

func medians(rounds []figures) figures {
	of := func(f func(figures) float64) float64 {
		all := make([]float64, len(rounds))
		for i, r := range rounds {
			all[i] = f(r)
		}
		return median(all)
	}
	return figures{
		EventsPerSecond: of(func(f figures) float64 { return f.EventsPerSecond }),
		ToRiver:         of(func(f figures) float64 { return f.ToRiver }),
		CPUPerEvent:     of(func(f figures) float64 { return f.CPUPerEvent }),
	}
}

// median sorts all, which must not be empty. Of an even number it is the mean of the two in the middle.
func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
