package loam_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

func init() { children["relayer"] = relayer }

const (
	relayers    = 3
	relayRounds = 20 // of kills
	relayBatch  = 50 // events in one transaction
)

// relayEvents is how many events are published: ten thousand by night.
func relayEvents() int {
	if nightly() {
		return 10_000
	}
	return 1_000
}

// relayer relays what is in event_queue, and works the deliveries. Most of its runs are over at once, so that there is always
// something for the relay to do; some last long enough to be cut.
func relayer(ctx context.Context) error {
	runs, err := openDiary(fmt.Sprintf("runs.%d", os.Getpid()))
	if err != nil {
		return err
	}
	reg := durable.NewRegistry()
	for key, pattern := range killSubscribers {
		reg.Register(key, pattern, runs.noted(key, func(ctx context.Context, _ events.Event) error {
			if rand.IntN(40) > 0 { //nolint:gosec // nothing secret about it
				return nil
			}
			select {
			case <-time.After(time.Duration(rand.IntN(300)) * time.Millisecond): //nolint:gosec // likewise
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
	}
	return work(ctx, reg, func(c *loam.Config) {
		shortLease(c)
		c.SweepEvery = 2 * time.Second
		c.Capture = loam.Outbox
	}, nil)
}

// Three processes relay one queue and work what comes of it, while another publishes into it, many events in a transaction.
// They are killed again and again, one, two or all of them, when there are rows that wait for a relay. Nobody repairs anything.
// In the end each event has one delivery for each subscriber, and no row of the queue is left.
//
// contract: O-01, O-03, O-05, D-17, D-20, L-02
func TestRelaysAreKilled(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, s site) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // to be repeated with the seed
		db, _ := dbtest.OpenPlace(t, s.place)
		publisher := newEngine(t, db, durable.NewRegistry(), func(c *loam.Config) { c.Capture = loam.Outbox })
		queued := func(where string) (n int) {
			rig.Scan(t, db, `SELECT count(*) FROM event_queue WHERE `+where, nil, &n)
			return n
		}

		began := time.Now()
		total, published, atWork := relayEvents(), 0, 0
		killed := map[int]time.Time{} // by pid
		var procs [relayers]*process
		for i := range procs {
			procs[i] = startChild(t, "relayer", s)
		}
		procs[0].up()
		for round := 1; round <= relayRounds; round++ {
			for published < total*round/relayRounds {
				published += publishMany(t, publisher, published, min(relayBatch, total-published))
			}
			if random.IntN(5) > 0 {
				procs[random.IntN(relayers)].up()
			}
			<-time.After(time.Duration(random.IntN(2)*random.IntN(300)) * time.Millisecond) // at once, in half of the rounds
			which := 1 + random.IntN(1<<relayers-1)                                         // a bit for each
			if queued(`status = 'pending'`) > 0 {
				atWork++
			}
			for i, p := range procs {
				if which&(1<<i) != 0 {
					killed[p.pid()] = p.kill()
				}
			}
			for i := range procs {
				if which&(1<<i) != 0 {
					procs[i] = startChild(t, "relayer", s)
				}
			}
		}
		inKills := time.Since(began)
		undone := queued(`status = 'pending'`)
		until(t, 10*time.Minute, "all relayed and delivered", func() bool {
			<-time.After(200 * time.Millisecond) // to count is work, too
			for _, p := range procs {
				p.running()
			}
			return queued(`status IN ('pending', 'processing')`)+count(t, db, `status = 'pending'`) == 0
		})
		for _, p := range procs {
			p.up()
			p.stop()
		}

		if atWork == 0 {
			t.Error("at no kill were there rows that waited for a relay: the test shows nothing")
		}
		checkRelayed(t, db, total)
		runs := readRuns(t, s.dir, killed)
		checkOverlap(t, runs)
		t.Logf("%d events, %d kills in %d rounds (%d of them with rows that waited) in %v, %d rows after the last; %d runs, %d of them repeats, %v in all",
			total, len(killed), relayRounds, atWork, inKills.Round(time.Millisecond), undone, len(runs), len(runs)-total*len(killSubscribers),
			time.Since(began).Round(time.Millisecond))
	})
}

// publishMany publishes n events in one transaction, from number first on.
func publishMany(t *testing.T, engine *loam.Engine, first, n int) int {
	t.Helper()
	err := engine.InTx(inTenant(t), func(ctx context.Context, tx *sql.Tx) error {
		for i := range n {
			if err := engine.PublishTx(ctx, tx, "shop.order.paid", events.Payload{"order": first + i}, events.WithID(killEvent(first+i))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkRelayed checks that there is exactly one delivery for each event and subscriber, and that nothing is left to do.
func checkRelayed(t *testing.T, db *database.DB, total int) {
	t.Helper()
	if got, want := rig.Dump(t, db, `SELECT status, count(*), count(DISTINCT event_id) FROM event_queue GROUP BY status`),
		fmt.Sprintf("done|%d|%d", total, total); got != want {
		t.Errorf("the queue has %s, want %s", got, want)
	}
	checkDelivered(t, db, total)
}

// checkDelivered checks the deliveries.
func checkDelivered(t *testing.T, db *database.DB, total int) {
	t.Helper()
	type delivery struct{ event, key string }
	missing := map[delivery]bool{}
	for n := range total {
		for key := range killSubscribers {
			missing[delivery{killEvent(n), key}] = true
		}
	}
	rows, err := db.Read().QueryContext(t.Context(), `SELECT event_id, subscriber_key FROM event_deliveries`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	extra := 0
	for rows.Next() {
		var d delivery
		if err := rows.Scan(&d.event, &d.key); err != nil {
			t.Fatal(err)
		}
		if !missing[d] {
			extra++
		}
		delete(missing, d)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if len(missing) > 0 || extra > 0 {
		t.Errorf("of %d deliveries %d are missing, and %d are too many", total*len(killSubscribers), len(missing), extra)
	}
	if n := count(t, db, `status <> 'delivered' OR attempts <> 0 OR unfinished <> 0`); n != 0 {
		t.Errorf("%d deliveries are not delivered, or have spent attempts on a crash", n)
	}
	if got := rig.Dump(t, db, `SELECT status, count(*) FROM processed_events GROUP BY status`); got != fmt.Sprintf("done|%d", total*len(killSubscribers)) {
		t.Errorf("the ledger has %s", got)
	}
	if db.Dialect() == database.SQLite {
		if answer := rig.Dump(t, db, `PRAGMA integrity_check`); answer != "ok" {
			t.Errorf("integrity_check: %s", answer)
		}
	}
}
