package loam

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/sweep"
	"github.com/openloam/loam/tenant"
)

// Capture is how Publish stores an event for its durable subscribers.
type Capture int

const (
	// Direct writes the deliveries and their wake-up in the publisher's transaction.
	Direct Capture = iota
	// Outbox writes one row to event_queue there. The relay of a started engine writes the deliveries.
	Outbox
)

// Config says how an Engine works. Only DB is required.
type Config struct {
	// DB is the database, from database/sqlite. The caller closes it, after Stop.
	DB *database.DB
	// Registry has the durable subscribers. Defaults to the one that durable.Register fills.
	Registry *durable.Registry
	// Tenants says which tenants exist. Defaults to the table loam_tenants, which AddTenant fills.
	Tenants tenant.Directory
	// Logger gets log lines with the attributes delivery, subscriber, event and tenant, never a payload. Defaults to
	// slog.Default().
	Logger *slog.Logger
	// TracerProvider makes the span of each run. Defaults to OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the counters. Defaults to OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
	// Now is the clock of all that is stored. Defaults to time.Now.
	Now func() time.Time

	// Capture says how Publish stores an event for its durable subscribers. Defaults to Direct.
	Capture Capture
	// Bus, if set, takes the events from the relay and brings those of all services that share it to this one's durable
	// subscribers; outbox/natsjs makes one. It needs Capture at Outbox. Only a started engine connects to it.
	Bus outbox.Bus
	// KeepEvents keeps every event in event_queue, with Capture at Direct too, so that Backfill finds it later. With Outbox
	// they are kept anyway, for KeepOutbox; but not those that a Bus brought.
	KeepEvents bool
	// OutboxMaxAttempts is how often a row of event_queue may fail before it is dead_lettered. Defaults to 5.
	OutboxMaxAttempts int

	// Middleware runs around every run of a durable handler, the first outermost, within Loam's own span and log lines.
	Middleware []durable.Middleware

	// MaxPayloadBytes is the size limit of an event's payload as JSON. Defaults to 65,536.
	MaxPayloadBytes int
	// MaxDepth is how many events may cause each other in a row, each published by a subscriber of the one before; beyond it
	// Publish returns events.ErrTooDeep. Defaults to 32.
	MaxDepth int
	// Concurrency is how many handlers this process runs at once. Defaults to 100.
	Concurrency int
	// HandlerTimeout is the deadline of a run whose registration names none. Defaults to 60 s.
	HandlerTimeout time.Duration
	// StuckAfter is how long after its deadline a handler that has not returned is reported, and its slot given to another.
	// Its claim is kept. Defaults to 5 s.
	StuckAfter time.Duration
	// CrashLimit is in how many crashes a row a delivery may have been run; above it is parked. Defaults to 10.
	CrashLimit int

	// Lease is how long a claim is exclusive without a renewal. Defaults to 60 s, and to 1,800 s with renewal off.
	Lease time.Duration
	// RenewEvery is how often claims are renewed while their handlers run. Defaults to 20 s; negative is never.
	RenewEvery time.Duration
	// TakeoverMargin is how long after its lease a claim is taken over at the earliest: more than the clocks of the
	// processes differ by. Defaults to 10 s.
	TakeoverMargin time.Duration
	// LostClaimsEvery is how often the process looks for claims that nobody renews. Defaults to 15 s.
	LostClaimsEvery time.Duration
	// MaxClockSkew is how far this process's clock may be from the database's. Beyond it the process goes on publishing, but
	// claims nothing. Compared at start and every minute. Defaults to 5 s; negative turns the check off.
	MaxClockSkew time.Duration
	// SweepEvery is how often due deliveries are looked for whose job was lost. Defaults to 300 s.
	SweepEvery time.Duration
	// SweepLimit is how many deliveries one sweep of a tenant wakes at most; a full one goes on 10 s later. Defaults to 500.
	SweepLimit int
	// SweepTimeout is the time limit of the sweep of one tenant. Defaults to 30 s.
	SweepTimeout time.Duration

	// KeepDelivered is how long a delivery is kept after it was delivered. Defaults to 30 days (720 h); negative is for ever.
	// This and the other times of keeping are an hour at least; docs/retention.md says what each means.
	KeepDelivered time.Duration
	// KeepProcessed is how long the ledger remembers that a handler is done with an event: an event that is published again
	// after that is run again. Defaults to 30 days; negative is for ever.
	KeepProcessed time.Duration
	// KeepOutbox is how long a row of event_queue is kept that is done, since it was written. Backfill reads them. Defaults to 7
	// days; negative is for ever.
	KeepOutbox time.Duration
	// KeepDead is how long dead deliveries are kept after their last change, and dead_lettered rows of event_queue since they
	// were written. Defaults to for ever, as does a negative value.
	KeepDead time.Duration

	// DrainTimeout is how long Stop lets handlers run before it cancels their contexts. Defaults to 10 s.
	DrainTimeout time.Duration
	// StopTimeout is how long Stop waits after that for them to return and for outcomes to be written. Defaults to 10 s.
	StopTimeout time.Duration
}

