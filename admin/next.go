package admin

import (
	"fmt"
	"strconv"
	"time"

	"github.com/openloam/loam/durable"
)

// subject is a delivery at the moment of a request.
type subject struct {
	*durable.Inspection
	failures []durable.Failure // oldest first
	now      time.Time
}

func subjectOf(in *durable.Inspection, now time.Time) *subject {
	return &subject{in, in.History(), now}
}

// line is one sentence of the panel that says what happens next.
type line struct {
	Label string
	Warn  bool
	Text  []part
}

// ordinal names the attempt that comes, or goes on.
func ordinal(in *subject) string {
	n := "attempt " + strconv.Itoa(in.Attempts+1)
	if in.Subscriber != nil {
		n += " of " + strconv.Itoa(in.Subscriber.MaxAttempts)
	}
	return n
}

// nextLines says what a delivery is now, what comes, and what a press or a failure leads to. What depends on a
// registration that this process does not have is left out.
func nextLines(in *subject) []line {
	now := in.now
	switch in.Status {
	case durable.Delivered:
		text := sentence("Delivered at ", past(now, in.DeliveredAt.Time), " ("+past(now, in.DeliveredAt.Time).Rel+")")
		if in.DurationMS > 0 {
			text = sentence(text, ", after "+took(in.DurationMS))
		}
		return []line{{Label: "Now", Text: sentence(text, ".")}, {Label: "Next", Text: sentence("Nothing.")}}
	case durable.Dead:
		return deadLines(in)
	case durable.Pending:
		return pendingLines(in)
	}
	return nil
}

const noHandlerAnywhere = "no running process has this handler. Deploy one first."

func deadLines(in *subject) []line {
	now := in.now
	since := past(now, in.UpdatedAt.Time)
	why := []part{{Text: "."}}
	next := "Nothing, until someone redelivers it."
	switch in.Reason {
	case durable.Exhausted:
		why = sentence(": " + attempts(in.Attempts, in.Subscriber.MaxAttempts) + " attempts failed.")
	case durable.Unknown:
		why = sentence(": " + plural(in.Attempts, "attempt", "attempts") + " failed.")
	case durable.Parked:
		why = sentence(": its handler parked it at attempt " + attempts(in.Attempts, in.Subscriber.MaxAttempts) + ".")
		next = "Nothing: the handler said that trying again is useless."
	case durable.NoHandler:
		why = sentence(": no registered subscriber “", name(in.SubscriberKey), "”.")
	case durable.CrashLimited:
		next = "Nothing: too many starts in a row ended without an outcome."
	case durable.TenantRemoved:
		why = sentence(": its tenant was removed.")
	}
	if !in.DiscardedAt.IsZero() {
		why = sentence(why, " It was discarded at ", past(now, in.DiscardedAt.Time), ".")
	}
	lines := []line{
		{Label: "Now", Text: sentence("Dead since ", since, " ("+since.Rel+")", why)},
		{Label: "Next", Text: sentence(next)},
	}
	if !in.Alive {
		return append(lines, line{Label: "If redelivered", Warn: true, Text: sentence("It would die again at once: " + noHandlerAnywhere)})
	}
	return append(lines, line{Label: "If redelivered", Text: sentence(ifRedelivered(in))})
}

func ifRedelivered(in *subject) string {
	s := "It runs at once, in a process that has the handler."
	if sub := in.Subscriber; sub != nil {
		s = fmt.Sprintf("It runs at once, with %s.", plural(sub.MaxAttempts, "new attempt", "new attempts"))
		if in.Reason == durable.CrashLimited {
			s += " After two more starts without an outcome it runs alone, in a queue of its own."
		}
		if again := schedule(sub, 1); again != "" {
			s += " If it goes on failing, again " + again + ", then it is dead again."
		} else {
			s += " If that fails, it is dead again."
		}
	}
	if len(in.failures) > 0 {
		s += " The runs below are kept."
	}
	return s
}

