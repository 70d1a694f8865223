package durable

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Why an event or a wake-up ended without a row or a run.
const (
	skipNoSubscriber  = "no_subscriber"
	skipNoTenant      = "no_tenant"
	skipUnknownTenant = "unknown_tenant"
	skipDone          = "done"
)

// metrics are the counters. Their labels are bounded: the keys of the registry, and reasons from a fixed list.
type metrics struct {
	capturedRows, delivered, failed, dead, skipped, lostClaims, rowsGone, stuck metric.Int64Counter
}

func newMetrics(meter metric.Meter) (metrics, error) {
	var m metrics
	var errs []error
	for _, c := range []struct {
		to         *metric.Int64Counter
		name, text string
	}{
		{&m.capturedRows, "loam.deliveries.captured", "rows written for durable subscribers"},
		{&m.delivered, "loam.deliveries.delivered", "runs whose success was committed"},
		{&m.failed, "loam.deliveries.failed", "runs whose failure was committed"},
		{&m.dead, "loam.deliveries.dead", "rows that became dead"},
		{&m.skipped, "loam.skipped", "events that stored nothing and wake-ups that ran nothing, by reason"},
		{&m.lostClaims, "loam.claims.lost", "outcomes that were refused because the claim was lost"},
		{&m.rowsGone, "loam.deliveries.gone", "outcomes whose row was no longer pending"},
		{&m.stuck, "loam.handlers.stuck", "handlers that had not returned some time after their deadline"},
	} {
		var err error
		*c.to, err = meter.Int64Counter(c.name, metric.WithDescription(c.text))
		errs = append(errs, err)
	}
	return m, errors.Join(errs...)
}

func subscriberLabel(key string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("subscriber", key))
}

func (m *metrics) captured(ctx context.Context, rows []Ref) {
	for _, r := range rows {
		m.capturedRows.Add(ctx, 1, subscriberLabel(r.Key))
	}
}

func (m *metrics) skip(ctx context.Context, reason string, n int) {
	m.skipped.Add(ctx, int64(n), metric.WithAttributes(attribute.String("reason", reason)))
}

// died counts a dead row; a key that is not registered is not a label.
func (m *metrics) died(ctx context.Context, r *Registry, key string) {
	if _, known := r.HandlerFor(key); !known {
		key = "unknown"
	}
	m.dead.Add(ctx, 1, subscriberLabel(key))
}

// removed counts rows that died with their tenant.
func (m *metrics) removed(ctx context.Context, n int64) {
	m.dead.Add(ctx, n, subscriberLabel("removed tenant"))
}
