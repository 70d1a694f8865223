package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openloam/loam/durable"
)

// longError is the length from which on a list offers to show an error in full.
const longError = 100

// listPage is the data of dead.html and pending.html.
type listPage struct {
	frame
	Rows         []row
	Foot         []part
	Newer, Older string // addresses, if there is more
	Empty        *empty
}

// empty is what stands where a list has nothing.
type empty struct {
	Good            bool
	Title, Text     string
	Link, LinkTitle string
}

// row is a delivery in a list.
type row struct {
	Link              string
	Subscriber, Event []piece
	EventID           ident
	Attempts, Reason  string
	Error             []piece
	Long              bool
	More              string
	When              *moment // nil is now
	Form              *form
}

// form is a button that acts.
type form struct {
	Action string
	Hidden [][2]string
	// Of says what the button is about to who cannot see where it stands.
	Of string
}

func (h *handler) home(w http.ResponseWriter, r *http.Request, _ Operator) error {
	http.Redirect(w, r, h.link(spot{list: listDead}, nil), http.StatusSeeOther)
	return nil
}

func (h *handler) dead(w http.ResponseWriter, r *http.Request, op Operator) error {
	at, err := spotOf(r.URL.Query())
	if err != nil {
		return err
	}
	at.list = listDead
	page, err := h.cfg.Engine.DeliveryPage(r.Context(), durable.PageQuery{
		Status: durable.Dead, Before: at.before, After: at.after, Limit: h.pageSize,
	})
	if err != nil {
		return err
	}
	p, err := h.list(r, op, at, page)
	if err != nil {
		return err
	}
	now := h.cfg.Now()
	switch n := len(page.Rows); {
	case n > 0:
		first, last := page.Rows[n-1].UpdatedAt.Time, page.Rows[0].UpdatedAt.Time
		p.Foot = sentence(number(n) + " of " + p.Tabs[0].Count + ", died between " + short(now, first) + " and " + short(now, last) + nb + "UTC")
		if page.Newer {
			p.Newer = h.link(spot{list: listDead, after: page.Rows[0].Place()}, nil)
		}
		if page.Older {
			p.Older = h.link(spot{list: listDead, before: page.Rows[n-1].Place()}, nil)
		}
	case at.before != durable.Place{} || at.after != durable.Place{}:
		p.Empty = &empty{Title: "Nothing is left on this page", Text: "What was here has been redelivered.", Link: p.Home, LinkTitle: "Newest dead deliveries"}
	default:
		p.Empty, err = h.nothingDead(r, op, p.Tabs[1].Count, now)
		if err != nil {
			return err
		}
	}
	p.titled("%s dead", p.Tabs[0].Count)
	return h.render(w, http.StatusOK, "dead.html", p)
}

// short is a time in the foot of a list, where UTC is said once.
func short(now, t time.Time) string {
	m := at(now, t)
	return strings.TrimSuffix(m.Clock, nb+"UTC")
}

// nothingDead says what there is instead.
func (h *handler) nothingDead(r *http.Request, op Operator, pending string, now time.Time) (*empty, error) {
	e := &empty{Good: true, Title: "Nothing is dead", Text: "Every delivery of " + plain(op.Tenant) + " was delivered or is still being tried."}
	if pending == "0" {
		e.Text += " None is pending."
		return e, nil
	}
	page, err := h.cfg.Engine.DeliveryPage(r.Context(), durable.PageQuery{Status: durable.Pending, Limit: 1})
	if err != nil || len(page.Rows) == 0 {
		return e, err
	}
	due := "now"
	if t := page.Rows[0].NextAttemptAt; t.After(now) {
		due = future(now, t.Time).Rel
	}
	verb := " are pending, the next "
	if pending == "1" {
		verb = " is pending, due "
	}
	e.Text += " " + pending + verb + due + "."
	return e, nil
}

func (h *handler) pending(w http.ResponseWriter, r *http.Request, op Operator) error {
	page, err := h.cfg.Engine.DeliveryPage(r.Context(), durable.PageQuery{Status: durable.Pending})
	if err != nil {
		return err
	}
	p, err := h.list(r, op, spot{list: listPending}, page)
	if err != nil {
		return err
	}
	if len(page.Rows) == 0 {
		p.Empty = &empty{Good: true, Title: "Nothing is pending", Text: "Every delivery of " + plain(op.Tenant) + " was delivered or is dead."}
	}
	p.titled("%s pending", p.Tabs[1].Count)
	return h.render(w, http.StatusOK, "pending.html", p)
}

// list makes what both lists have.
func (h *handler) list(r *http.Request, op Operator, at spot, page durable.Page) (listPage, error) {
	counts, err := h.cfg.Engine.DeliveryCounts(r.Context())
	if err != nil {
		return listPage{}, err
	}
	f, err := h.frameOf(r, op, at, counts)
	if err != nil {
		return listPage{}, err
	}
	p := listPage{frame: f}
	now := h.cfg.Now()
	for i := range page.Rows {
		p.Rows = append(p.Rows, h.row(op, at, &page.Rows[i], now))
	}
	return p, nil
}

func (h *handler) row(op Operator, at spot, l *durable.Listed, now time.Time) row {
	here := at
	here.delivery = l.ID
	out := row{
		Link: h.link(here, nil), Subscriber: name(l.SubscriberKey), Event: name(l.EventName), EventID: idOf(l.EventID),
		Attempts: attempts(l.Attempts, l.MaxAttempts), Error: errorPieces(l.Error),
		Long: utf8.RuneCountInString(l.Error) > longError || strings.Count(l.Error, "\n") > 1,
	}
	if more := l.ErrorChars - durable.ListedErrorChars; more > 0 {
		out.More = plural(more, "more character", "more characters")
	}
	if at.list == listPending {
		if l.NextAttemptAt.After(now) {
			m := future(now, l.NextAttemptAt.Time)
			out.When = &m
		}
		return out
	}
	if l.Reason != durable.Exhausted {
		out.Reason = string(l.Reason)
	}
	out.When = timeOrNone(now, l.UpdatedAt.Time)
	if op.Can(Redeliver) {
		out.Form = h.redeliverForm(at, l.ID, formatTime(l.UpdatedAt), l.SubscriberKey, l.EventName)
	}
	return out
}

// attempts writes how many failed of how many; what this process does not know is left out.
func attempts(n, max int) string {
	if max == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d of %d", n, max)
}
