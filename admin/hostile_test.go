package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/internal/rig"
)

// hostile are texts that a handler, a publisher or a foreign hand can put into a row.
var hostile = []string{
	`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `</code></td></tr></table><h1>you</h1>`, `"><svg onload=alert(1)>`,
	`{{.Tenant}}{{template "top"}}`, `javascript:alert(1)`, "&lt;b&gt;&amp;amp;", "a\u202etxt.exe", "\u200b\u2066\ufeff\U000e0041",
	"\x1b[31mred\x1b[0m\x07", "two\r\nlines\n\n\tand a tab", "nul\x00end", "\xff\xfe\xd8", "</title><script>alert(1)</script>",
	strings.Repeat("long.", 200), strings.Repeat("wide ", 200), "ﷺ\u202e 日本語 👩‍👩‍👧", "",
}

// spelledOut is how the pages show a text: hidden characters as Go would write them.
func spelledOut(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case admin.Hidden(r) && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case admin.Hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// harmless reports what a page has that none of ours has.
func harmless(t *testing.T, where string, p page) {
	t.Helper()
	ours := map[string]bool{}
	for tag := range strings.FieldsSeq(`html head meta title link body svg symbol circle path use a header span nav ul li main section dl dt dd div
		small h1 h2 p table thead tbody tr th td time b code pre details summary form input button wbr ol`) {
		ours[tag] = true
	}
	for n := range p.Descendants() {
		switch n.Type { //nolint:exhaustive // the others are not made by a parser, or are the document
		case html.ElementNode:
			if !ours[n.Data] {
				t.Errorf("%s has an element %s", where, n.Data)
			}
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" || strings.HasPrefix(strings.ToLower(strings.TrimSpace(a.Val)), "javascript:") && (a.Key == "href" || a.Key == "action") {
					t.Errorf("%s has %s=%q", where, a.Key, a.Val)
				}
			}
		case html.TextNode:
			if n.Data != spelledOut(n.Data) {
				t.Errorf("%s sends hidden characters: %q", where, n.Data)
			}
		case html.CommentNode:
			t.Errorf("%s has a comment", where)
		}
	}
	if n := len(p.tag("h1")); n != 1 {
		t.Errorf("%s has %d h1", where, n)
	}
}

// contract: A-05. Hostile text in every field of a row is text, on every page, as it is but for what is hidden.
// scenario: B177, B148
func TestHostile(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		for i, h := range append(hostile, strings.Repeat("<b>100 kB", 11_000)) {
			payload := h
			if kind == database.PostgreSQL { // whose text is always text, and whose payload is always JSON
				if !utf8.ValidString(h) || strings.Contains(h, "\x00") {
					continue
				}
				payload = string(must(json.Marshal(h)))
			}
			rig.Exec(t, w.DB, `DELETE FROM event_deliveries`)
			long := len(h) > 600
			id := fmt.Sprintf("d%d", i)
			w.seed(seed{
				id: id, event: h, key: h, name: h, lastError: h, payload: payload, headers: h,
				errors: history(durable.Failure{At: database.At(w.Clock.Now()), Run: 1, Error: "before: " + h, Stack: h}, durable.Failure{At: database.At(w.Clock.Now()), Run: 2, Error: h, Stack: h}),
			})
			rig.Exec(t, w.DB, `UPDATE event_deliveries SET queue = $1, subscriber_key = $1, event_name = $1, event_id = $1, payload = $2, headers = $1`, h, payload)
			where := fmt.Sprintf("%.40q", h)
			list, detail := w.get("/dead", "mira"), w.get("/deliveries/"+id, "mira")
			harmless(t, where+", list", list)
			harmless(t, where+", delivery", detail)
			if got := list.ids(); len(got) != 1 || got[0] != id {
				t.Errorf("%s: the list has %v", where, got)
			}
			show, showPayload := spelledOut(h), spelledOut(payload)
			if h == "" {
				continue
			}
			if got := raw(page{detail.class("body")[0]}.tag("code")[0]); got != show {
				t.Errorf("%s: the error is shown as %.200q", where, got)
			}
			if got := raw(detail.tag("h1")[0]); got != show+" for "+show {
				t.Errorf("%s: the title is %.200q", where, got)
			}
			pres := detail.tag("pre") // the stack of the last error, of run 1, the payload, the headers
			for _, pre := range pres {
				if got := raw(pre); got != show && got != showPayload &&
					(!long || !strings.HasPrefix(show, got) && !strings.HasPrefix(showPayload, got)) && utf8.ValidString(h) {
					t.Errorf("%s: a text is shown as %.200q", where, got)
				}
			}
			listed := raw(list.class("clamp")[0])
			if long {
				if want := show[:600] + "… " + admin.Number(utf8.RuneCountInString(h)-600) + " more characters"; listed != want {
					t.Errorf("%s: the list shows %.700q", where, listed)
				}
			} else if listed != show && !strings.Contains(h, "\x00") { // SQLite's substr ends at NUL
				t.Errorf("%s: the list shows %q", where, listed)
			}
			if f := w.press(list.forms()[0], "mira"); !strings.HasPrefix(f.flash(), "Redelivered") {
				t.Errorf("%s: %.100q", where, f.flash())
			}
			harmless(t, where+", line", w.get("/dead?of="+id, "mira"))
		}
	})
}

