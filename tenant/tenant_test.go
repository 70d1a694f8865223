package tenant_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openloam/loam/tenant"
)

// contract: T-01. Tenant and actor are set by separate calls, each of which keeps the other.
func TestTenantAndActorAreApart(t *testing.T) {
	t.Parallel()
	with, actor := tenant.With, tenant.WithActor
	ctx := t.Context()
	for _, c := range []struct {
		name          string
		ctx           context.Context
		tenant, actor string
	}{
		{"nothing", ctx, "", ""},
		{"the tenant only", with(ctx, "acme"), "acme", ""},
		{"the actor only", actor(ctx, "u1"), "", "u1"},
		{"both", actor(with(ctx, "acme"), "u1"), "acme", "u1"},
		{"both, the other way round", with(actor(ctx, "u1"), "acme"), "acme", "u1"},
		{"another tenant keeps the actor", with(actor(with(ctx, "acme"), "u1"), "globex"), "globex", "u1"},
		{"another actor keeps the tenant", actor(actor(with(ctx, "acme"), "u1"), "u2"), "acme", "u2"},
		{"no tenant any more", with(actor(with(ctx, "acme"), "u1"), ""), "", "u1"},
		{"no actor any more", actor(actor(with(ctx, "acme"), "u1"), ""), "acme", ""},
	} {
		if tenant.From(c.ctx) != c.tenant || tenant.Actor(c.ctx) != c.actor {
			t.Errorf("%s: tenant %q, actor %q", c.name, tenant.From(c.ctx), tenant.Actor(c.ctx))
		}
	}
}

// contract: T-01. The context that was given is not changed.
func TestTheOuterContextStays(t *testing.T) {
	t.Parallel()
	outer := tenant.WithActor(tenant.With(t.Context(), "acme"), "u1")
	_ = tenant.WithActor(tenant.With(outer, "globex"), "u2")
	if tenant.From(outer) != "acme" || tenant.Actor(outer) != "u1" {
		t.Errorf("tenant %q, actor %q", tenant.From(outer), tenant.Actor(outer))
	}
}

// contract: T-01. A key of somebody else's that looks the same is no tenant.
func TestOnlyTheseCallsSet(t *testing.T) {
	t.Parallel()
	type tenantKey struct{}
	ctx := context.WithValue(t.Context(), tenantKey{}, "forged")
	if tenant.From(ctx) != "" || tenant.Actor(ctx) != "" {
		t.Errorf("tenant %q, actor %q", tenant.From(ctx), tenant.Actor(ctx))
	}
}

// contract: T-03. What needs a tenant and has none says so; an empty one is none.
func TestRequire(t *testing.T) {
	t.Parallel()
	for _, ctx := range []context.Context{t.Context(), tenant.With(t.Context(), ""), tenant.WithActor(t.Context(), "u1")} {
		if id, err := tenant.Require(ctx); !errors.Is(err, tenant.ErrMissingTenant) || id != "" {
			t.Errorf("got %q, %v, want ErrMissingTenant", id, err)
		}
	}
	if id, err := tenant.Require(tenant.With(t.Context(), "acme")); err != nil || id != "acme" {
		t.Errorf("got %q, %v", id, err)
	}
}

// contract: E-01. A tenant id is text of 1 to 200 bytes that both databases can hold.
func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "acme", "Ünïcode 日本", "0190b8a2-6f3e-7c41-9a55-d0f1c2b3a495", " ", strings.Repeat("x", 200), strings.Repeat("é", 100)} {
		if err := tenant.CheckID(id); err != nil {
			t.Errorf("%q is refused: %v", id, err)
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 201), strings.Repeat("é", 101), "a\x00", "\x00", "\xff", "a\xc3"} {
		if err := tenant.CheckID(id); !errors.Is(err, tenant.ErrInvalidID) {
			t.Errorf("%q: got %v, want ErrInvalidID", id, err)
		}
	}
	if err := tenant.CheckID(strings.Repeat("x", 5000)); len(err.Error()) > 200 || !strings.Contains(err.Error(), "5000") || !strings.Contains(err.Error(), "200") {
		t.Errorf("the message must name the size and the limit, and be short: %v", err)
	}
}
