package main

import (
	"time"

	"github.com/google/uuid"
)

// what is what a run is a run of.
type what struct {
	event       uuid.UUID
	tenant, key string
}

func (w what) String() string { return w.event.String() + " " + w.key + " (" + w.tenant + ")" }

// handled is one run of a handler, as its process has written it down. Times are in nanoseconds; 0 is never.
type handled struct {
	process            int
	start, cancel, end int64
	lost               bool // the cause of cancel: the process knew that its lease was over
	result             string
}

// life is what happened to a process.
type life struct {
	work    bool
	shift   time.Duration
	began   int64
	killed  int64 // certainly dead at; 0 if it was not killed
	struck  int64 // the kill began at
	ended   int64 // by itself at
	code    int
	stopped []suspension
}

// suspension is a time in which a process did not run, although it could not know.
type suspension struct {
	from, until int64
	// leases are all claims there were after from, the process's own and others.
	leases map[what]leased
}

// leased is a claim, in nanoseconds of its owner's clock.
type leased struct{ until, started int64 }

// told is what the publishers say of an event.
type told struct {
	committed int64
	undone    bool
	failures  int
	tried     bool // to publish it through event_queue
	queued    bool // and that was committed
}

// refusal names an outcome that was not written.
type refusal struct {
	process  int
	delivery string
}

// evidence is all that the processes have written.
type evidence struct {
	subscribers []subscriber
	attacked    int // deliveries that were made when the attacks ended

	lives     map[int]*life
	runs      map[what][]handled
	events    map[uuid.UUID]told
	refused   map[refusal]int
	overtaken map[what][]int // processes whose outcome must have been refused
	givenUp   int
	errors    map[string]int // of publishes
	full      [][2]int64
	broker    bool
	stream    map[uuid.UUID][]int64 // when the messages of an event were stored
	aged      map[uuid.UUID]int64   // when the claim on its row was ended, whose owner was dead
	handedOut int                   // messages
	violation []string
}

func newEvidence() *evidence {
	return &evidence{
		subscribers: subscribers,
		lives:       map[int]*life{}, runs: map[what][]handled{}, events: map[uuid.UUID]told{}, errors: map[string]int{},
		refused: map[refusal]int{}, overtaken: map[what][]int{}, stream: map[uuid.UUID][]int64{}, aged: map[uuid.UUID]int64{},
	}
}
