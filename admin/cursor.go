package admin

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
)

// Names of lists, as they stand in addresses.
const (
	listDead    = "dead"
	listPending = "pending"
)

// spot is where an operator is: on a page of a list, or on a delivery that they opened from one.
type spot struct {
	list          string
	before, after durable.Place
	// delivery is the id of the delivery that is open, if one is.
	delivery string
}

// formatTime writes a time for an address or a form, to the microsecond that the database keeps.
func formatTime(t database.Time) string { return strconv.FormatInt(t.UnixMicro(), 10) }

func parseTime(s string) (database.Time, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	t := database.At(time.UnixMicro(n))
	return t, err == nil && t.Year() >= 0 && t.Year() <= 9999 && formatTime(t) == s
}

func formatPlace(p durable.Place) string { return formatTime(p.At) + "." + p.ID }

func parsePlace(s string) (durable.Place, bool) {
	micros, id, ok := strings.Cut(s, ".")
	if !ok || id == "" || len(id) > 200 {
		return durable.Place{}, false
	}
	t, ok := parseTime(micros)
	return durable.Place{At: t, ID: id}, ok
}

var damagedLink = notice{http.StatusBadRequest, "This link is damaged", "Open the list from its beginning."}

// spotOf reads where the operator is from the query, or the form, that put wrote.
func spotOf(v url.Values) (spot, error) {
	s := spot{list: listDead}
	switch v.Get("list") {
	case "", listDead:
	case listPending:
		s.list = listPending
	default:
		return spot{}, damagedLink
	}
	for _, c := range []struct {
		name string
		to   *durable.Place
	}{{"before", &s.before}, {"after", &s.after}} {
		text := v.Get(c.name)
		if text == "" {
			continue
		}
		var ok bool
		if *c.to, ok = parsePlace(text); !ok {
			return spot{}, damagedLink
		}
	}
	return s, nil
}

// values are what an address of s has beside its path.
func (s spot) values() url.Values {
	v := url.Values{}
	if s.delivery != "" && s.list != "" {
		v.Set("list", s.list)
	}
	if s.before != (durable.Place{}) {
		v.Set("before", formatPlace(s.before))
	}
	if s.after != (durable.Place{}) {
		v.Set("after", formatPlace(s.after))
	}
	return v
}

// link is the address of s, with more in its query if that is wanted.
func (h *handler) link(s spot, more url.Values) string {
	path := []string{s.list}
	if s.delivery != "" {
		path = []string{"deliveries", s.delivery}
	}
	v := s.values()
	for name, values := range more {
		v[name] = values
	}
	return h.address(v, path...)
}

// address makes an address below the prefix. A segment may have any character.
func (h *handler) address(query url.Values, segments ...string) string {
	escaped := make([]string, len(segments))
	for i, s := range segments {
		escaped[i] = url.PathEscape(s)
	}
	return (&url.URL{
		Path:     h.cfg.Prefix + "/" + strings.Join(segments, "/"),
		RawPath:  (&url.URL{Path: h.cfg.Prefix}).EscapedPath() + "/" + strings.Join(escaped, "/"),
		RawQuery: query.Encode(),
	}).String()
}
