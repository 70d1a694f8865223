package admin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/openloam/loam/durable"
)

// nb keeps a number and its unit on one line.
const nb = "\u00a0"

// number writes n with thousands separators.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count writes what was counted up to durable.CountLimit + 1.
func count(n int) string {
	if n > durable.CountLimit {
		return number(durable.CountLimit) + "+"
	}
	return number(n)
}

// about writes a length of time as it is of use to a reader: 24 s, 4 min, 1 h 28 min, 7 h, 3 d.
func about(d time.Duration) string {
	d = d.Round(time.Second)
	s, m, h := int(d/time.Second), int(d/time.Minute), int(d/time.Hour)
	switch {
	case s <= 0:
		return "0" + nb + "s"
	case m == 0:
		return strconv.Itoa(s) + nb + "s"
	case h == 0:
		return strconv.Itoa(m) + nb + "min"
	case h < 6 && m%60 != 0:
		return strconv.Itoa(h) + nb + "h " + strconv.Itoa(m%60) + nb + "min"
	case h < 48:
		return strconv.Itoa(h) + nb + "h"
	}
	return number(h/24) + nb + "d"
}

// exact writes a length of time that somebody set: 1 min, 1 min 30 s, 2 h.
func exact(d time.Duration) string {
	var parts []string
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}} {
		if n := d / u.unit; n > 0 {
			parts = append(parts, number(int(n))+nb+u.name)
			d %= u.unit
		}
	}
	if d > 0 || len(parts) == 0 {
		parts = append(parts, strconv.FormatFloat(d.Round(time.Millisecond).Seconds(), 'f', -1, 64)+nb+"s")
	}
	return strings.Join(parts, " ")
}

// took writes how long a run took.
func took(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case ms < 100:
		return strconv.FormatInt(ms, 10) + nb + "ms"
	case d < 10*time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + nb + "s"
	default:
		return about(d)
	}
}

// moment is a point in time, as pages show it.
type moment struct {
	// ISO is for the attribute datetime, Full for title.
	ISO, Full string
	// Rel is relative to now; Clock has the time and, when it is not today's, the date.
	Rel, Clock string
}

func at(now, t time.Time) moment {
	now, t = now.UTC(), t.UTC()
	layout := "15:04:05 UTC"
	switch y, m, d := now.Date(); {
	case t.Year() != y:
		layout = "2 Jan 2006 15:04 UTC"
	case t.Month() != m || t.Day() != d:
		layout = "2 Jan 15:04 UTC"
	}
	return moment{
		ISO: t.Format("2006-01-02T15:04:05Z"), Full: t.Format("2006-01-02 15:04:05 UTC"),
		Clock: strings.ReplaceAll(t.Format(layout), " ", nb),
	}
}

// past is a moment that was; one that is not over yet, by clocks that differ, is 0 s ago.
func past(now, t time.Time) moment {
	m := at(now, t)
	m.Rel = about(now.Sub(t)) + " ago"
	return m
}

// future is a moment to come.
func future(now, t time.Time) moment {
	m := at(now, t)
	m.Rel = "in " + about(t.Sub(now))
	return m
}

// and joins words as a sentence does.
func and(words []string) string {
	switch n := len(words); n {
	case 0:
		return ""
	case 1:
		return words[0]
	default:
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
}

// plural writes n and the word that fits it.
func plural(n int, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return number(n) + " " + many
}
