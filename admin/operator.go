package admin

import (
	"errors"
	"slices"
)

// Right is something that an operator may do.
type Right string

const (
	// View is to see deliveries, their errors and their history.
	View Right = "view"
	// ViewPayloads is to see what events carry.
	ViewPayloads Right = "view payloads"
	// Redeliver is to redeliver a dead delivery.
	Redeliver Right = "redeliver"
)

// Operator is who makes a request.
type Operator struct {
	// ID names them in the log and on the page.
	ID string
	// Tenant is the one whose deliveries they see.
	Tenant string
	// Rights are what they may do. Without View they see nothing.
	Rights []Right
}

// Can reports whether the operator has the right.
func (o Operator) Can(r Right) bool { return slices.Contains(o.Rights, r) }

var (
	// ErrUnauthenticated is what Config.Authorize returns for someone who is not signed in: they get 401.
	ErrUnauthenticated = errors.New("admin: not signed in")
	// ErrForbidden is what Config.Authorize returns for someone who is signed in and may not use the pages: they get 403.
	ErrForbidden = errors.New("admin: not allowed")
)

// Redirect is what Config.Authorize returns for someone who is to go elsewhere, to sign in say: they get 303 to the URL.
type Redirect struct{ URL string }

// Error implements error.
func (r *Redirect) Error() string { return "admin: go to " + r.URL }
