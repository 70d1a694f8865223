package durable

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/tenant"
)

const (
	// RefreshEvery is how often a working process says again in loam_subscribers which keys it has.
	RefreshEvery = 5 * time.Minute
	// seenWithin is how long after it was last said a key counts as known to some process.
	seenWithin = 15 * time.Minute
)

// Known is a row of loam_subscribers: a key that some process has, or had. It says which rows to write, and never which
// code to run.
type Known struct {
	Key, Pattern, Queue string
	// Aliases are the keys that it had before.
	Aliases []string
	// LastSeen is when a process last said that it has it.
	LastSeen time.Time
	// Retired is set when a process said at boot that the key is gone for good.
	Retired bool
}

// answersTo reports whether rows with the key are for k.
func (k *Known) answersTo(key string) bool { return k.Key == key || slices.Contains(k.Aliases, key) }

// alive reports whether some process has k now.
func (k *Known) alive(now time.Time) bool { return !k.Retired && now.Sub(k.LastSeen) <= seenWithin }

// readKnown reads the table, oldest first, and remembers it for queueFor.
func (d *Deliveries) readKnown(ctx context.Context, q tenant.Querier) ([]Known, error) {
	rows, err := q.QueryContext(ctx, `SELECT key, pattern, queue, aliases, last_seen, retired_at FROM loam_subscribers ORDER BY first_seen, key`)
	if err != nil {
		return nil, fmt.Errorf("read loam_subscribers: %w", database.Explain(err))
	}
	defer rows.Close()
	var out []Known
	for rows.Next() {
		var k Known
		var aliases string
		var seen, retired database.Time
		if err := rows.Scan(&k.Key, &k.Pattern, &k.Queue, &aliases, &seen, &retired); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(aliases), &k.Aliases); err != nil {
			return nil, fmt.Errorf("loam_subscribers: aliases of %q: %w", k.Key, err)
		}
		k.LastSeen, k.Retired = seen.Time, !retired.IsZero()
		out = append(out, k)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	d.known.Store(&out)
	return out, nil
}

// Announce says in loam_subscribers which keys this process has. At a start it also brings back keys that were retired,
// and retires those that the registry says are gone.
func (d *Deliveries) Announce(ctx context.Context, start bool) error {
	now := database.At(d.Now())
	err := d.DB.InTxRetry(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, s := range d.Registry.Registered() {
			aliases, _ := json.Marshal(append([]string{}, s.Aliases...)) // strings always encode
			if _, err := tx.ExecContext(ctx, `INSERT INTO loam_subscribers (key, pattern, queue, aliases, first_seen, last_seen)
				VALUES ($1, $2, $3, $4, $5, $5) ON CONFLICT (key) DO UPDATE SET pattern = excluded.pattern, queue = excluded.queue,
				aliases = excluded.aliases, last_seen = excluded.last_seen,
				retired_at = CASE WHEN $6 THEN NULL ELSE loam_subscribers.retired_at END`,
				s.Key, s.Pattern, s.Queue, string(aliases), now, start); err != nil {
				return err
			}
		}
		if !start {
			return nil
		}
		for _, key := range d.Registry.Retired() {
			if _, err := tx.ExecContext(ctx, `UPDATE loam_subscribers SET retired_at = $2 WHERE key = $1 AND retired_at IS NULL`, key, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("announce subscribers: %w", err)
	}
	_, err = d.readKnown(ctx, d.DB.Own())
	return err
}

// target is whom an event is for.
type target struct {
	key, queue string
	same       []string // keys whose row for the event is this one's: aliases, both ways
}

// targets are the subscribers that match name: those of this process in the order of registration, then those that only
// other processes have. Of two keys that are aliases of each other one is taken: this process's, or else the newer name.
func (d *Deliveries) targets(ctx context.Context, q tenant.Querier, name string) ([]target, error) {
	known, err := d.wantedBy(ctx, q)
	if err != nil {
		return nil, err
	}
	return d.match(known, name), nil
}

// wantedBy reads the keys for which rows are written: those that are not retired.
func (d *Deliveries) wantedBy(ctx context.Context, q tenant.Querier) ([]Known, error) {
	known, err := d.readKnown(ctx, q)
	// of a copy: what was read is kept for queueFor
	return slices.DeleteFunc(slices.Clone(known), func(k Known) bool { return k.Retired }), err
}

func (d *Deliveries) match(known []Known, name string) []target {
	var out []target
	for _, s := range d.Registry.SubscribersFor(name) {
		out = append(out, target{s.Key, s.Queue, sameAs(s.Key, s.Aliases, known)})
	}
	here := d.Registry.Registered()
	for _, k := range known {
		if !events.Match(k.Pattern, name) || !onlyElsewhere(&k, here, known) {
			continue
		}
		out = append(out, target{k.Key, k.Queue, sameAs(k.Key, k.Aliases, known)})
	}
	return out
}

// onlyElsewhere reports whether rows are written for k although this process does not have it: no other key stands for it.
func onlyElsewhere(k *Known, here []Subscriber, known []Known) bool {
	return !replaced(k, known) && !slices.ContainsFunc(here, func(s Subscriber) bool { return s.answersTo(k.Key) || k.answersTo(s.Key) })
}

// replaced reports whether another key has k's as an alias.
func replaced(k *Known, known []Known) bool {
	return slices.ContainsFunc(known, func(o Known) bool { return o.Key != k.Key && o.answersTo(k.Key) })
}

func sameAs(key string, aliases []string, known []Known) []string {
	same := slices.Clone(aliases)
	for _, k := range known {
		if k.Key != key && k.answersTo(key) {
			same = append(same, k.Key)
		}
	}
	return same
}

// elsewhere finds the key among those that other processes have now.
func (d *Deliveries) elsewhere(ctx context.Context, q tenant.Querier, key string) (bool, error) {
	known, err := d.readKnown(ctx, q)
	now := d.Now()
	return slices.ContainsFunc(known, func(k Known) bool { return k.alive(now) && k.answersTo(key) }), err
}

// queueElsewhere is the queue of a key that another process has, as this one last read it.
func (d *Deliveries) queueElsewhere(key string) (string, bool) {
	known := d.known.Load()
	if known == nil {
		return "", false
	}
	now := d.Now()
	for _, k := range *known {
		if k.alive(now) && k.answersTo(key) {
			return k.Queue, true
		}
	}
	return "", false
}

// Explanation says why an event would reach a durable subscriber.
type Explanation struct {
	// Key is the subscriber's; Pattern matches the event's name; Queue is where its delivery is woken.
	Key, Pattern, Queue string
	// Here says that this process has its handler.
	Here bool
	// LastSeen is when a process last said that it has it; zero if none did.
	LastSeen time.Time
}

// Explain returns the durable subscribers that an event of this name would reach, as capture would find them.
func (d *Deliveries) Explain(ctx context.Context, name string) ([]Explanation, error) {
	if err := events.CheckName(name); err != nil {
		return nil, err
	}
	targets, err := d.targets(ctx, d.DB.Own(), name)
	if err != nil {
		return nil, err
	}
	byKey := map[string]Known{}
	for _, k := range *d.known.Load() {
		byKey[k.Key] = k
	}
	out := make([]Explanation, len(targets))
	for i, t := range targets {
		k := byKey[t.key]
		out[i] = Explanation{Key: t.key, Pattern: k.Pattern, Queue: t.queue, LastSeen: k.LastSeen}
		if s, ok := d.Registry.HandlerFor(t.key); ok {
			out[i].Here, out[i].Pattern = true, s.Pattern
		}
	}
	return out, nil
}
