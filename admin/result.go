package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/openloam/loam/durable"
)

// Outcomes of a press, as they stand in the address that follows it.
const (
	redelivered = "redelivered"
	notDead     = "not-dead"
	tooOld      = "too-old"
	notAnswered = "not-answered"
	notTaken    = "not-taken"
	inDoubt     = "in-doubt"
)

// press is what came of a press of Redeliver.
type press struct {
	delivery, outcome string
	reference         string // to the log, when it failed
}

// reference makes a short name for a line in the log.
func reference() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// signed puts p into an address, so that only a press makes the page say that there was one. The key is this process's:
// another one, or the next, does not know it, and then says only how the delivery stands.
func (h *handler) signed(op Operator, p press) url.Values {
	v := url.Values{"of": {p.delivery}, "result": {p.outcome}, "signed": {h.signature(op, p)}}
	if p.reference != "" {
		v.Set("reference", p.reference)
	}
	return v
}

func (h *handler) signature(op Operator, p press) string {
	mac := hmac.New(sha256.New, h.key[:])
	for _, s := range []string{op.Tenant, p.delivery, p.outcome, p.reference} {
		sum := sha256.Sum256([]byte(s)) // of one length each, so that no two lists run into the same bytes
		mac.Write(sum[:])
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:15])
}

// flash is the line about the last press. It says how the delivery stands now, not what was asked for.
type flash struct {
	Class, Icon string
	Bold        string
	Text        []part
	Open        string // the address of the delivery
}

// flash makes the line for the address that signed made; nil if there is nothing to say, or no such delivery.
func (h *handler) flash(r *http.Request, op Operator, at spot, now time.Time) (*flash, error) {
	q := r.URL.Query()
	p := press{delivery: q.Get("of"), outcome: q.Get("result"), reference: q.Get("reference")}
	if p.delivery == "" {
		return nil, nil
	}
	in, err := h.cfg.Engine.InspectDelivery(r.Context(), p.delivery)
	if errors.Is(err, durable.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !hmac.Equal([]byte(q.Get("signed")), []byte(h.signature(op, p))) {
		p.outcome = ""
	}
	whom := sentence(" ", name(in.SubscriberKey), " for ", name(in.EventName), ". ")
	if at.delivery == in.ID {
		whom = sentence(". ")
	}
	f := lineFor(p, subjectOf(&in, now), whom)
	if at.delivery != in.ID {
		here := at
		here.delivery = in.ID
		f.Open = h.link(here, nil)
	}
	return f, nil
}

// lineFor writes the line about a press of the delivery that whom names.
func lineFor(p press, in *subject, whom []part) *flash {
	now := in.now
	changed := past(now, in.UpdatedAt.Time)
	warn := func(bold string, text ...any) *flash {
		return &flash{Class: "warn", Icon: "warn", Bold: bold, Text: sentence(text...)}
	}
	switch p.outcome {
	case redelivered:
		f := &flash{Class: "good", Icon: "delivered", Bold: "Redelivered", Text: sentence(whom, stands(in))}
		if in.Status == durable.Dead {
			f.Class, f.Icon = "warn", "warn"
		}
		return f
	case notDead:
		switch in.Status {
		case durable.Dead:
			return warn("Not redelivered: it was not dead then.", " It has died since, at ", changed, ". Your press changed nothing.")
		case durable.Delivered:
			return warn("Not redelivered: it is not dead any more.", " It was delivered at ", past(now, in.DeliveredAt.Time), ". Your press changed nothing.")
		case durable.Pending:
			return warn("Not redelivered: it is not dead any more.", " It has been pending since ", changed, ". Your press changed nothing.")
		}
	case tooOld:
		if in.Status == durable.Dead {
			return warn("Not redelivered: this page was too old.", " The delivery died again at ", changed,
				", after you opened the page. Look at the new error, then press Redeliver again.")
		}
		return warn("Not redelivered: this page was too old.", " The delivery had died again. ", stands(in))
	case notAnswered:
		return &flash{
			Class: "bad", Icon: "dead", Bold: "Not redelivered: the database did not answer within 10 s.",
			Text: sentence(" Nothing was changed. Try again; if it goes on, look at the health page. Reference " + p.reference + "."),
		}
	case notTaken:
		return &flash{
			Class: "bad", Icon: "dead", Bold: "Not redelivered: the database did not take it.",
			Text: sentence(" Nothing was changed. The log says why, under the reference " + p.reference + "."),
		}
	case inDoubt:
		return warn("We do not know whether it was redelivered.", " The database failed on the way. ", stands(in), " Reference "+p.reference+".")
	}
	return &flash{Class: "plain", Icon: "start", Bold: "Delivery", Text: sentence(whom, stands(in))}
}

// stands says in a sentence how a delivery is now.
func stands(in *subject) []part {
	now := in.now
	number := ordinal(in)
	switch in.Status {
	case durable.Delivered:
		return sentence("It was delivered at ", past(now, in.DeliveredAt.Time), ".")
	case durable.Dead:
		return sentence("It is dead since ", past(now, in.UpdatedAt.Time), ".")
	case durable.Pending:
	}
	switch {
	case !in.Started.IsZero():
		return sentence("It is pending now; " + number + " is running.")
	case in.NextAttemptAt.After(now):
		m := future(now, in.NextAttemptAt.Time)
		return sentence("It is pending now, with "+number+" due "+m.Rel+", at ", m, ".")
	}
	return sentence("It is pending now, with " + number + " due at once.")
}
