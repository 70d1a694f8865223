// Package tenant names the tenant and the actor of a context, and lists the tenants there are.
//
// The two are set by separate calls: With keeps the actor that is there, WithActor keeps the tenant. Every read and
// write of a delivery takes its tenant from the context through Require, and fails without one.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxIDBytes is the longest tenant id, in bytes.
const MaxIDBytes = 200

var (
	// ErrMissingTenant is returned by a call that needs a tenant in its context and finds none.
	ErrMissingTenant = errors.New("loam: no tenant in the context: set one with tenant.With(ctx, id)")
	// ErrInvalidID is returned for a tenant id that is too long, or not text.
	ErrInvalidID = errors.New("loam: invalid tenant id")
	// ErrDirectory marks that a Directory could not say whether a tenant exists.
	ErrDirectory = errors.New("loam: the directory of tenants did not answer")
)

type (
	tenantKey struct{}
	actorKey  struct{}
)

// With returns a context whose tenant is id; the actor stays. An empty id takes the tenant away.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, tenantKey{}, id)
}

// WithActor returns a context whose actor is id; the tenant stays. An empty id takes the actor away.
func WithActor(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, actorKey{}, id)
}

// From returns the tenant of ctx, or "" when it has none.
func From(ctx context.Context) string {
	id, _ := ctx.Value(tenantKey{}).(string)
	return id
}

// Actor returns the actor of ctx, or "" when it has none.
func Actor(ctx context.Context) string {
	id, _ := ctx.Value(actorKey{}).(string)
	return id
}

// Require returns the tenant of ctx. Without one it is ErrMissingTenant, and ErrInvalidID for what no tenant can be.
func Require(ctx context.Context) (string, error) {
	id := From(ctx)
	if id == "" {
		return "", ErrMissingTenant
	}
	return id, CheckID(id)
}

// CheckID reports whether id can name a tenant: 1 to MaxIDBytes bytes of valid UTF-8 without NUL. The error wraps
// ErrInvalidID.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidID)
	case len(id) > MaxIDBytes:
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrInvalidID, len(id), MaxIDBytes)
	case !utf8.ValidString(id), strings.ContainsRune(id, 0):
		return fmt.Errorf("%w: %q is not valid UTF-8, or contains NUL", ErrInvalidID, id)
	}
	return nil
}
