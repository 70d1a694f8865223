// Package health has the report of an engine's state, as its handlers and pages show it.
package health

import "time"

// Report is how an engine is at one moment.
type Report struct {
	// At is when the report was made, on the engine's clock.
	At time.Time `json:"at"`
	// Live says that the process itself works; a restart would help if it is false.
	Live bool `json:"live"`
	// Ready says that events can be published and, in a started engine, that deliveries are worked.
	Ready bool `json:"ready"`
	// Problems says what is wrong, what is expected, and what it means, a sentence each.
	Problems []string `json:"problems"`

	// DueNow and OldestDue are the due deliveries of the tenant asked for, counted up to 10,000, and how long the oldest
	// has been due; 0 without a tenant.
	DueNow    int           `json:"due_now"`
	OldestDue time.Duration `json:"oldest_due_ns"`
	// QueueWaiting and QueueOldest are the rows of event_queue, of all tenants, that no relay has taken, counted up to 10,000,
	// and how long the oldest has waited.
	QueueWaiting int           `json:"queue_waiting"`
	QueueOldest  time.Duration `json:"queue_oldest_ns"`
	// QueueDeadLettered are the rows of event_queue that wait for an operator, counted up to 10,000.
	QueueDeadLettered int `json:"queue_dead_lettered"`
	// BusAway is how long the relay or the consumer of this process has not been able to reach the bus; 0 if both can, or there
	// is none.
	BusAway time.Duration `json:"bus_away_ns"`
	// LastSweep is when a sweep last ended, here or in another process; zero if none did in the last hour.
	LastSweep time.Time `json:"last_sweep"`
	// SweepEvery is the interval of the sweep.
	SweepEvery time.Duration `json:"sweep_every_ns"`
	// ClockDifference is this process's clock minus the database's, when it was last compared.
	ClockDifference time.Duration `json:"clock_difference_ns"`
	// MaxClockSkew is the difference beyond which the process claims nothing; negative is no limit.
	MaxClockSkew time.Duration `json:"max_clock_skew_ns"`
	// MigrationsPending is how many migrations of this build the database lacks.
	MigrationsPending int `json:"migrations_pending"`
}
