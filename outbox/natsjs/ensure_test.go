package natsjs_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

const streamInfo, consumerInfo = "$JS.API.STREAM.INFO.LOAM_EVENTS", "$JS.API.CONSUMER.INFO.LOAM_EVENTS.billing"

// ask makes a request of JetStream's API, which must succeed, and returns the configuration that it answers with, all of it.
func ask(t *testing.T, js jetstream.JetStream, subject, request string) map[string]any {
	t.Helper()
	m, err := js.Conn().Request(subject, []byte(request), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Error  any            `json:"error"`
		Config map[string]any `json:"config"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Error != nil {
		t.Fatalf("%s: %s", subject, m.Data)
	}
	return answer.Config
}

// same compares configurations, but for what is expected to be changed.
func same(t *testing.T, what string, before, after map[string]any, changed map[string]any) {
	t.Helper()
	for field, value := range changed {
		if got := fmt.Sprint(after[field]); got != fmt.Sprint(value) {
			t.Errorf("%s: %s is %v, want %v", what, field, got, value)
		}
		before[field] = after[field]
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("%s: before and after are\n%v\n%v", what, before, after)
	}
}

// Stream and consumer are made as the documentation says when they are not there, without a word.
//
// contract: N-01, N-02
func TestWhatIsMade(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	s := newSender(t, url)
	for range 2 {
		if _, err := s.Ensure(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
	}
	js := watcher(t, url)
	for subject, want := range map[string]map[string]any{
		streamInfo: {
			"subjects": []any{"loam.events.>"}, "retention": "limits", "storage": "file", "discard": "new",
			"duplicate_window": float64(time.Hour), "max_age": float64(7 * 24 * time.Hour), "max_msgs": -1.0, "max_bytes": -1.0,
		},
		consumerInfo: {
			"durable_name": "billing", "ack_policy": "explicit", "deliver_policy": "all", "filter_subject": "loam.events.>",
			"max_deliver": 5.0, "ack_wait": float64(time.Minute), "max_ack_pending": 1000.0, "backoff": nil,
		},
	} {
		got := ask(t, js, subject, "")
		for field, value := range want {
			if !reflect.DeepEqual(got[field], value) {
				t.Errorf("%s: %s is %v, want %v", subject, field, got[field], value)
			}
		}
	}
	if lines := s.logs.Lines(); len(lines) != 0 {
		t.Errorf("logged: %q", lines)
	}
}

// operators is what an operator may have set, in the words of the API, so that also fields are there which this build has no name for.
const (
	operatorsStream = `{"name":"LOAM_EVENTS","subjects":["loam.events.>","other.>"],"retention":"limits","storage":"memory","description":"ours",
		"max_age":864000000000000,"max_bytes":50000000,"max_msgs":100000,"max_msg_size":70000,"max_msgs_per_subject":5000,"discard":"old","num_replicas":1,
		"duplicate_window":120000000000,"deny_delete":true,"allow_direct":true,"allow_rollup_hdrs":true,"allow_msg_ttl":true,"compression":"s2",
		"metadata":{"team":"shop"},"consumer_limits":{"max_ack_pending":2000}}`
	operatorsConsumer = `{"stream_name":"LOAM_EVENTS","config":{"durable_name":"billing","name":"billing","description":"ours","deliver_policy":"new",
		"ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"filter_subject":"loam.>","replay_policy":"instant","sample_freq":"50%",
		"max_waiting":100,"max_ack_pending":10,"max_batch":100,"inactive_threshold":86400000000000,"mem_storage":true,"metadata":{"team":"shop"}}}`
)

// Of a stream and a consumer that are there, with everything set that an operator may set, three fields are updated, with a warning each
// time that says what was and what is; everything else stays. The second time nothing differs and nothing is said.
//
// contract: N-04
// scenario: B138
func TestWhatIsThereIsKept(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	js := watcher(t, url)
	stream := ask(t, js, "$JS.API.STREAM.CREATE.LOAM_EVENTS", operatorsStream)
	consumer := ask(t, js, "$JS.API.CONSUMER.CREATE.LOAM_EVENTS.billing.loam.>", operatorsConsumer)
	s := newSender(t, url)
	for range 2 {
		c, err := s.Ensure(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		if live := c.CachedInfo().Config; live.MaxDeliver != 7 || live.AckWait != time.Minute {
			t.Errorf("the consumer that is returned has %+v", live)
		}
	}
	same(t, "stream", stream, ask(t, js, streamInfo, ""), map[string]any{"duplicate_window": float64(time.Hour)})
	same(t, "consumer", consumer, ask(t, js, consumerInfo, ""), map[string]any{"max_deliver": 7.0, "ack_wait": float64(time.Minute)})
	if lines := s.logs.Lines("WARN updated in NATS"); len(lines) != 2 || len(s.logs.Lines("WARN")) != 2 ||
		!strings.Contains(lines[0], "kind=stream name=LOAM_EVENTS duplicate_window=[is=2m0s needed=1h0m0s]") ||
		!strings.Contains(lines[1], "kind=consumer name=billing max_deliver=[is=-1 needed=7] ack_wait=[is=30s needed=1m0s]") {
		t.Errorf("logged:\n%s", strings.Join(s.logs.Lines(), "\n"))
	}
}

// An update that is rejected, for want of a right or because the broker finds that it does not fit, leaves a warning with the command, once, and all
// goes on as it is.
//
// contract: N-04
func TestARejectedUpdate(t *testing.T) {
	t.Parallel()
	url := configured(t, `authorization { users = [
		{ user: admin, password: a },
		{ user: app, password: b, permissions: { publish: { deny: ["$JS.API.STREAM.UPDATE.>", "$JS.API.CONSUMER.CREATE.>"] } } } ] }`).ClientURL()
	admin := strings.Replace(url, "://", "://admin:a@", 1)
	for user, want := range map[string]string{"app:b": "permissions violation", "admin:a": "backoff"} {
		js := watcher(t, admin)
		stream := `{"name":"LOAM_EVENTS","subjects":["loam.events.>"],"duplicate_window":120000000000}`
		consumer := `{"stream_name":"LOAM_EVENTS","config":{"durable_name":"billing","ack_policy":"explicit","max_deliver":-1,"filter_subject":"loam.events.>"`
		edits := []string{"nats stream edit LOAM_EVENTS --dupe-window=1h0m0s", "nats consumer edit LOAM_EVENTS billing --max-deliver=5 --wait=1m0s"}
		if user == "admin:a" { // a window longer than messages are kept, and fewer deliveries than steps of backoff
			stream = strings.Replace(stream, `}`, `,"max_age":600000000000}`, 1)
			consumer += `,"backoff":[60000000000,60000000000,60000000000,60000000000,60000000000,60000000000]`
			edits[1] = "nats consumer edit LOAM_EVENTS billing --max-deliver=5"
		} else {
			consumer += `,"ack_wait":30000000000`
		}
		ask(t, js, "$JS.API.STREAM.CREATE.LOAM_EVENTS", stream)
		ask(t, js, "$JS.API.CONSUMER.CREATE.LOAM_EVENTS.billing.loam.events.>", consumer+`}}`)
		beforeStream, beforeConsumer := ask(t, js, streamInfo, ""), ask(t, js, consumerInfo, "")
		s := newSender(t, strings.Replace(url, "://", "://"+user+"@", 1))
		s.Short(0, patient, 0)
		began := time.Now()
		for range 2 {
			c, err := s.Ensure(t.Context(), 5)
			if err != nil || c == nil {
				t.Fatalf("%s: it does not start: %v", user, err)
			}
		}
		if took := time.Since(began); took > patient/2 {
			t.Errorf("%s: it took %v", user, took)
		}
		s.send(event(t, paid, nil))
		lines := s.logs.Lines("WARN", "could not be updated")
		if len(lines) != 2 {
			t.Fatalf("%s: logged\n%s", user, strings.Join(s.logs.Lines(), "\n"))
		}
		for i, edit := range edits {
			if !strings.Contains(lines[i], "command="+edit+" error=") {
				t.Errorf("%s: %s, want the command %s", user, lines[i], edit)
			}
		}
		if !strings.Contains(lines[1], want) {
			t.Errorf("%s: %s, want the reason %q", user, lines[1], want)
		}
		same(t, user+": stream", beforeStream, ask(t, js, streamInfo, ""), nil)
		same(t, user+": consumer", beforeConsumer, ask(t, js, consumerInfo, ""), nil)
		if err := js.DeleteStream(t.Context(), natsjs.DefaultStream); err != nil {
			t.Fatal(err)
		}
	}
}

// A consumer that cannot work is refused, with the field, its value, what is allowed and the command that removes it. Removed and made anew,
// it brings what the stream has.
//
// contract: N-04
// scenario: B138
func TestAConsumerThatCannotWork(t *testing.T) {
	t.Parallel()
	url := natsserver.Run(t).ClientURL()
	js := watcher(t, url)
	s := newSender(t, url)
	s.send(event(t, paid, nil), event(t, paid, nil), event(t, paid, nil))
	for config, want := range map[string]string{
		`"ack_policy":"none"`: `ack_policy is none, must be explicit`,
		`"ack_policy":"all"`:  `ack_policy is all, must be explicit`,
		`"ack_policy":"explicit","filter_subject":"loam.events.billing.>"`:                  `filter_subject is loam.events.billing.>, must be loam.events.>`,
		`"ack_policy":"explicit","filter_subjects":["loam.events.a.>","loam.events.b.>"]`:   `filter_subject is loam.events.a.>, loam.events.b.>, must be loam.events.>`,
		`"ack_policy":"explicit","headers_only":true`:                                       `headers_only is true, must be false`,
		`"ack_policy":"explicit","deliver_subject":"x"`:                                     `deliver_subject is set, must be empty: a pull consumer`,
		`"ack_policy":"explicit","priority_groups":["a"],"priority_policy":"overflow"`:      `priority_policy is overflow, must be none`,
		`"ack_policy":"explicit","priority_groups":["a"],"priority_policy":"pinned_client"`: `priority_policy is pinned_client, must be none`,
	} {
		subject := "$JS.API.CONSUMER.DURABLE.CREATE.LOAM_EVENTS.billing"
		ask(t, js, subject, `{"stream_name":"LOAM_EVENTS","config":{"durable_name":"billing",`+config+`}}`)
		for range 2 { // it is tried again
			_, err := s.Ensure(t.Context(), 5)
			failure(t, config, err, outbox.IsUnavailable, "consumer billing of stream LOAM_EVENTS", want, "nats consumer rm LOAM_EVENTS billing")
		}
		if err := js.DeleteConsumer(t.Context(), natsjs.DefaultStream, "billing"); err != nil {
			t.Fatal(err)
		}
		c, err := s.Ensure(t.Context(), 5)
		if err != nil || c.CachedInfo().NumPending != 3 {
			t.Errorf("made anew it has %+v, %v; want 3 messages", c, err)
		}
		if err := js.DeleteConsumer(t.Context(), natsjs.DefaultStream, "billing"); err != nil {
			t.Fatal(err)
		}
	}
}

// Which patterns match all that a subject does.
func TestCovered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patterns, subject string
		want              bool
	}{
		{"loam.events.>", "loam.events.>", true},
		{"loam.>", "loam.events.>", true},
		{">", "loam.events.>", true},
		{"*.events.>", "loam.events.>", true},
		{"other.> loam.>", "loam.events.>", true},
		{"loam.events.*", "loam.events.>", false},
		{"loam.events.a.>", "loam.events.>", false},
		{"loam.events.>", "loam.>", false},
		{"loam.events", "loam.events.>", false},
		{"loam.events.>", "loam.events", false},
		{"loam.events.>", "loam.events.a.b.c", true},
		{"loam.events.*.*.*", "loam.events.a.b.c", true},
		{"loam.events.*.*", "loam.events.a.b.c", false},
		{"loam.events.a.b.c", "loam.events.a.b.c", true},
		{"loam.events.a.b.x", "loam.events.a.b.c", false},
		{"", "loam.events.a.b.c", false},
	} {
		if got := natsjs.Covered(strings.Fields(c.patterns), c.subject); got != c.want {
			t.Errorf("%q covers %q: %v", c.patterns, c.subject, got)
		}
	}
}
