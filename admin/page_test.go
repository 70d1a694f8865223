package admin_test

import (
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// page is a parsed page.
type page struct{ *html.Node }

// form is a form of a page.
type form struct {
	action string
	values url.Values
	button string
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasClass(n *html.Node, class string) bool {
	return slices.Contains(strings.Fields(attr(n, "class")), class)
}

// all returns the elements for which is says so.
func (p page) all(is func(n *html.Node) bool) []*html.Node {
	var out []*html.Node
	for n := range p.Descendants() {
		if n.Type == html.ElementNode && is(n) {
			out = append(out, n)
		}
	}
	return out
}

func (p page) tag(tag string) []*html.Node {
	return p.all(func(n *html.Node) bool { return n.Data == tag })
}

func (p page) class(class string) []*html.Node {
	return p.all(func(n *html.Node) bool { return hasClass(n, class) })
}

// text is what is read: blocks are apart, no-break spaces are spaces, and runs of space are one.
func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		switch {
		case d.Type == html.TextNode:
			b.WriteString(strings.ReplaceAll(d.Data, "\u00a0", " "))
		case slices.Contains([]string{"dt", "dd", "div", "p", "h1", "h2", "li", "td", "th", "section", "code", "pre"}, d.Data):
			b.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// raw is the text as it is.
func raw(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// texts are the texts of nodes.
func texts(nodes []*html.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, text(n))
	}
	return out
}

// says reports whether the page has the sentence.
func (p page) says(sentence string) bool { return strings.Contains(text(p.Node), sentence) }

// flash is the result line, and empty if there is none.
func (p page) flash() string {
	return strings.Join(texts(p.class("flash")), "\n")
}

// ids are the deliveries of a list, from their links.
func (p page) ids() []string {
	var out []string
	for _, a := range p.class("name") {
		u, _ := url.Parse(attr(a, "href"))
		out = append(out, u.Path[strings.LastIndex(u.Path, "/")+1:])
	}
	return out
}

// forms are those that post.
func (p page) forms() []form {
	var out []form
	for _, n := range p.tag("form") {
		f := form{action: attr(n, "action"), values: url.Values{}}
		for _, in := range (page{n}).tag("input") {
			f.values.Set(attr(in, "name"), attr(in, "value"))
		}
		f.button = text(page{n}.tag("button")[0])
		out = append(out, f)
	}
	return out
}

// link is the address of the link with a text, and empty if there is none.
func (p page) link(words string) string {
	for _, a := range p.tag("a") {
		if text(a) == words {
			return attr(a, "href")
		}
	}
	return ""
}

// next is the panel that says what happens next: label and sentence.
func (p page) next() map[string]string {
	out := map[string]string{}
	for _, section := range p.class("next") {
		labels := texts(page{section}.tag("dt"))
		for i, dd := range (page{section}).tag("dd") {
			out[labels[i]] = text(dd)
		}
	}
	return out
}
