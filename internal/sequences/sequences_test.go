package sequences_test

import (
	"flag"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/outbox"
)

// met are the rules that 500 sequences come across a dozen times and more. Should one not be met, the sequences have become
// too tame to prove it.
var met = []string{
	"A-03 redelivered", "D-07 early", "D-10 dead", "D-11 unknown", "D-14 deadline", "D-14 stuck", "D-20 a suspect beside others",
	"D-22 put back", "E-10 again", "E-10 another payload", "E-14 too deep", "E-15 the same id in a later run",
	"E-10 enqueued again", "E-10 enqueued with another payload", "E-10 another payload at the relay", "J-03 own run", "J-05 no slot", "L-03 outcome refused", "L-03 outcome written before", "L-03 own claim found again",
	"L-04 held elsewhere", "L-08 lost claim deleted", "L-08 lost claim woken", "L-08 not renewed in time",
	"L-08 renewal finds it lost", "L-08 taken over",
	"N-01 sent again", "N-02 refused", "N-03 a letter again", "N-03 a letter is requeued", "N-03 a letter of another service's", "N-03 a letter that cannot be requeued",
	"N-03 given up", "N-03 the last delivery had no answer", "N-06 before its tenant", "N-06 kept while its own database is away", "N-06 received", "N-06 the ack is lost",
	"O-03 a relay dies with its claim", "O-03 taken over", "O-04 tried again", "O-05 relayed", "O-05 sent", "O-06 deferred", "T-02 no tenant, or D-04 no match", "T-02 the tenant is gone at the relay", "T-05 another tenant",
	"T-08 parked by the sweep", "outcome cut", "outcome failure", "outcome lost", "outcome park", "outcome snooze", "outcome success",
}

// Random sequences of all that can happen end, step for step, as the contract says; and when they are left in peace, everything
// that was published is delivered or dead.
// contract: D-04, D-06, D-07, D-08, D-09, D-10, D-11, D-13, D-14, D-15, D-20, D-21, D-22, D-24, D-25
// contract: N-03, N-06, O-01, O-03, O-04, O-05, O-06, E-10, E-14, E-15, J-01, J-02, J-03, J-05, L-01, L-02, L-03, L-04, L-05, L-08, S-02, S-03, T-02, T-04, T-05, T-08, A-03
func TestSequences(t *testing.T) {
	t.Parallel()
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		var stages [stagesEach]*stage
		var all sync.WaitGroup
		for i := range stages {
			stages[i] = newStage(t, db.Dialect())
			all.Go(func() {
				t.Run(strconv.Itoa(i+1), func(t *testing.T) {
					rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, stages[i].sequence) })
				})
			})
		}
		all.Wait()
		begun, saw := 0, map[string]int{}
		for _, s := range stages {
			begun += s.begun
			for rule, n := range s.saw {
				saw[rule] += n
			}
		}
		for _, rule := range slices.Sorted(maps.Keys(saw)) {
			t.Logf("%6d × %s", saw[rule], rule)
		}
		if want := stagesEach * wanted(t); begun < want && !t.Failed() { // rapid ends in silence when the time is over
			t.Errorf("only %d of %d sequences: give them more time with -timeout", begun, want)
		}
		for _, rule := range met {
			if begun >= 500 && saw[rule] == 0 && !t.Failed() {
				t.Errorf("%d sequences have not met the rule %q", begun, rule)
			}
		}
	})
}

// stagesEach is how many databases of each kind there are, for as many sequences at a time.
const stagesEach = 4

// wanted is how many sequences each stage was asked for.
func wanted(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		n /= 5 // as rapid does
	}
	return n
}

// sequence is one.
func (s *stage) sequence(t *rapid.T) {
	w := s.begin(t)
	defer w.end()
	t.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "step": w.step})
	w.settle()
}

// settle lets everything come to its end: the processes are replaced by one that has all handlers, they succeed, and time
// goes on. Then nothing is pending but what is paused, nothing is claimed, and nothing that was published is lost.
func (w *world) settle() {
	for _, p := range w.procs {
		w.die(p)
	}
	w.start(0, &whole)
	p := w.procs[0]
	for round := range 30 {
		w.pass(rig.Lease + rig.Margin)
		_, err := p.Sweeper.LostClaims(w.tb.ctx)
		w.must(err)
		w.check(effects{woken: w.m.lost(p.proc)})
		_, err = p.Sweeper.All(w.tb.ctx, "")
		w.must(err)
		w.check(effects{woken: w.m.sweep()})
		if w.round(p, fault{kind: none}); round%2 == 0 {
			w.sendRound(p, sinkTakes)
		}
		for len(w.comes()) > 0 {
			w.receiveBy(p, len(w.m.stream), fault{kind: none})
		}
		w.workAll(p)
		wait, left := w.left()
		if !left {
			w.checkSettled()
			return
		}
		w.pass(wait)
	}
	w.t.Fatal("it does not settle")
}

// workAll works wake-ups until none is due.
func (w *world) workAll(p *process) {
	for {
		u, ok := w.seen.Wakeups.Next(w.m.now)
		if !ok {
			return
		}
		w.table = w.seen.Wakeups.All()
		for _, part := range u.ByTenant() {
			w.deliver(p, part.Tenant, part.IDs, u.Queue == durable.SuspectQueue, fault{kind: none})
			for len(p.held) > 0 {
				w.end1(p.held[0], results[0], fault{kind: none})
			}
		}
	}
}

// left reports whether rows are pending that are not paused, or claimed, and how long the last of them has to wait.
func (w *world) left() (wait time.Duration, left bool) {
	for _, r := range w.last.order {
		if r.Status == durable.Pending && !w.m.paused[pauseKey{r.TenantID, r.SubscriberKey}] {
			left = true
			wait = max(wait, r.NextAttemptAt.Sub(w.m.now), r.CreatedAt.Sub(w.m.now))
		}
	}
	for _, e := range w.last.queue {
		if e.Status == outbox.Pending || e.Status == outbox.Processing {
			left = true
			wait = max(wait, e.NextAttemptAt.Sub(w.m.now))
		}
	}
	for _, m := range w.m.stream {
		if !m.ended {
			left = true
			wait = max(wait, m.until.Sub(w.m.mono))
		}
	}
	for _, e := range w.last.ledger {
		if e.status == ledger.InProgress {
			left = true
			wait = max(wait, time.UnixMilli(e.lease).Add(rig.Margin).Sub(w.m.now))
		}
	}
	return max(wait, 0), left
}

// checkSettled compares what is there in the end with what was published, read off the database: each delivery is there, once
// (their keys are unique).
func (w *world) checkSettled() {
	for _, j := range w.journal {
		if !slices.ContainsFunc(w.last.order, func(r durable.EventDelivery) bool {
			return r.TenantID == j.tenant && r.EventID == j.event && r.SubscriberKey == j.key
		}) {
			w.t.Fatalf("lost: %s/%s/%s", j.tenant, w.label(j.event), j.key)
		}
	}
	if len(w.last.order) != len(w.journal) {
		w.t.Fatalf("%d deliveries, %d were published", len(w.last.order), len(w.journal))
	}
}
