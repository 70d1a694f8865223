package outbox

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Why an event was not enqueued.
const (
	skipNoTenant      = "no_tenant"
	skipUnknownTenant = "unknown_tenant"
)

type metrics struct {
	done, failed, deferred, deadLettered, lostClaims, skipped metric.Int64Counter
}

func newMetrics(meter metric.Meter) (metrics, error) {
	var m metrics
	var errs []error
	for _, c := range []struct {
		to         *metric.Int64Counter
		name, text string
	}{
		{&m.done, "loam.outbox.done", "rows of event_queue that were captured or sent"},
		{&m.failed, "loam.outbox.failed", "attempts of rows of event_queue that failed"},
		{&m.deferred, "loam.outbox.deferred", "rows of event_queue that were put off because the sink was away"},
		{&m.deadLettered, "loam.outbox.dead_lettered", "rows of event_queue that were dead_lettered"},
		{&m.lostClaims, "loam.outbox.claims_lost", "marks that were refused because the claim was lost"},
		{&m.skipped, "loam.skipped", "events that stored nothing and wake-ups that ran nothing, by reason"},
	} {
		var err error
		*c.to, err = meter.Int64Counter(c.name, metric.WithDescription(c.text))
		errs = append(errs, err)
	}
	return m, errors.Join(errs...)
}

func (m *metrics) skip(ctx context.Context, reason string) {
	m.skipped.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason)))
}