// limits are those of a publish.
func (c *Config) limits() events.Limits {
	return events.Limits{PayloadBytes: c.MaxPayloadBytes, Depth: c.MaxDepth}
}

// renewalOff reports whether claims are never renewed.
func (c *Config) renewalOff() bool { return c.RenewEvery < 0 }

// withDefaults returns c with its zero values replaced.
func withDefaults(c Config) Config {
	if c.Registry == nil {
		c.Registry = durable.DefaultRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Tenants == nil && c.DB != nil {
		c.Tenants = tenantTable{c.DB}
	}
	c.OutboxMaxAttempts = cmp.Or(c.OutboxMaxAttempts, outbox.DefaultMaxAttempts)
	c.MaxPayloadBytes = cmp.Or(c.MaxPayloadBytes, events.DefaultMaxPayloadBytes)
	c.MaxDepth = cmp.Or(c.MaxDepth, events.DefaultMaxDepth)
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.HandlerTimeout = cmp.Or(c.HandlerTimeout, 60*time.Second)
	c.StuckAfter = cmp.Or(c.StuckAfter, 5*time.Second)
	c.CrashLimit = cmp.Or(c.CrashLimit, 10)
	lease := 60 * time.Second
	if c.renewalOff() {
		lease = 1800 * time.Second
	}
	c.Lease = cmp.Or(c.Lease, lease)
	c.RenewEvery = cmp.Or(c.RenewEvery, 20*time.Second)
	c.TakeoverMargin = cmp.Or(c.TakeoverMargin, 10*time.Second)
	c.LostClaimsEvery = cmp.Or(c.LostClaimsEvery, 15*time.Second)
	c.MaxClockSkew = cmp.Or(c.MaxClockSkew, 5*time.Second)
	c.SweepEvery = cmp.Or(c.SweepEvery, 300*time.Second)
	c.SweepLimit = cmp.Or(c.SweepLimit, sweep.Limit)
	c.SweepTimeout = cmp.Or(c.SweepTimeout, 30*time.Second)
	const day = 24 * time.Hour
	c.KeepDelivered = cmp.Or(c.KeepDelivered, 30*day)
	c.KeepProcessed = cmp.Or(c.KeepProcessed, 30*day)
	c.KeepOutbox = cmp.Or(c.KeepOutbox, 7*day)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 10*time.Second)
	return c
}

// maxConcurrency is River's limit of the workers of a queue.
const maxConcurrency = 10_000

// minKeep is the least time for which anything is kept: less is a mistake of units.
const minKeep = time.Hour

