package main

import (
	"html/template"
	"net/http"

	"github.com/openloam/loam/admin"
)

// operators are who one can be here. A real application looks at its own session.
var operators = map[string]admin.Operator{
	"full":   {ID: "mira@acme.example", Tenant: "acme", Rights: []admin.Right{admin.View, admin.ViewPayloads, admin.Redeliver}},
	"viewer": {ID: "vic@acme.example", Tenant: "acme", Rights: []admin.Right{admin.View}},
	"globex": {ID: "gus@globex.example", Tenant: "globex", Rights: []admin.Right{admin.View, admin.ViewPayloads, admin.Redeliver}},
	"out":    {},
}

// who reads the cookie; without one, one may do everything.
func who(r *http.Request) string {
	if c, err := r.Cookie("who"); err == nil {
		return c.Value
	}
	return "full"
}

func authorize(r *http.Request) (admin.Operator, error) {
	op, known := operators[who(r)]
	if !known || op.ID == "" {
		return admin.Operator{}, admin.ErrUnauthenticated
	}
	return op, nil
}

// become changes who one is.
func become(w http.ResponseWriter, r *http.Request) {
	if _, known := operators[r.PathValue("who")]; !known {
		http.NotFound(w, r)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: "who", Value: r.PathValue("who"), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode}) //nolint:gosec // plain http on this machine
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// onlyFor lets one of the operators through.
func onlyFor(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who(r) != name {
			http.Error(w, "not allowed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var homePage = template.Must(template.New("home").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Loam, an example</title>
<h1>Loam, an example</h1>
<ul><li><a href="/admin/loam/">The operator's pages</a></li><li><a href="/riverui/">River UI</a>, for the jobs below them</li>
<li>Health: <a href="/health/live">live</a>, <a href="/health/ready">ready</a>, <a href="/health/">all</a></li></ul>
<p>You are {{.}}. Be:</p>
<form method="post"><button formaction="/as/full">mira, who may do everything</button> <button formaction="/as/viewer">vic, who may look</button>
<button formaction="/as/globex">gus, of another tenant</button> <button formaction="/as/out">nobody</button></form>
</html>
`))

func home(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = homePage.Execute(w, who(r)) // whoever has gone away needs no page
}
