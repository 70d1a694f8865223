package database_test

import (
	"cmp"
	"regexp"
	"testing"
	"testing/quick"
	"time"

	"github.com/openloam/loam/database"
)

// stored is the text of a time as a column gets it.
func stored(t *testing.T, at time.Time) string {
	t.Helper()
	v, err := database.At(at).Value()
	if err != nil {
		t.Fatal(err)
	}
	text, ok := v.(string)
	if !ok {
		t.Fatalf("%v is stored as %T %v", at, v, v)
	}
	return text
}

// anyTime makes a time of the years 1 to 9999 out of random numbers, mostly near a second's or a day's edge.
func anyTime(seconds int64, nanos uint32, offset int16) time.Time {
	const first, last = -62135596800 + 86400, 253402300799 - 86400
	s := (seconds%(last-first)+(last-first))%(last-first) + first
	switch nanos % 4 {
	case 0:
		s -= s % 86400 // midnight
	case 1:
		s -= s%86400 + 1 // a second before
	}
	n := int64(nanos) % 1_000_000_000
	if nanos%3 == 0 {
		n = 999_999_999 - n%2000
	}
	return time.Unix(s, n).In(time.FixedZone("", int(offset)%(14*3600)))
}

var form = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}$`)

// The form is of fixed width, in UTC, to the microsecond, whatever the zone; what is below is cut.
// scenario: B157, B162
func TestTimeAsText(t *testing.T) {
	t.Parallel()
	tehran := time.FixedZone("Tehran", 3*3600+1800)
	kathmandu := time.FixedZone("Kathmandu", 5*3600+45*60)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), "2026-01-02 03:04:05.000006"},
		{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), "2026-01-02 03:04:05.000000"},
		{time.Date(2026, 1, 2, 3, 4, 5, 500_000_000, time.UTC), "2026-01-02 03:04:05.500000"},
		{time.Date(2026, 1, 2, 3, 30, 0, 0, tehran), "2026-01-02 00:00:00.000000"},
		{time.Date(2026, 1, 2, 3, 4, 5, 0, tehran), "2026-01-01 23:34:05.000000"},
		{time.Date(2026, 1, 1, 2, 0, 0, 0, kathmandu), "2025-12-31 20:15:00.000000"},
		{time.Date(2026, 12, 31, 23, 59, 59, 999_999_900, time.UTC), "2026-12-31 23:59:59.999999"},
		{time.Date(2026, 12, 31, 23, 59, 59, 999_999_999, time.UTC), "2026-12-31 23:59:59.999999"},
		{time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC), "1969-12-31 23:59:59.999999"},
		{time.Date(0, 6, 1, 12, 0, 0, 999_999_999, time.UTC), "0000-06-01 12:00:00.999999"},
		{time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), "9999-12-31 23:59:59.999999"},
		{time.Date(800, 1, 1, 0, 0, 0, 1, time.UTC), "0800-01-01 00:00:00.000000"},
	} {
		if got := stored(t, c.at); got != c.want {
			t.Errorf("%v is stored as %q, want %q", c.at, got, c.want)
		}
		direct, err := database.Time{Time: c.at}.Value() // not made by At
		if err != nil || direct != c.want {
			t.Errorf("%v, not cut before, is stored as %q, %v, want %q", c.at, direct, err, c.want)
		}
	}
	if now := stored(t, time.Now()); !form.MatchString(now) { // with a monotonic reading
		t.Errorf("now is stored as %q", now)
	}
}

// Text compares as time does, comes back as it was, and is never later than the time it was made of.
// scenario: B157, B159, B162
func TestTimesSortAsText(t *testing.T) {
	t.Parallel()
	property := func(s1, s2 int64, n1, n2 uint32, z1, z2 int16, near bool) bool {
		a, b := anyTime(s1, n1, z1), anyTime(s2, n2, z2)
		if near {
			b = a.Add(time.Duration(n2%5000) - 2500)
		}
		ta, tb := stored(t, a), stored(t, b)
		cutA, cutB := a.Truncate(time.Microsecond), b.Truncate(time.Microsecond)
		var back database.Time
		if err := back.Scan(ta); err != nil {
			t.Log(err)
			return false
		}
		lost := a.Sub(back.Time)
		return form.MatchString(ta) && cmp.Compare(ta, tb) == cutA.Compare(cutB) &&
			back.Equal(cutA) && back.Location() == time.UTC && lost >= 0 && lost < time.Microsecond &&
			ta[:10] == a.UTC().Format(time.DateOnly)
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

// The zero time is NULL in both directions, in any zone; year 1 never appears.
// scenario: B158
func TestZeroTimeIsNull(t *testing.T) {
	t.Parallel()
	for _, zero := range []database.Time{{}, database.At(time.Time{}), database.At(time.Time{}.In(time.FixedZone("", 3600))), {Time: time.Time{}.In(time.FixedZone("", -3600))}} {
		if v, err := zero.Value(); v != nil || err != nil {
			t.Errorf("the zero time is stored as %v, %v", v, err)
		}
	}
	at := database.At(time.Now())
	if err := at.Scan(nil); err != nil || !at.IsZero() {
		t.Errorf("NULL is read as %v, %v", at, err)
	}
}

// A year that the form has no room for is an error, not another time.
func TestYearsOutOfRange(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(-1, 12, 31, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 30, 0, 0, time.FixedZone("", -3600)), // in UTC it is another year
		time.Date(0, 1, 1, 0, 30, 0, 0, time.FixedZone("", 3600)),
		time.Unix(1<<60, 0),
		time.Unix(-1<<60, 0),
	} {
		if v, err := database.At(at).Value(); err == nil {
			t.Errorf("%v is stored as %v", at, v)
		}
	}
}

// Beside the one form, what a hand writes at the database's shell is read; anything else is an error, not a guess.
// scenario: B157
func TestScan(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, src := range []any{"2026-01-02 03:04:05.000006", []byte("2026-01-02 03:04:05.000006"), want.Add(999), want.In(time.FixedZone("", 7200))} {
		var got database.Time
		if err := got.Scan(src); err != nil || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%T %v is read as %v, %v", src, src, got, err)
		}
	}
	for src, want := range map[string]time.Time{
		"2026-01-02 03:04:05": want.Truncate(time.Second), "2026-01-02 03:04:05.0000069": want,
		"2026-01-02T03:04:05.000006Z": want, "2026-01-02T05:04:05+02:00": want.Truncate(time.Second),
	} {
		var got database.Time
		if err := got.Scan(src); err != nil || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%s is read as %v, %v", src, got, err)
		}
	}
	for _, src := range []any{
		"", "now", "2026-01-02", "2026-01-02 03:04:05.000006+03:30", "2026-01-02 03:04:05.000006 +0330 +0330 m=+0.1", "2026-02-30 00:00:00.000000", int64(5), 1.5, true,
	} {
		var got database.Time
		if err := got.Scan(src); err == nil {
			t.Errorf("%T %v is read as %v", src, src, got)
		}
	}
}

// The ledger's times are milliseconds, never rounded up.
// scenario: B162
func TestMillis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at   time.Time
		want int64
	}{
		{time.Unix(0, 0), 0},
		{time.Unix(1, 999_999_999), 1999},
		{time.Unix(1_767_225_599, 999_999_999).In(time.FixedZone("", 12345)), 1_767_225_599_999},
		{time.Unix(1, 123_456_789), 1123},
	} {
		if got := database.Millis(c.at); got != c.want {
			t.Errorf("%v is %d ms, want %d", c.at, got, c.want)
		}
	}
}
