package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/openloam/loam/durable"
)

// frame is what every page has around its subject.
type frame struct {
	// Title is the browser tab's; it begins with what matters.
	Title             string
	Sheet, Home       string
	Tenant, Operator  []piece
	Tabs              []tab
	Strip             *strip
	Flash             *flash
	AsOf              moment
	Refresh           string
	TenantPlain, Skip string
	// NoRight says that the operator may not redeliver, and is empty if they may.
	NoRight string
}

// tab is a list, with how many it has.
type tab struct {
	Label, Link, Count string
	Hot, Current       bool
}

// part is a part of a sentence: our words, a text from outside, or a time.
type part struct {
	Text  string
	Named []piece
	Time  *moment
}

// sentence puts strings, pieces and moments together.
func sentence(parts ...any) []part {
	out := make([]part, 0, len(parts))
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			out = append(out, part{Text: p})
		case []piece:
			out = append(out, part{Named: p})
		case moment:
			out = append(out, part{Time: &p})
		case []part:
			out = append(out, p...)
		}
	}
	return out
}

// frameOf makes the frame of a page that shows deliveries. title gets the tenant behind it.
func (h *handler) frameOf(r *http.Request, op Operator, at spot, counts durable.Counts) (frame, error) {
	now := h.cfg.Now()
	f := h.bare(op, at)
	f.Tabs[0].Count, f.Tabs[0].Hot = count(counts.Dead), counts.Dead > 0
	f.Tabs[1].Count = count(counts.Pending)
	f.Strip = stripOf(h.cfg.Engine.Health(r.Context()), now)
	f.AsOf = past(now, now)
	f.Refresh = h.link(at, nil)
	if !op.Can(Redeliver) {
		f.NoRight = noRight
	}
	var err error
	f.Flash, err = h.flash(r, op, at, now)
	return f, err
}

// bare is the frame without what has to be read.
func (h *handler) bare(op Operator, at spot) frame {
	f := frame{
		Sheet: h.address(nil, sheetDir[1:len(sheetDir)-1], sheetName), Home: h.link(spot{list: listDead}, nil),
		Tenant: name(op.Tenant), TenantPlain: plain(op.Tenant), Operator: spelled(op.ID), Skip: "Skip to the deliveries",
	}
	if op.Tenant == "" {
		return f
	}
	for _, t := range []struct{ label, list string }{{"Dead", listDead}, {"Pending", listPending}} {
		f.Tabs = append(f.Tabs, tab{Label: t.label, Link: h.link(spot{list: t.list}, nil), Current: at.list == t.list && at.delivery == ""})
	}
	return f
}

// titled sets the title.
func (f *frame) titled(format string, args ...any) {
	f.Title = fmt.Sprintf(format, args...)
	if f.TenantPlain != "" {
		f.Title += " · " + f.TenantPlain
	}
	f.Title += " · Loam"
}

// render writes a page, or nothing of it: an error has its own.
func (h *handler) render(w http.ResponseWriter, status int, page string, data any) error {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, page, data); err != nil {
		return fmt.Errorf("render %s: %w", page, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // whoever has gone away needs no page
	return nil
}

// noticePage is the data of notice.html.
type noticePage struct {
	frame
	Heading, Text string
}

// say answers with a notice.
func (h *handler) say(w http.ResponseWriter, r *http.Request, op Operator, n notice) {
	p := noticePage{frame: h.bare(op, spot{}), Heading: n.title, Text: n.text}
	p.Skip = "Skip to the text"
	p.titled("%s", n.title)
	if err := h.render(w, n.status, "notice.html", p); err != nil {
		h.cfg.Logger.ErrorContext(r.Context(), "operator's page failed", slog.Any("error", err))
		http.Error(w, n.text, n.status)
	}
}

// timeOrNone is past, or nil for the zero time.
func timeOrNone(now, t time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	m := past(now, t)
	return &m
}
