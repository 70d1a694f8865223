package admin_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a page with its file. The style sheet's name, which changes with every change of it, is left out.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = regexp.MustCompile(`loam-[0-9a-f]+\.css`).ReplaceAllString(got, "loam.css")
	file := filepath.Join("testdata", name+".html")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file) //nolint:gosec // a name in testdata
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./admin -update writes it):\n%s", file, firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return fmt.Sprintf("line %d\n got: %s\nwant: %s", i+1, g[i], append(w, "nothing")[min(i, len(w))])
		}
	}
	return "the file has more"
}

func history(runs ...durable.Failure) string {
	text, _ := json.Marshal(runs)
	return string(text)
}

const timeout = "*net.OpError: dial tcp 10.2.0.17:587: i/o timeout"

// seedStates puts a delivery of every state into a world, with handlers for those that have one.
func seedStates(w *world) {
	for key, opts := range map[string][]durable.Option{
		"mailer.receipt": nil, "ledger.post": nil, "pdf.render": {durable.WithMaxAttempts(1)},
		"crm.sync": {durable.WithMaxAttempts(8)},
		"ping":     {durable.WithMaxAttempts(4), durable.WithBackoff(time.Minute)},
	} {
		w.Registry.RegisterFunc(key, "billing.", nothing, opts...)
	}
	now := w.Clock.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	failed := func(n int, ago time.Duration, text, stack string) durable.Failure {
		return durable.Failure{At: database.At(now.Add(-ago)), Run: n, Error: text, Stack: stack, DurationMS: 30_000}
	}
	w.seed(
		seed{
			id: "01-exhausted", attempts: 5, runs: 5, lastError: timeout, took: 30_000, updated: ago(4 * time.Minute),
			headers: `{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","depth":1}`,
			payload: `{"invoice_id":"inv_1","customer_id":90071992547409931,"amount":1.50,"note":"</script><script>alert(1)</script>","tenant_id":"acme","actor_id":"7731"}`,
			errors: history(failed(1, 160*time.Minute, timeout, ""), failed(2, 159*time.Minute, "*textproto.Error: 421 too many connections", "mailer.Send()\n\t/src/mailer.go:88"),
				failed(3, 154*time.Minute, timeout, ""), failed(4, 124*time.Minute, timeout, ""), failed(5, 4*time.Minute+30*time.Second, timeout, "mailer.Receipt()\n\t/src/mailer.go:41")),
		},
		seed{
			id: "02-parked", key: "ledger.post", attempts: 2, runs: 2, lastError: "*ledger.PeriodError: period 2026-10 is closed", updated: ago(14 * time.Minute),
			errors: history(failed(2, 15*time.Minute, "*ledger.PeriodError: period 2026-10 is closed", "")),
		},
		seed{id: "03-no-handler", key: "mailer.digest", lastError: `no registered subscriber "mailer.digest"`, updated: ago(31 * time.Minute)},
		seed{
			id: "04-crash-limit", attempts: 1, runs: 12, updated: ago(55 * time.Minute),
			lastError: "parked: the process died 11 times in a row while this was being run (the limit is 10)",
		},
		seed{id: "05-removed", lastError: durable.RemovedReason, updated: ago(2 * time.Hour)},
		seed{id: "06-one-attempt", key: "pdf.render", attempts: 1, runs: 1, lastError: "runtime.boundsError: index out of range [3] with length 3", updated: ago(150 * time.Minute)},
		seed{id: "07-unknown", key: "gone.since", attempts: 3, runs: 3, lastError: "*errors.errorString: no", updated: ago(50 * time.Hour)},
		seed{id: "11-due", status: durable.Pending, created: ago(time.Second), updated: ago(time.Second)},
		seed{
			id: "12-later", key: "crm.sync", status: durable.Pending, attempts: 3, runs: 3, lastError: timeout, updated: ago(4 * time.Second), next: now.Add(5 * time.Minute),
			errors: history(failed(3, 34*time.Second, timeout, "")),
		},
		seed{
			id: "13-running", status: durable.Pending, attempts: 2, runs: 3, lastError: timeout, updated: ago(time.Minute), next: ago(12 * time.Second),
			errors: history(failed(2, 90*time.Second, timeout, "")),
		},
		seed{id: "14-lost", status: durable.Pending, runs: 3, unfinished: 3, updated: ago(time.Hour)},
		seed{id: "15-paused", key: "ping", status: durable.Pending, created: ago(time.Minute), updated: ago(time.Minute)},
		seed{id: "16-no-handler", key: "mailer.digest", status: durable.Pending, created: ago(time.Minute), updated: ago(time.Minute)},
		seed{id: "17-redelivered", status: durable.Pending, runs: 5, updated: ago(2 * time.Second), errors: history(failed(5, 4*time.Minute, timeout, ""))},
		seed{id: "18-suspect", key: "ping", status: durable.Pending, runs: 3, unfinished: 3, updated: ago(time.Hour), attempts: 1, next: now.Add(time.Minute)},
		seed{
			id: "21-delivered", status: durable.Delivered, attempts: 1, runs: 2, took: 412, delivered: ago(time.Second), updated: ago(time.Second),
			errors: history(failed(1, time.Minute, timeout, "")),
		},
		seed{id: "91-globex", tenant: "globex", lastError: "*globex.Secret: of globex alone"},
	)
	for id, lease := range map[string]time.Duration{"13-running": 48 * time.Second, "14-lost": -time.Minute} {
		rig.Exec(w.T, w.DB, `INSERT INTO processed_events (tenant_id, event_id, handler, status, started_at, lease_until, owner)
			VALUES ('acme', $1, 'mailer.receipt', 'in_progress', $2, $3, 'someone')`,
			"ev-"+id, now.Add(lease-rig.Lease).UnixMilli(), now.Add(lease).UnixMilli())
	}
	rig.Exec(w.T, w.DB, `INSERT INTO loam_pauses (tenant_id, subscriber_key, created_at) VALUES ('acme', 'ping', $1)`, database.At(now))
}

