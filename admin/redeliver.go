package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
)

// noRight is what somebody without the right to redeliver reads, on the page and in the answer to a forged form.
const noRight = "You can look at deliveries but not redeliver them. The application decides who may."

// redeliverForm is the button for a dead delivery as it is seen now, pressed at a spot.
func (h *handler) redeliverForm(at spot, id, updatedAt, subscriber, event string) *form {
	f := &form{
		Action: h.address(nil, "deliveries", id, "redeliver"),
		Hidden: [][2]string{{"status", string(durable.Dead)}, {"updated_at", updatedAt}, {"list", at.list}},
		Of:     fmt.Sprintf("%s for %s, delivery %s", plain(subscriber), plain(event), idOf(id).Tail),
	}
	for _, c := range []struct {
		name string
		p    durable.Place
	}{{"before", at.before}, {"after", at.after}} {
		if c.p != (durable.Place{}) {
			f.Hidden = append(f.Hidden, [2]string{c.name, formatPlace(c.p)})
		}
	}
	if at.delivery != "" {
		f.Hidden = append(f.Hidden, [2]string{"on", "delivery"})
	}
	return f
}

// redeliver does what a button asks for, and sends the operator back to where they were.
func (h *handler) redeliver(w http.ResponseWriter, r *http.Request, op Operator) error {
	if !op.Can(Redeliver) {
		return notice{http.StatusForbidden, "Not allowed", noRight}
	}
	r.Body = http.MaxBytesReader(w, r.Body, formBytes)
	bad := notice{http.StatusBadRequest, "This form is damaged", "Nothing was changed. Open the page again and press the button there."}
	if err := r.ParseForm(); err != nil {
		return bad
	}
	at, err := spotOf(r.PostForm)
	if err != nil {
		return bad
	}
	delivery := r.PathValue("id")
	seen, ok := parseTime(r.PostForm.Get("updated_at"))
	if !ok || r.PostForm.Get("status") != string(durable.Dead) {
		return bad
	}
	press, err := h.press(r, op, delivery, seen)
	if err != nil {
		return err
	}
	if r.PostForm.Get("on") == "delivery" {
		at.delivery = delivery
	}
	http.Redirect(w, r, h.link(at, h.signed(op, press)), http.StatusSeeOther)
	return nil
}

// press redelivers, and says what came of it.
func (h *handler) press(r *http.Request, op Operator, delivery string, seen database.Time) (press, error) {
	ctx := r.Context()
	p := press{delivery: delivery, outcome: redelivered}
	err := h.cfg.Engine.RedeliverSeen(ctx, delivery, seen)
	switch {
	case err == nil:
		h.cfg.Logger.InfoContext(ctx, "delivery redelivered by an operator",
			slog.String("delivery", delivery), slog.String("tenant", op.Tenant), slog.String("operator", op.ID))
		return p, nil
	case errors.Is(err, durable.ErrNotFound):
		return p, err
	case errors.Is(err, durable.ErrNotDead):
		p.outcome = notDead
		return p, nil
	case errors.Is(err, durable.ErrChanged):
		p.outcome = tooOld
		return p, nil
	}
	p.outcome, p.reference = inDoubt, reference()
	switch {
	case unanswered(err):
		p.outcome = notAnswered
	case refused(err):
		p.outcome = notTaken
	}
	h.cfg.Logger.ErrorContext(ctx, "redelivery by an operator failed",
		slog.String("delivery", delivery), slog.String("tenant", op.Tenant), slog.String("operator", op.ID),
		slog.String("reference", p.reference), slog.Any("error", err))
	return p, nil
}

// refused reports whether the database answered, and has rolled everything back.
func refused(err error) bool {
	for _, e := range []error{database.ErrFull, database.ErrReadOnly, database.ErrCannotOpen, database.ErrNotADatabase} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
