package events_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/openloam/loam/events"
)

// long returns a name of n bytes.
func long(n int) string { return "a.b." + strings.Repeat("c", n-len("a.b.")) }

// contract: E-01. A name is three or more segments of [a-z0-9_]+; the refusal quotes it and states the form.
// scenario: B025
func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"billing.invoice.paid", "a.b.c", "a.b.c.d.e.f", "0.1.2", "_._._", "a_1.b_2.c_3", long(200)} {
		if err := events.CheckName(name); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "user", "user.made", "..", "...", "a..b", ".a.b.c", "a.b.c.", "a.b.", "Billing.invoice.paid", "billing.Invoice.paid",
		"billing.invoice.paid ", " billing.invoice.paid", "billing.invoice.paid\n", "billing invoice paid", "billing.invoice-x.paid",
		"billing.*.paid", "billing.invoice.paid\x00", "billing.invoice.\xff", "billing.rechnung.bezahlt.ü", "billing/invoice/paid",
		"a.b.c\nd.e.f",
	} {
		err := events.CheckName(name)
		if !errors.Is(err, events.ErrInvalidName) {
			t.Errorf("%q: got %v, want ErrInvalidName", name, err)
			continue
		}
		for _, want := range []string{strconv.Quote(name), "three or more dot-separated segments", "[a-z0-9_]+"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: the message lacks %s: %v", name, want, err)
			}
		}
	}
}

// contract: E-01. At most 200 bytes, names and patterns alike; the message states both figures and stays short.
// scenario: B154, B156
func TestNamesHaveALimit(t *testing.T) {
	t.Parallel()
	for _, n := range []int{201, 255, 256, 1000, 3000} {
		for what, err := range map[string]error{
			"name":    events.CheckName(long(n)),
			"pattern": events.CheckPattern(long(n)),
			"prefix":  events.CheckPattern(long(n-1) + "."),
		} {
			want := events.ErrInvalidPattern
			if what == "name" {
				want = events.ErrInvalidName
			}
			if !errors.Is(err, want) {
				t.Errorf("a %s of %d bytes: got %v, want %v", what, n, err, want)
				continue
			}
			if text := err.Error(); !strings.Contains(text, strconv.Itoa(n)) || !strings.Contains(text, "200") || len(text) > 300 {
				t.Errorf("a %s of %d bytes: the message must name the size and the limit, and be short: %s", what, n, text)
			}
		}
	}
	for _, pattern := range []string{long(200), long(199) + "."} {
		if err := events.CheckPattern(pattern); err != nil {
			t.Errorf("200 bytes are refused: %v", err)
		}
	}
}

// contract: E-02, E-03. A pattern is a name, or whole segments with their dots; the empty one is refused here.
func TestCheckPattern(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"billing.invoice.paid", "billing.", "billing.invoice.", "a.b.c.", "0_.", "a.b.c.d."} {
		if err := events.CheckPattern(pattern); err != nil {
			t.Errorf("%q is refused: %v", pattern, err)
		}
	}
	for _, pattern := range []string{
		"", ".", "..", ".a.", "a..", "billing", "billing.invoice", "billing.*", "*", "billing.invoice.*", "Billing.", "billing. ",
		"billing.\n", "\xff.", "a.b.c.\x00", "order.>",
	} {
		if err := events.CheckPattern(pattern); !errors.Is(err, events.ErrInvalidPattern) {
			t.Errorf("%q: got %v, want ErrInvalidPattern", pattern, err)
		} else if pattern != "" && !strings.Contains(err.Error(), strconv.Quote(pattern)) {
			t.Errorf("the message does not quote %q: %v", pattern, err)
		}
	}
}

// contract: E-02, E-03. One rule: an ending dot is a prefix of whole segments, else the exact name; empty is every event.
// scenario: B024, B025
func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"billing.", "billing.invoice.paid", true},
		{"billing.", "billingx.a.b", false},
		{"billing.", "xbilling.a.b", false},
		{"billing.", "bill.a.b", false},
		{"billing.invoice.", "billing.invoice.paid", true},
		{"billing.invoice.", "billing.invoice.line.added", true},
		{"billing.invoice.", "billing.invoices.paid.x", false},
		{"billing.invoice.paid.", "billing.invoice.paid", false},
		{"billing.invoice.paid", "billing.invoice.paid", true},
		{"billing.invoice.paid", "billing.invoice.paid.twice", false},
		{"billing.invoice.paid", "billing.invoice.pai", false},
		{"billing.invoice.paid", "billingxinvoicexpaid", false},
		{"user.", "user.account.made", true},
		{"user.", "users.account.made", false},
		{"user.", "order.user.made", false},
		{"", "billing.invoice.paid", true},
		{"", "a.b.c", true},
	} {
		if got := events.Match(c.pattern, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
}

// segment is the rule for one segment, spelled out.
func segment(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != ""
}

func segments(ss []string) bool {
	for _, s := range ss {
		if !segment(s) {
			return false
		}
	}
	return len(ss) > 0
}

// contract: E-01
func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"billing.invoice.paid", "a.b", "", ".", "a..b.c", "a.b.c.", "A.b.c", "a.b.c\n", "\xff", "a.b.\x00", long(200), long(201)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		parts := strings.Split(name, ".")
		want := len(name) <= 200 && len(parts) >= 3 && segments(parts)
		err := events.CheckName(name)
		if (err == nil) != want {
			t.Fatalf("CheckName(%q) = %v, by the rule it is %v", name, err, want)
		}
		if err != nil && !errors.Is(err, events.ErrInvalidName) {
			t.Fatalf("CheckName(%q) = %v, want ErrInvalidName", name, err)
		}
		if err == nil && (events.CheckPattern(name) != nil || !events.Match(name, name) || !events.Match("", name)) {
			t.Fatalf("the name %q is no pattern that matches itself", name)
		}
	})
}

// contract: E-01, E-02. Match agrees with the rule, told segment by segment.
func FuzzCheckPattern(f *testing.F) {
	for _, seed := range [][2]string{
		{"billing.", "billing.invoice.paid"},
		{"billing.", "billingx.a.b"},
		{"billing.invoice.", "billing.invoice.paid"},
		{"a.b.c", "a.b.c"},
		{"a.b.c", "a.b.c.d"},
		{"", "a.b.c"},
		{"*", "a.b.c"},
		{".", ".a.b"},
		{"a.\n", "a.\nb.c"},
		{"\xff.", "\xff.b.c"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		prefix, isPrefix := strings.CutSuffix(pattern, ".")
		want := strings.Split(prefix, ".")
		valid := len(pattern) <= 200 && segments(want) && (isPrefix || len(want) >= 3)
		err := events.CheckPattern(pattern)
		if (err == nil) != valid {
			t.Fatalf("CheckPattern(%q) = %v, by the rule it is %v", pattern, err, valid)
		}
		if err != nil && !errors.Is(err, events.ErrInvalidPattern) {
			t.Fatalf("CheckPattern(%q) = %v, want ErrInvalidPattern", pattern, err)
		}
		if err != nil || events.CheckName(name) != nil {
			return
		}
		got := strings.Split(name, ".")
		matches := len(got) == len(want)
		if isPrefix {
			matches = len(got) > len(want)
		}
		for i := range want {
			matches = matches && i < len(got) && got[i] == want[i]
		}
		if events.Match(pattern, name) != matches {
			t.Fatalf("Match(%q, %q) = %v, by the rule it is %v", pattern, name, !matches, matches)
		}
	})
}
