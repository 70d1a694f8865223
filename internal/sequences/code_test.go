package sequences_test

import (
	"slices"
	"time"

	"github.com/openloam/loam/events"
)

const (
	paid   = "billing.invoice.paid"
	refund = "billing.invoice.refunded"
	placed = "shop.order.placed"
)

// Settings of every process. They are small, so that sequences reach the limits.
const (
	slots      = 3
	crashLimit = 2
	depthLimit = 1
	stuckAfter = 5 * time.Second
)

// subscriber is one registration in the code of a process.
type subscriber struct {
	key, pattern string
	aliases      []string
	max          int             // failures until it is dead
	waits        []time.Duration // after failure 1, 2, …; the last is the cap
	timeout      time.Duration   // odd, so that no two things are due at one instant
}

func (s *subscriber) answersTo(key string) bool {
	return s.key == key || slices.Contains(s.aliases, key)
}

// wait is how long after its start failure n is tried again.
func (s *subscriber) wait(n int) time.Duration { return s.waits[min(n, len(s.waits))-1] }

var (
	mailer = subscriber{"mailer", paid, nil, 3, []time.Duration{0, 8 * time.Second}, 20*time.Second + 7*time.Microsecond}
	stock  = subscriber{"stock", "billing.", nil, 5, []time.Duration{60e9, 300e9, 1800e9, 7200e9}, 70*time.Second + 11*time.Microsecond}
	audit  = subscriber{"audit", "shop.", nil, 2, []time.Duration{8 * time.Second}, 45*time.Second + 13*time.Microsecond}
	post   = subscriber{"post", paid, []string{"mailer"}, 2, []time.Duration{30 * time.Second}, 20*time.Second + 17*time.Microsecond}
)

// release is one version of the application's code.
type release struct {
	name    string
	subs    []subscriber
	retired []string
}

var (
	first   = release{"first", []subscriber{mailer, stock, audit}, nil}
	renamed = release{"renamed", []subscriber{post, stock}, []string{"audit"}}
	partial = release{"partial", []subscriber{audit, stock}, nil}
	web     = release{"web", nil, nil} // it only publishes
	whole   = release{"whole", []subscriber{post, stock, audit}, nil}
)

var releases = []*release{&first, &renamed, &partial, &web}

// handler finds the subscriber that rows with this key are delivered to.
func (r *release) handler(key string) (*subscriber, bool) {
	for i := range r.subs {
		if r.subs[i].answersTo(key) {
			return &r.subs[i], true
		}
	}
	return nil, false
}

// matching are the subscribers that an event of this name is for, in the order of registration.
func (r *release) matching(name string) []subscriber {
	return slices.DeleteFunc(slices.Clone(r.subs), func(s subscriber) bool { return !events.Match(s.pattern, name) })
}