// scenario: B148. One row whose error is no text does not take the page from the nineteen others. (PostgreSQL stores no such
// row.)
func TestInvalidErrorBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, database.SQLite)
	w.fill("d", durable.Dead, 20, false)
	rig.Exec(t, w.DB, `UPDATE event_deliveries SET last_error = CAST(x'fffed8' AS TEXT) WHERE id = 'd-000007'`)
	p := w.get("/dead", "mira")
	if len(p.ids()) != 20 || !p.says(`\xff\xfe\xd8`) {
		t.Errorf("%d rows: %s", len(p.ids()), text(p.Node))
	}
	rig.Exec(t, w.DB, `UPDATE event_deliveries SET last_error = x'fffed8', errors = '{', headers = '[', payload = x'00ff' WHERE id = 'd-000007'`)
	if p = w.get("/dead", "mira"); len(p.ids()) != 20 {
		t.Errorf("%d rows", len(p.ids()))
	}
	harmless(t, "a damaged row", w.get("/deliveries/d-000007", "mira"))
}

// The tenant and the operator are texts of the application, and treated alike.
func TestHostileOperator(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		var op admin.Operator
		w := newWorld(t, kind, func(c *admin.Config) {
			c.Authorize = func(*http.Request) (admin.Operator, error) { return op, nil }
		})
		for i, h := range hostile {
			if len(h) > 150 || !utf8.ValidString(h) || strings.Contains(h, "\x00") || h == "" {
				continue
			}
			op = admin.Operator{ID: h, Tenant: h, Rights: everything}
			w.seed(seed{id: fmt.Sprint("d", i), tenant: h, lastError: "x"})
			for _, path := range []string{"/dead", "/pending", fmt.Sprint("/deliveries/d", i)} {
				harmless(t, fmt.Sprintf("%q, %s", h, path), w.get(path, "x"))
			}
			p := w.want(404, w.do("GET", "/deliveries/none", "x", nil))
			harmless(t, fmt.Sprintf("%q, not found", h), p)
		}
	})
}

// A payload keeps every digit, whatever it nests, and is cut in view.
func TestPayload(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		for i, c := range []struct{ stored, shown, size string }{
			{`{"n":90071992547409931,"f":1.50,"e":1E+2,"s":"a<b\u0041"}`, "{\n  \"n\": 90071992547409931,\n  \"f\": 1.50,\n  \"e\": 1E+2,\n  \"s\": \"a<b\\u0041\"\n}", "57 bytes"},
			{`{"a":`, `{"a":`, "5 bytes"},
			{strings.Repeat("[", 9000) + strings.Repeat("]", 9000), strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "18,000 bytes"},
			{`"` + strings.Repeat("ä", 40_000) + `"`, `"` + strings.Repeat("ä", 32767), "80,002 bytes; the first 64 KiB are shown"},
		} {
			if kind == database.PostgreSQL && !json.Valid([]byte(c.stored)) {
				continue // it stores none
			}
			id := fmt.Sprint("d", i)
			w.seed(seed{id: id, payload: c.stored})
			p := w.get("/deliveries/"+id, "mira")
			if got := raw(p.tag("pre")[0]); got != c.shown {
				t.Errorf("%.60s is shown as %.200s", c.stored, got)
			}
			if !p.says("Payload " + c.size) {
				t.Errorf("%.60s: the size is not %s", c.stored, c.size)
			}
		}
	})
}

// scenario: B194. A row redelivered 2,000 times, with a payload of 5 MiB, is listed and opened in under a second; its
// history is capped.
func TestHugeRow(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind database.Dialect) {
		w := newWorld(t, kind)
		var all []durable.Failure
		for n := range 2000 {
			all = append(all, durable.Failure{At: database.At(w.Clock.Now()), Run: n + 1, Error: fmt.Sprintf("x: %d %s", n, strings.Repeat("y", 500)), Stack: strings.Repeat("z", 1000)})
		}
		w.seed(seed{id: "huge", runs: 2000, attempts: 5, lastError: all[1999].Error, errors: history(all...), payload: `{"x":"` + strings.Repeat("p", 5<<20) + `"}`})
		for _, path := range []string{"/dead", "/deliveries/huge"} {
			begun := time.Now()
			r := w.do("GET", path, "mira", nil)
			if took := time.Since(begun); took > time.Second*slow {
				t.Errorf("%s took %v", path, took)
			}
			if r.Body.Len() > 1<<20 {
				t.Errorf("%s has %d bytes", path, r.Body.Len())
			}
			if p := w.want(200, r); strings.HasPrefix(path, "/deliveries") && (len(p.class("runs")) != 1 || len(page{p.class("runs")[0]}.tag("li")) != 21) {
				t.Errorf("%d entries", len(page{p.class("runs")[0]}.tag("li")))
			}
		}
	})
}

// FuzzPages puts a text into every field that a page shows.
func FuzzPages(f *testing.F) {
	for _, h := range hostile {
		f.Add(h)
	}
	now := time.Date(2026, 3, 29, 0, 59, 58, 0, time.UTC)
	f.Fuzz(func(t *testing.T, h string) {
		for name, out := range admin.RenderAll(t, now, h) {
			root, err := html.Parse(strings.NewReader(out))
			if err != nil {
				t.Fatal(err)
			}
			harmless(t, name, page{root})
		}
	})
}

// FuzzPlace reads places from addresses: what is accepted is what is written.
func FuzzPlace(f *testing.F) {
	f.Add("1774745998123456.01a229dd-caf8")
	f.Add("-1.x")
	f.Add("0.")
	f.Fuzz(func(t *testing.T, s string) {
		if again, ok := admin.PlaceAgain(s); ok && again != s {
			t.Errorf("%q is read as %q", s, again)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
