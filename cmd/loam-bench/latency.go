package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/openloam/loam"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

const (
	benchTenant = "bench"
	benchEvent  = "bench.latency.sent"
	// warmUp events go before those that count: connections, statements, plans.
	warmUp = 50
	// arrival is how long an event may take before the measurement is given up.
	arrival = 30 * time.Second
)

// latency measures the way from a publish to the start of the handler, in one process, on an idle queue.
type latency struct {
	target target
	events int
	pause  time.Duration
	json   bool
}

// latencyReport is the line of -json.
type latencyReport struct {
	Benchmark string `json:"benchmark"`
	facts
	Events  int     `json:"events"`
	PauseMS float64 `json:"pause_ms"`
	times
	// Publish is how long Publish itself took, which is in the figures above.
	Publish times `json:"publish"`
	// Late is how many took longer than 100 ms. Where the machine has nothing else to do, nobody was woken for those, and River's
	// poll, once a second, found them.
	Late int `json:"late"`
}

const late = 100 * time.Millisecond

func latencyCommand() *cobra.Command {
	var l latency
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure the time from a publish to the start of the handler, on an idle queue",
		Long: "Measure the time from a publish to the start of the handler, on an idle queue: the time counts from the call of Publish,\n" +
			"so the commit is in it. One event at a time, with a pause after each; 50 go before that do not count.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	l.target.flags(cmd)
	cmd.Flags().IntVar(&l.events, "events", 500, "how many `events` count")
	cmd.Flags().DurationVar(&l.pause, "pause", 10*time.Millisecond, "the pause after each, on average: it is between half of it and one and a half")
	cmd.Flags().BoolVar(&l.json, "json", false, "print one line of JSON")
	return cmd
}

func (l *latency) run(ctx context.Context, out, logs io.Writer) (err error) {
	if l.events < 1 {
		return fmt.Errorf("--events: is %d, it must be positive", l.events)
	}
	if l.pause < 0 {
		return fmt.Errorf("--pause: is %v, it must not be negative", l.pause)
	}
	db, drop, err := l.target.fresh(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	report := latencyReport{Benchmark: "latency", Events: l.events, PauseMS: float64(l.pause.Microseconds()) / 1000}
	if report.facts, err = readFacts(ctx, db); err != nil {
		return err
	}
	arrived := make(chan arrived, 1)
	registry := durable.NewRegistry()
	registry.RegisterFunc("bench.latency", benchEvent, arrivals(arrived))
	engine, err := loam.New(loam.Config{DB: db, Registry: registry, Logger: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	if err := errors.Join(engine.Migrate(ctx), engine.AddTenant(ctx, benchTenant), engine.Start(ctx)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop(context.WithoutCancel(ctx))) }()
	if err := l.measure(tenant.With(ctx, benchTenant), engine, arrived, &report); err != nil {
		return err
	}
	return l.print(out, report)
}

// arrived is the start of a handler.
type arrived struct {
	n  int64
	at time.Time
}

func arrivals(to chan<- arrived) func(context.Context, events.Event) error {
	return func(ctx context.Context, e events.Event) error {
		at := time.Now()
		n, _ := e.Payload["n"].(int64)
		select {
		case to <- arrived{n, at}:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *latency) measure(ctx context.Context, engine *loam.Engine, arrivals <-chan arrived, report *latencyReport) error {
	ways, publishes := make([]time.Duration, 0, l.events), make([]time.Duration, 0, l.events)
	for n := range int64(warmUp + l.events) {
		began := time.Now()
		if err := engine.Publish(ctx, benchEvent, events.Payload{"n": n}); err != nil {
			return err
		}
		published := time.Since(began)
		select {
		case a := <-arrivals:
			if a.n != n {
				return fmt.Errorf("event %d was delivered while event %d was waited for", a.n, n)
			}
			if n >= warmUp {
				ways, publishes = append(ways, a.at.Sub(began)), append(publishes, published)
			}
		case <-time.After(arrival):
			return fmt.Errorf("event %d was not delivered within %v", n, arrival)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-time.After(l.pause/2 + rand.N(l.pause+1)): //nolint:gosec // nobody guesses it
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, way := range ways {
		if way > late {
			report.Late++
		}
	}
	report.times, report.Publish = timesOf(ways), timesOf(publishes)
	return nil
}

func (l *latency) print(out io.Writer, r latencyReport) error {
	if l.json {
		return json.NewEncoder(out).Encode(r)
	}
	_, err := fmt.Fprintf(out, "%v\n%d events, one at a time, %v apart\n\npublish to handler  %v\nof it publish       %v\nover %v          %d\n",
		r.facts, r.Events, l.pause, r.times, r.Publish, late, r.Late)
	return err
}
