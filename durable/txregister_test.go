package durable_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
)

// contract: D-01, D-02, D-17. A transactional subscriber is registered like any, and what is wrong panics with the key and the place. Its
// handler does nothing without a transaction.
func TestRegisterTx(t *testing.T) {
	t.Parallel()
	fine := func(context.Context, *sql.Tx, events.Event) error { return nil }
	r := durable.NewRegistry()
	var place string
	for what, f := range map[string]func(){
		"nil": func() { place = here(); r.RegisterTx("books", paid, nil) },
		"the default registry, nil": func() {
			place = here()
			durable.RegisterTx("books", paid, nil)
		},
		"a bad pattern": func() { place = here(); r.RegisterTx("books", "paid", fine) },
	} {
		text := panicText(t, f)
		wantInText(t, text, `"books"`, place[strings.LastIndex(place, "/")+1:strings.LastIndex(place, ":")])
		if strings.Contains(what, "nil") {
			wantInText(t, text, "the handler is nil")
		}
	}
	r.RegisterTx("books", paid, fine)
	wantInText(t, panicText(t, func() { r.RegisterFunc("books", paid, returnNil) }), `"books"`, "registered twice")
	durable.RegisterTx("txregister.default", "never.published.here", fine)
	for _, reg := range []*durable.Registry{r, durable.DefaultRegistry()} {
		for _, s := range reg.Registered() {
			if !s.Transactional() {
				continue
			}
			if err := s.Handler.Handle(t.Context(), events.Event{}); err == nil {
				t.Errorf("%s runs without a transaction", s.Key)
			}
		}
	}
	if s, known := durable.DefaultRegistry().HandlerFor("txregister.default"); !known || !s.Transactional() {
		t.Error("it is not in the default registry")
	}
}