func pendingLines(in *subject) []line {
	now := in.now
	number := ordinal(in)
	first := line{Label: "Now", Text: sinceWhen(in)}
	next := line{Label: "Next", Text: sentence(capital(number) + ", now.")}
	began := past(now, in.Started)
	switch {
	case in.Lost:
		next.Warn = true
		next.Text = sentence(capital(number)+" began at ", began, " ("+began.Rel+"), in a process that has not been heard of since. It runs again when another has taken it over.")
	case !in.Started.IsZero():
		next.Text = sentence(capital(number) + " began " + began.Rel)
		if in.Subscriber != nil {
			next.Text = sentence(next.Text, "; it has until ", past(now, in.Started.Add(in.Subscriber.Timeout)))
		}
		next.Text = sentence(next.Text, ".")
	case in.Paused:
		return []line{first, {Label: "Next", Text: sentence("Nothing while ", name(in.SubscriberKey), " is paused.")}}
	case in.NextAttemptAt.After(now):
		m := future(now, in.NextAttemptAt.Time)
		next.Text = sentence(capital(number)+" "+m.Rel+", at ", m, ".")
	}
	lines := []line{first, next}
	switch {
	case !in.Alive:
		lines = append(lines, line{Label: "Then", Warn: true, Text: sentence("It would die at once: " + noHandlerAnywhere)})
	case in.Subscriber != nil:
		then := "It is dead."
		if again := schedule(in.Subscriber, in.Attempts+1); again != "" {
			then = "Again " + again + ", then it is dead."
		}
		lines = append(lines, line{Label: "If it fails", Text: sentence(then)})
	}
	return lines
}

// sinceWhen says what happened last to a pending delivery, as far as the row tells.
func sinceWhen(in *subject) []part {
	now := in.now
	changed := past(now, in.UpdatedAt.Time)
	since := sentence("Pending since ", changed, " ("+changed.Rel+")")
	var text []part
	switch {
	case in.Attempts > 0:
		failed := "Attempt " + strconv.Itoa(in.Attempts)
		if in.Subscriber != nil {
			failed = "Attempt " + attempts(in.Attempts, in.Subscriber.MaxAttempts)
		}
		if n := len(in.failures); n > 0 {
			last := in.failures[n-1]
			changed = past(now, last.At.Add(time.Duration(last.DurationMS)*time.Millisecond))
		}
		text = sentence(failed+" failed at ", changed, " ("+changed.Rel+").")
	case in.UpdatedAt.Equal(in.CreatedAt.Time):
		text = sentence(since, ", when it was published.")
	case len(in.failures) > 0:
		text = sentence(since, ", when it was redelivered.")
	default:
		text = sentence("Pending. Its last change was at ", changed, " ("+changed.Rel+").")
	}
	if n := in.Unfinished; n > 1 && in.Started.IsZero() {
		text = sentence(text, " The last "+plural(n, "start", "starts")+" ended without an outcome.")
	}
	return text
}

// schedule writes the waits after failure number n and those that follow it: "after 1 min, 5 min and 2 h". It is empty
// when that failure is the last.
func schedule(sub *durable.Subscriber, n int) string {
	var waits []time.Duration
	for i := n; i < sub.MaxAttempts; i++ {
		waits = append(waits, sub.Backoff[min(i, len(sub.Backoff)-1)])
	}
	if len(waits) == 0 {
		return ""
	}
	same := 1 // at the end
	for same < len(waits) && waits[len(waits)-1-same] == waits[len(waits)-1] {
		same++
	}
	if same < 3 {
		same = 0
	}
	var words []string
	for _, w := range waits[:len(waits)-same] {
		words = append(words, exact(w))
	}
	s := ""
	if len(words) > 0 {
		s = "after " + and(words)
	}
	if same > 0 {
		if s != "" {
			s += ", then "
		}
		s += "every " + exact(waits[len(waits)-1]) + " until attempt " + strconv.Itoa(sub.MaxAttempts)
	}
	return s
}

func capital(s string) string { return string(s[0]-'a'+'A') + s[1:] }
