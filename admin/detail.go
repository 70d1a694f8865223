package admin

import (
	"net/http"
	"strings"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

// deliveryPage is the data of delivery.html.
type deliveryPage struct {
	frame
	Back, BackTitle   string
	Subscriber, Event []piece
	State             pill
	Next              []line
	Form              *form
	Primary           bool
	Error             []piece
	Stack             []piece
	History           []happening
	Payload           payload
	MayPayload        bool
	Headers           []piece
	Facts             []fact
}

// pill is a state: a colour, an icon and a word.
type pill struct{ Class, Icon, Word string }

var pills = map[durable.Status]pill{
	durable.Dead:      {"bad", "dead", "Dead"},
	durable.Pending:   {"warn", "pending", "Pending"},
	durable.Delivered: {"good", "delivered", "Delivered"},
}

// fact is a line of the details.
type fact struct {
	Label string
	ID    string // copied as a whole
	Text  []part
	Rel   string
}

func (h *handler) delivery(w http.ResponseWriter, r *http.Request, op Operator) error {
	at, err := spotOf(r.URL.Query())
	if err != nil {
		return err
	}
	in, err := h.cfg.Engine.InspectDelivery(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	counts, err := h.cfg.Engine.DeliveryCounts(r.Context())
	if err != nil {
		return err
	}
	list := at
	at.delivery = in.ID
	f, err := h.frameOf(r, op, at, counts)
	if err != nil {
		return err
	}
	subject := subjectOf(&in, h.cfg.Now())
	p := deliveryPage{
		frame: f, Back: h.link(list, nil), BackTitle: "Dead deliveries", State: pills[in.Status],
		Subscriber: name(in.SubscriberKey), Event: name(in.EventName), Next: nextLines(subject),
		MayPayload: op.Can(ViewPayloads), Headers: headersOf(in.Headers), Facts: facts(subject),
	}
	if list.list == listPending {
		p.BackTitle = "Pending deliveries"
	}
	p.Skip = "Skip to the delivery"
	publisher := ""
	if p.MayPayload {
		p.Payload, publisher = payloadOf(in.Payload), actorOf(in.Payload)
	}
	p.History = historyOf(subject, publisher)
	if in.LastError != "" {
		p.Error = errorPieces(in.LastError)
		if n := len(subject.failures); n > 0 && subject.failures[n-1].Error == in.LastError {
			p.Stack = spelled(subject.failures[n-1].Stack)
		}
	}
	if in.Status == durable.Dead && op.Can(Redeliver) {
		p.Form = h.redeliverForm(at, in.ID, formatTime(in.UpdatedAt), in.SubscriberKey, in.EventName)
		p.Primary = in.Alive
	}
	if in.Status != durable.Dead {
		p.NoRight = ""
	}
	p.titled("%s: %s for %s", p.State.Word, plain(in.SubscriberKey), plain(in.EventName))
	return h.render(w, http.StatusOK, "delivery.html", p)
}

func facts(in *subject) []fact {
	now := in.now
	limit := 0
	if in.Subscriber != nil {
		limit = in.Subscriber.MaxAttempts
	}
	published, changed := past(now, in.CreatedAt.Time), past(now, in.UpdatedAt.Time)
	out := []fact{
		{Label: "Delivery", ID: plain(in.ID)},
		{Label: "Event", ID: plain(in.EventID)},
		{Label: "Attempts", Text: sentence(attempts(in.Attempts, limit)), Rel: plural(in.Runs, "run", "runs") + " in all"},
		{Label: "Queue", Text: sentence(spelled(in.Queue))},
	}
	if parts := strings.Split(events.ParseHeaders(in.Headers).Traceparent, "-"); len(parts) == 4 {
		out = append(out, fact{Label: "Trace", ID: plain(parts[1])})
	}
	out = append(out,
		fact{Label: "Published", Text: sentence(published), Rel: published.Rel},
		fact{Label: "Last change", Text: sentence(changed), Rel: changed.Rel})
	return append(out, fact{Label: "Handler", Text: sentence(whoHas(in))})
}

// whoHas says which process has the handler.
func whoHas(in *subject) string {
	switch {
	case in.Subscriber != nil:
		return "in this process"
	case in.Alive:
		return "in another process, last seen " + past(in.now, in.LastSeen).Rel
	case !in.LastSeen.IsZero():
		return "in no running process; last seen " + past(in.now, in.LastSeen).Rel
	}
	return "in no running process"
}