// validate reports every mistake at once.
func (c *Config) validate() error {
	var errs []error
	if c.DB == nil {
		errs = append(errs, errors.New("DB: is nil; open one with database/sqlite"))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"OutboxMaxAttempts", int64(c.OutboxMaxAttempts)},
		{"MaxPayloadBytes", int64(c.MaxPayloadBytes)},
		{"MaxDepth", int64(c.MaxDepth)},
		{"Concurrency", int64(c.Concurrency)},
		{"HandlerTimeout", int64(c.HandlerTimeout)},
		{"StuckAfter", int64(c.StuckAfter)},
		{"CrashLimit", int64(c.CrashLimit)},
		{"Lease", int64(c.Lease)},
		{"TakeoverMargin", int64(c.TakeoverMargin)},
		{"LostClaimsEvery", int64(c.LostClaimsEvery)},
		{"SweepEvery", int64(c.SweepEvery)},
		{"SweepLimit", int64(c.SweepLimit)},
		{"SweepTimeout", int64(c.SweepTimeout)},
		{"DrainTimeout", int64(c.DrainTimeout)},
		{"StopTimeout", int64(c.StopTimeout)},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is negative; leave it 0 for the default", f.name, f.value))
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Lease", c.Lease}, {"TakeoverMargin", c.TakeoverMargin}} {
		if f.value%time.Millisecond != 0 {
			errs = append(errs, fmt.Errorf("%s: %v must be whole milliseconds", f.name, f.value))
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"KeepDelivered", c.KeepDelivered}, {"KeepProcessed", c.KeepProcessed}, {"KeepOutbox", c.KeepOutbox}, {"KeepDead", c.KeepDead}} {
		if f.value > 0 && f.value < minKeep {
			errs = append(errs, fmt.Errorf("%s: %v is too short, at least %v is allowed; negative keeps for ever", f.name, f.value, minKeep))
		}
	}
	if c.Capture != Direct && c.Capture != Outbox {
		errs = append(errs, fmt.Errorf("Capture: %d is neither Direct nor Outbox", c.Capture))
	}
	if c.Bus != nil && c.Capture != Outbox {
		errs = append(errs, errors.New("Capture: must be Outbox with a Bus: what is published waits in event_queue for the relay that sends it"))
	}
	if c.Concurrency > maxConcurrency {
		errs = append(errs, fmt.Errorf("Concurrency: %d is too much, at most %d are allowed (it is River's limit)", c.Concurrency, maxConcurrency))
	}
	errs = append(errs, c.checkLease())
	return errors.Join(errs...)
}

// checkLease reports leases that end before they can be renewed, or before a handler that they must outlast.
func (c *Config) checkLease() error {
	if !c.renewalOff() {
		if need := sum(c.RenewEvery, c.RenewEvery, c.TakeoverMargin); need > c.Lease {
			return fmt.Errorf("Lease: %v is too short: 2 × RenewEvery + TakeoverMargin is %v, so that one renewal may fail", c.Lease, need)
		}
		return nil
	}
	if need := sum(c.longestTimeout(), c.StuckAfter, c.TakeoverMargin); need > c.Lease {
		return fmt.Errorf("Lease: %v is too short with renewal off: the longest handler timeout + StuckAfter + TakeoverMargin is %v", c.Lease, need)
	}
	return nil
}

// checkTransactional reports transactional handlers that could keep everybody else from SQLite's write connection for too
// long: claims must be renewed, and a publish waits no longer than DefaultWait.
func (c *Config) checkTransactional() error {
	if c.DB.Dialect() != database.SQLite {
		return nil
	}
	allowed, by := database.DefaultWait, "how long a write waits for its turn"
	if !c.renewalOff() && c.RenewEvery < allowed {
		allowed, by = c.RenewEvery, "RenewEvery"
	}
	var errs []error
	for _, s := range c.Registry.Registered() {
		if limit := s.Limit(c.DB.Dialect(), c.HandlerTimeout); s.Transactional() && limit > allowed {
			errs = append(errs, fmt.Errorf("the transactional subscriber %q may run for %v, and on SQLite nobody else writes meanwhile: "+
				"at most %v is allowed (%s); set it with durable.WithTimeout", s.Key, limit, allowed, by))
		}
	}
	return errors.Join(errs...)
}

// sum adds durations that are not negative, up to the longest there is.
func sum(ds ...time.Duration) time.Duration {
	var total time.Duration
	for _, d := range ds {
		if total > math.MaxInt64-d {
			return math.MaxInt64
		}
		total += d
	}
	return total
}

// longestTimeout is the longest deadline that a run can have.
func (c *Config) longestTimeout() time.Duration {
	longest := c.HandlerTimeout
	for _, s := range c.Registry.Registered() {
		longest = max(longest, s.Timeout)
	}
	return longest
}
