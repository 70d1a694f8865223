package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
)

// throughput measures how many events a second are published and delivered, beside plain River.
type throughput struct {
	target      target
	events      int
	subscribers []int
	publishers  int
	rounds      int
	json        bool
	logger      *slog.Logger
}

func throughputCommand() *cobra.Command {
	var t throughput
	cmd := &cobra.Command{
		Use:   "throughput",
		Short: "Measure how many events a second are published and delivered, beside plain River",
		Long: "Measure how many events a second go all the way: published by several goroutines, each one event after the other, while\n" +
			"the same process works them, until every delivery is committed as delivered. Then all rows are checked: each delivered, by one run.\n" +
			"\n" +
			"In mode river there is no Loam: as many jobs for each event as it has subscribers, with the same payload, inserted in one\n" +
			"transaction and worked by a worker that does nothing, until River has committed them as completed. River has the driver of\n" +
			"its own for the database, on the connections that Loam would have, and the two settings that Loam gives it: 100 workers,\n" +
			"and 5 ms between fetches.\n" +
			"\n" +
			"Each measurement has a fresh database; 50 events go before those that count, and are copied to a past of up to 20,000 rows. In a round all modes are measured one after\n" +
			"the other, and compared. CPU is that of this process: on PostgreSQL the server's own is not in it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t.logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			return t.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	t.target.flags(cmd)
	cmd.Flags().IntVar(&t.events, "events", 5000, "how many `events` count in each measurement")
	cmd.Flags().IntSliceVar(&t.subscribers, "subscribers", []int{1, 3, 10}, "how many `subscribers` each event has; several, with commas, are measured in turn")
	cmd.Flags().IntVar(&t.publishers, "publishers", 8, "how many `goroutines` publish")
	cmd.Flags().IntVar(&t.rounds, "rounds", 3, "how many `times` all modes are measured; the medians are reported")
	cmd.Flags().BoolVar(&t.json, "json", false, "print a line of JSON for each mode")
	return cmd
}

func (t *throughput) validate() error {
	var errs []error
	for _, f := range []struct {
		flag  string
		value int
	}{{"--events", t.events}, {"--publishers", t.publishers}, {"--rounds", t.rounds}} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("%s: is %d, it must be positive", f.flag, f.value))
		}
	}
	for _, n := range t.subscribers {
		if n < 1 || n > maxSubscribers {
			errs = append(errs, fmt.Errorf("--subscribers: has %d, it must be between 1 and %d", n, maxSubscribers))
		}
	}
	return errors.Join(errs...)
}

// maxSubscribers is what one statement inserts rows for.
const maxSubscribers = 100

func (t *throughput) run(ctx context.Context, out io.Writer) error {
	if err := t.validate(); err != nil {
		return err
	}
	for i, subscribers := range t.subscribers {
		reports, err := t.group(ctx, subscribers)
		if err == nil {
			err = t.print(out, reports, i == 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// group measures all modes, and again for each round, and returns a report for each.
func (t *throughput) group(ctx context.Context, subscribers int) ([]throughputReport, error) {
	all := modes()
	reports := make([]throughputReport, len(all))
	for round := range t.rounds {
		for i := range all {
			i = (i + round) % len(all) // no mode is always the first
			f, r, err := t.measure(ctx, all[i], subscribers)
			if err != nil {
				return nil, fmt.Errorf("%s, %d subscribers: %w", all[i].name, subscribers, err)
			}
			reports[i].facts, reports[i].Rounds = f, append(reports[i].Rounds, r)
		}
	}
	base := reports[slices.IndexFunc(all, func(m mode) bool { return m.name == plainRiver })].Rounds
	for i, m := range all {
		r := &reports[i]
		r.Benchmark, r.Mode, r.Subscribers, r.Events, r.Publishers = "throughput", m.name, subscribers, t.events, t.publishers
		for n := range r.Rounds {
			r.Rounds[n].ToRiver = r.Rounds[n].EventsPerSecond / base[n].EventsPerSecond
		}
		r.figures = medians(r.Rounds)
		r.DeliveriesPerSecond = r.EventsPerSecond * float64(subscribers)
	}
	return reports, nil
}

func (t *throughput) print(out io.Writer, reports []throughputReport, first bool) error {
	if t.json {
		enc := json.NewEncoder(out)
		for _, r := range reports {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	if first {
		if _, err := fmt.Fprintf(out, "%v\n%d events, %d publishers, medians of %d rounds; CPU is this process's\n\n%11s %-8s %9s %13s %9s %15s %13s\n",
			reports[0].facts, t.events, t.publishers, t.rounds,
			"subscribers", "mode", "events/s", "deliveries/s", "to river", "of the rounds", "CPU/event"); err != nil {
			return err
		}
	}
	for _, r := range reports {
		if _, err := fmt.Fprintln(out, r); err != nil {
			return err
		}
	}
	return nil
}
