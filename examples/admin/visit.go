package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
)

var (
	title = regexp.MustCompile(`<title>(.*?)</title>`)
	link  = regexp.MustCompile(`class="plain name" href="([^"?]*)`)
)

// visit asks for each page and prints its status and title.
func visit(ctx context.Context, w io.Writer, site http.Handler) error {
	get := func(path, who string) (string, error) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.AddCookie(&http.Cookie{Name: "who", Value: who}) //nolint:gosec // in a request, attributes are not sent
		out := httptest.NewRecorder()
		site.ServeHTTP(out, r)
		page := out.Body.String()
		shown := ""
		if m := title.FindStringSubmatch(page); m != nil {
			shown = m[1]
		}
		_, err := fmt.Fprintf(w, "%-7s %-26s %d  %s\n", who, path, out.Code, shown)
		return page, err
	}
	var list string
	for _, path := range []string{"/", "/health/live", "/health/ready", "/health/", "/riverui/", "/riverui/api/queues", "/admin/loam/pending", "/admin/loam/dead"} {
		page, err := get(path, "full")
		if err != nil {
			return err
		}
		list = page
	}
	for _, c := range []struct{ path, who string }{
		{"/admin/loam/dead", "viewer"}, {"/admin/loam/dead", "globex"}, {"/admin/loam/dead", "out"}, {"/riverui/", "viewer"},
	} {
		if _, err := get(c.path, c.who); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d dead deliveries on the first page, %d buttons, %d scripts\n",
		len(link.FindAllString(list, -1)), strings.Count(list, "<button"), strings.Count(list, "<script"))
	return err
}
