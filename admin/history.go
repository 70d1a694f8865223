package admin

import (
	"strconv"

	"github.com/openloam/loam/durable"
)

// historyShown is how many runs a page shows, should a row have more than durable keeps.
const historyShown = 20

// happening is an entry of a delivery's history.
type happening struct {
	Class, Icon string
	Title, Text string
	When        moment
	Error       []piece
	Note        string
	Stack       []piece
}

// historyOf returns what happened to a delivery, newest first. publisher is the actor's id, or empty.
func historyOf(in *subject, publisher string) []happening {
	now, failures := in.now, in.failures
	var out []happening
	switch {
	case in.Status == durable.Delivered:
		end := happening{Class: "good", Icon: "delivered", Title: run(in.Runs), Text: "succeeded", When: past(now, in.DeliveredAt.Time)}
		if in.DurationMS > 0 {
			end.Text += " after " + took(in.DurationMS)
		}
		out = append(out, end)
	case !in.Started.IsZero():
		out = append(out, happening{Class: "warn", Icon: "pending", Title: run(in.Runs), Text: "has begun", When: past(now, in.Started)})
	}
	seen := map[string]int{}
	for i := len(failures) - 1; i >= max(0, len(failures)-historyShown); i-- {
		f := failures[i]
		h := happening{
			Class: "bad", Icon: "dead", Title: run(f.Run), Text: "failed after " + took(f.DurationMS), When: past(now, f.At.Time),
			Note: after(in, i),
		}
		switch first, again := seen[f.Error]; {
		case i == len(failures)-1 && f.Error == in.LastError:
			h.Note = joined("Last error, above.", h.Note)
		case again:
			h.Note = joined("Same error as run "+strconv.Itoa(first)+".", h.Note)
		default:
			h.Error, h.Stack = errorPieces(f.Error), spelled(f.Stack)
		}
		if _, again := seen[f.Error]; !again {
			seen[f.Error] = f.Run
		}
		out = append(out, h)
	}
	published := happening{Class: "muted", Icon: "start", Title: "Published", When: past(now, in.CreatedAt.Time)}
	if publisher != "" {
		published.Text = "by actor " + plain(publisher)
	}
	return append(out, published)
}

// after says what came after failure i.
func after(in *subject, i int) string {
	failures := in.failures
	f := failures[i]
	if i+1 < len(failures) {
		next, gap := failures[i+1], failures[i+1].At.Sub(f.At.Time)
		if next.Run == f.Run+1 {
			return "Next run " + about(gap) + " after this one began."
		}
		return run(next.Run) + " began " + about(gap) + " after this one."
	}
	switch {
	case in.Status == durable.Dead && in.Reason == durable.Exhausted:
		return "No attempt left: dead."
	case in.Status == durable.Dead && in.Reason == durable.Parked:
		return "Parked: dead."
	case in.Status == durable.Pending && in.Attempts == 0:
		return "Redelivered since."
	case in.Status == durable.Pending && in.NextAttemptAt.After(f.At.Time):
		return "Next run " + about(in.NextAttemptAt.Sub(f.At.Time)) + " after this one began."
	}
	return ""
}

func run(n int) string { return "Run " + number(n) }

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}
