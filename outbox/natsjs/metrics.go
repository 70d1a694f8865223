package natsjs

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

type metrics struct {
	sent, duplicates, received, redelivered, exhausted, deadLettered, lost metric.Int64Counter
}

func newMetrics(meter metric.Meter) (metrics, error) {
	var m metrics
	var errs []error
	for _, c := range []struct {
		to         *metric.Int64Counter
		name, text string
	}{
		{&m.sent, "loam.nats.sent", "events that the broker has taken"},
		{&m.duplicates, "loam.nats.duplicates", "events among those sent that the broker had already"},
		{&m.received, "loam.nats.received", "messages that the broker has brought"},
		{&m.redelivered, "loam.nats.redelivered", "messages among those received that came again"},
		{&m.exhausted, "loam.nats.exhausted", "messages that have used up their deliveries"},
		{&m.deadLettered, "loam.nats.dead_lettered", "messages that were given up and stored as dead_lettered rows"},
		{&m.lost, "loam.nats.lost", "events that could not be captured in mode core, which stores nothing"},
	} {
		var err error
		*c.to, err = meter.Int64Counter(c.name, metric.WithDescription(c.text))
		errs = append(errs, err)
	}
	return m, errors.Join(errs...)
}
