// Package admin has the pages on which operators see what is dead and why, and redeliver it, and the handler that answers
// load balancers about an engine's health.
//
//	pages, err := admin.New(admin.Config{Engine: engine, Authorize: authorize, Prefix: "/admin/loam"})
//	…
//	mux.Handle("/admin/loam/", pages)
//	mux.Handle("/health/", admin.Health(engine))
//
// # Who may see what
//
// The application decides, in Config.Authorize, for each request: who it is, of which tenant, with which rights. An
// operator sees one tenant; another tenant's delivery is not found. Errors are shown as the handlers returned them: the
// right View is the right to read them. Payloads have a right of their own.
//
// # Safety
//
// The pages are rendered on the server, work without JavaScript, and load nothing from elsewhere; the policy that they
// send allows no more than their own style sheet and forms. A GET changes nothing. A POST from another site is refused by
// http.CrossOriginProtection, which goes by the headers Sec-Fetch-Site and Origin; a proxy in front must pass them and
// Host on. A request with neither is no browser's, and rests on Authorize.
//
// One delivery is redelivered only as the operator saw it: the form carries its state and its last change.
package admin