// contract, D-18. Every page, to the byte.
// scenario: B185
func TestGolden(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		for name, path := range map[string]string{"empty": "/dead", "empty-pending": "/pending"} {
			golden(t, name, w.do("GET", path, "mira", nil).Body.String())
		}
		seedStates(w)
		for name, c := range map[string]struct{ path, who string }{
			"dead": {"/dead", "mira"}, "dead-viewer": {"/dead", "viewer"}, "pending": {"/pending", "mira"},
			"exhausted": {"/deliveries/01-exhausted", "mira"}, "exhausted-viewer": {"/deliveries/01-exhausted", "viewer"},
			"delivered":     {"/deliveries/21-delivered?list=pending", "mira"},
			"not-found":     {"/deliveries/91-globex", "mira"},
			"not-signed-in": {"/dead", ""}, "not-allowed": {"/dead", "nobody"}, "no-such-page": {"/nowhere", "mira"},
		} {
			golden(t, name, w.do("GET", c.path, c.who, nil).Body.String())
		}
	})
}

// What the panel Next says, by state.
func TestNext(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		seedStates(w)
		for id, want := range map[string]map[string]string{
			"01-exhausted": {
				"Now":            "Dead since 00:55:58 UTC (4 min ago): 5 of 5 attempts failed.",
				"Next":           "Nothing, until someone redelivers it.",
				"If redelivered": "It runs at once, with 5 new attempts. If it goes on failing, again after 1 min, 5 min, 30 min and 2 h, then it is dead again. The runs below are kept.",
			},
			"02-parked": {
				"Now":            "Dead since 00:45:58 UTC (14 min ago): its handler parked it at attempt 2 of 5.",
				"Next":           "Nothing: the handler said that trying again is useless.",
				"If redelivered": "It runs at once, with 5 new attempts. If it goes on failing, again after 1 min, 5 min, 30 min and 2 h, then it is dead again. The runs below are kept.",
			},
			"03-no-handler": {
				"Now":            "Dead since 00:28:58 UTC (31 min ago): no registered subscriber “mailer.digest”.",
				"Next":           "Nothing, until someone redelivers it.",
				"If redelivered": "It would die again at once: no running process has this handler. Deploy one first.",
			},
			"04-crash-limit": {
				"Now":  "Dead since 00:04:58 UTC (55 min ago).",
				"Next": "Nothing: too many starts in a row ended without an outcome.",
				"If redelivered": "It runs at once, with 5 new attempts. After two more starts without an outcome it runs alone, in a queue of its own. " +
					"If it goes on failing, again after 1 min, 5 min, 30 min and 2 h, then it is dead again.",
			},
			"05-removed": {
				"Now":            "Dead since 28 Mar 22:59 UTC (2 h ago): its tenant was removed.",
				"Next":           "Nothing, until someone redelivers it.",
				"If redelivered": "It runs at once, with 5 new attempts. If it goes on failing, again after 1 min, 5 min, 30 min and 2 h, then it is dead again.",
			},
			"06-one-attempt": {
				"Now":            "Dead since 28 Mar 22:29 UTC (2 h 30 min ago): 1 of 1 attempts failed.",
				"Next":           "Nothing, until someone redelivers it.",
				"If redelivered": "It runs at once, with 1 new attempt. If that fails, it is dead again.",
			},
			"07-unknown": {
				"Now":            "Dead since 26 Mar 22:59 UTC (2 d ago): 3 attempts failed.",
				"Next":           "Nothing, until someone redelivers it.",
				"If redelivered": "It would die again at once: no running process has this handler. Deploy one first.",
			},
			"11-due": {
				"Now": "Pending since 00:59:57 UTC (1 s ago), when it was published.", "Next": "Attempt 1 of 5, now.",
				"If it fails": "Again after 1 min, 5 min, 30 min and 2 h, then it is dead.",
			},
			"12-later": {
				"Now": "Attempt 3 of 8 failed at 00:59:54 UTC (4 s ago).", "Next": "Attempt 4 of 8 in 5 min, at 01:04:58 UTC.",
				"If it fails": "Again every 2 h until attempt 8, then it is dead.",
			},
			"13-running": {
				"Now": "Attempt 2 of 5 failed at 00:58:58 UTC (1 min ago).", "Next": "Attempt 3 of 5 began 12 s ago; it has until 01:00:46 UTC.",
				"If it fails": "Again after 30 min and 2 h, then it is dead.",
			},
			"14-lost": {
				"Now":         "Pending. Its last change was at 28 Mar 23:59 UTC (1 h ago).",
				"Next":        "Attempt 1 of 5 began at 00:57:58 UTC (2 min ago), in a process that has not been heard of since. It runs again when another has taken it over.",
				"If it fails": "Again after 1 min, 5 min, 30 min and 2 h, then it is dead.",
			},
			"15-paused": {"Now": "Pending since 00:58:58 UTC (1 min ago), when it was published.", "Next": "Nothing while ping is paused."},
			"16-no-handler": {
				"Now": "Pending since 00:58:58 UTC (1 min ago), when it was published.", "Next": "Attempt 1, now.",
				"Then": "It would die at once: no running process has this handler. Deploy one first.",
			},
			"17-redelivered": {
				"Now": "Pending since 00:59:56 UTC (2 s ago), when it was redelivered.", "Next": "Attempt 1 of 5, now.",
				"If it fails": "Again after 1 min, 5 min, 30 min and 2 h, then it is dead.",
			},
			"21-delivered": {"Now": "Delivered at 00:59:57 UTC (1 s ago), after 0.4 s.", "Next": "Nothing."},
		} {
			got := w.get("/deliveries/"+id, "mira").next()
			for label, sentence := range want {
				if got[label] != sentence {
					t.Errorf("%s, %s:\n got %q\nwant %q", id, label, got[label], sentence)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: got %q, want %d lines", id, got, len(want))
			}
		}
	})
}
