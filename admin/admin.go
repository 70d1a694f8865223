package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/health"
)

// Engine is what the pages are about; *loam.Engine implements it. Each call is in the tenant of its context.
type Engine interface {
	DeliveryPage(ctx context.Context, q durable.PageQuery) (durable.Page, error)
	DeliveryCounts(ctx context.Context) (durable.Counts, error)
	InspectDelivery(ctx context.Context, id string) (durable.Inspection, error)
	RedeliverSeen(ctx context.Context, id string, seen database.Time) error
	Health(ctx context.Context) health.Report
}

// Config says what the pages show and to whom. Engine and Authorize are required.
type Config struct {
	// Engine is the engine whose deliveries are shown. It need not be started, nor know any subscriber.
	Engine Engine
	// Authorize says who makes a request. It is called for every request but those for the style sheet, from several
	// goroutines at once. ErrUnauthenticated is answered with 401, ErrForbidden with 403, a *Redirect with 303; any other
	// error is logged and answered with 500.
	Authorize func(*http.Request) (Operator, error)
	// Prefix is the path at which the handler is mounted, as the browser sees it: "/admin/loam". Every link begins with it.
	// The handler works with and without http.StripPrefix. Defaults to the root.
	Prefix string
	// Logger gets what went wrong, and who redelivered what. Defaults to slog.Default().
	Logger *slog.Logger
	// Now is the clock of relative times. It must be the engine's. Defaults to time.Now.
	Now func() time.Time
}

// New makes the handler of the pages. It does no I/O. The error names every field of cfg that is wrong.
func New(cfg Config) (http.Handler, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Prefix = strings.TrimSuffix(cfg.Prefix, "/")
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("admin: Config: %w", err)
	}
	h := &handler{cfg: cfg, mux: http.NewServeMux(), pageSize: durable.PageSize}
	_, _ = rand.Read(h.key[:]) // never fails
	for _, r := range routes {
		h.mux.Handle(r.method+" "+r.pattern, r.serve(h))
	}
	return h, nil
}

func (c *Config) validate() error {
	var errs []error
	if c.Engine == nil {
		errs = append(errs, errors.New("Engine: is nil"))
	}
	if c.Authorize == nil {
		errs = append(errs, errors.New("Authorize: is nil; without it everybody could redeliver everything"))
	}
	if c.Prefix != "" && (!strings.HasPrefix(c.Prefix, "/") || path.Clean(c.Prefix) != c.Prefix) {
		errs = append(errs, fmt.Errorf("Prefix: %q must be a clean path that begins with a slash", c.Prefix))
	}
	return errors.Join(errs...)
}
