package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/tenant"
)

const (
	// policy is all that a browser may do with a page: its own style sheet, and forms to where it came from.
	policy = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	// answerWithin is the time limit of one request's work in the database.
	answerWithin = 10 * time.Second
	// formBytes is the largest form that is read.
	formBytes = 16 << 10
)

// handler serves the pages.
type handler struct {
	cfg      Config
	mux      *http.ServeMux // matches only: paths reach it without the prefix
	pageSize int
	key      [32]byte // signs what a redirect says about a press
}

// route is one page, or one thing to do.
type route struct {
	method, pattern string
	do              func(h *handler, w http.ResponseWriter, r *http.Request, op Operator) error
}

var routes = []route{
	{http.MethodGet, "/{$}", (*handler).home},
	{http.MethodGet, "/dead", (*handler).dead},
	{http.MethodGet, "/pending", (*handler).pending},
	{http.MethodGet, "/deliveries/{id}", (*handler).delivery},
	{http.MethodPost, "/deliveries/{id}/redeliver", (*handler).redeliver},
}

// operatorKey is where a request's context has its Operator, inside this package.
type operatorKey struct{}

func (rt route) serve(h *handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, _ := r.Context().Value(operatorKey{}).(Operator)
		if err := rt.do(h, w, r, op); err != nil {
			h.fail(w, r, op, err)
		}
	})
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	ctx, asked := r.Context(), r // as the application knows it
	r = h.unprefixed(r)
	if strings.HasPrefix(r.URL.Path, sheetDir) {
		h.sheet(w, r)
		return
	}
	var protection http.CrossOriginProtection
	if err := protection.Check(r); err != nil {
		h.cfg.Logger.WarnContext(ctx, "request from another site refused", slog.Any("error", err))
		h.say(w, r, Operator{}, notice{
			http.StatusForbidden, "Refused",
			"This form came from another site, so nothing was changed. Open the page and press the button there.",
		})
		return
	}
	op, ok := h.authorized(w, asked)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(tenant.WithActor(tenant.With(ctx, op.Tenant), op.ID), answerWithin)
	defer cancel()
	r = r.WithContext(context.WithValue(ctx, operatorKey{}, op))
	switch allowed := h.allowed(r); {
	case allowed == "":
		h.say(w, r, op, noSuchPage)
	case r.Method == allowed, r.Method == http.MethodHead && allowed == http.MethodGet:
		h.mux.ServeHTTP(w, r)
	default:
		head.Set("Allow", allowed)
		h.say(w, r, op, notice{http.StatusMethodNotAllowed, "Not this way", "This address answers to " + allowed + " only. Nothing was changed."})
	}
}

// unprefixed returns r with the path below the prefix, whether or not somebody has stripped it already.
func (h *handler) unprefixed(r *http.Request) *http.Request {
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err == nil && asked.Path == h.cfg.Prefix+r.URL.Path && h.cfg.Prefix != "" {
		return r
	}
	rest, ok := strings.CutPrefix(r.URL.Path, h.cfg.Prefix)
	if h.cfg.Prefix == "" || !ok || rest != "" && rest[0] != '/' {
		return r
	}
	stripped := r.Clone(r.Context())
	stripped.URL.Path, stripped.URL.RawPath = "/"+strings.TrimPrefix(rest, "/"), ""
	if raw, ok := strings.CutPrefix(r.URL.EscapedPath(), (&url.URL{Path: h.cfg.Prefix}).EscapedPath()); ok {
		stripped.URL.RawPath = "/" + strings.TrimPrefix(raw, "/")
	}
	return stripped
}

// allowed returns the method that the path answers to, and "" for one that is not ours. The mux is not asked about paths
// that it would redirect.
func (h *handler) allowed(r *http.Request) string {
	if p := r.URL.Path; p == "" || path.Clean(p) != p {
		return ""
	}
	for _, m := range []string{http.MethodGet, http.MethodPost} {
		ask := *r
		ask.Method = m
		if _, pattern := h.mux.Handler(&ask); pattern != "" {
			return m
		}
	}
	return ""
}

// authorized asks the application who it is. When it reports false, the answer is written.
func (h *handler) authorized(w http.ResponseWriter, r *http.Request) (Operator, bool) {
	op, err := h.cfg.Authorize(r)
	var redirect *Redirect
	switch {
	case errors.As(err, &redirect):
		http.Redirect(w, r, redirect.URL, http.StatusSeeOther)
		return Operator{}, false
	case errors.Is(err, ErrUnauthenticated):
		h.say(w, r, Operator{}, notice{http.StatusUnauthorized, "Not signed in", "Sign in to the application, then open this page again."})
		return Operator{}, false
	case errors.Is(err, ErrForbidden), err == nil && !op.Can(View):
		h.say(w, r, Operator{}, notice{http.StatusForbidden, "Not allowed", "You may not see deliveries. The application decides who may."})
		return Operator{}, false
	case err == nil:
		if err = tenant.CheckID(op.Tenant); err == nil {
			return op, true
		}
	}
	h.fail(w, r, Operator{}, err)
	return Operator{}, false
}

// notice is a page that says one thing.
type notice struct {
	status      int
	title, text string
}

var noSuchPage = notice{http.StatusNotFound, "No such page", "The address is wrong, or from another version of these pages."}

// Error implements error, so that a route can return one.
func (n notice) Error() string { return n.title }

// fail answers with what went wrong. The detail goes to the log, under a reference.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, op Operator, err error) {
	var n notice
	switch {
	case errors.As(err, &n):
	case errors.Is(err, durable.ErrNotFound):
		n = notice{http.StatusNotFound, "No such delivery", "No such delivery in " + plain(op.Tenant) + ". It may have been removed after its time of keeping."}
	default:
		ref := reference()
		h.cfg.Logger.ErrorContext(r.Context(), "operator's page failed", slog.String("path", r.URL.Path), slog.String("reference", ref), slog.Any("error", err))
		n = notice{http.StatusInternalServerError, "This page could not be made", "The log says why, under the reference " + ref + "."}
		if unanswered(err) {
			n = notice{http.StatusServiceUnavailable, "The database did not answer", "It did not answer within 10 s. Try again; if it goes on, look at the health page. Reference " + ref + "."}
		}
	}
	h.say(w, r, op, n)
}

// unanswered reports whether the database was not to be had: what was asked for was not done.
func unanswered(err error) bool {
	for _, e := range []error{context.DeadlineExceeded, context.Canceled, database.ErrWait, database.ErrBusy} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
