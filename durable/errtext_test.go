package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/durable"
	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
)

// maxText is the longest last_error, in bytes.
const maxText = 8 << 10

// declined is an error with a type of its own.
type declined struct{ code string }

func (d *declined) Error() string { return "card declined: " + d.code }

// codeError is one that is no pointer.
type codeError int

func (c codeError) Error() string { return fmt.Sprintf("code %d", int(c)) }

// hostile is an error whose methods do what they should not.
type hostile struct{ message, unwrap func() }

func (h hostile) Error() string { h.message(); return "never" }
func (h hostile) Unwrap() error { h.unwrap(); return nil }

// calm is an error that a nil pointer can be, too.
type calm struct{}

func (*calm) Error() string { return "all is well" }

// listError is an error that cannot be compared.
type listError []string

func (l listError) Error() string { return strings.Join(l, ", ") }

// chain wraps its error, and is neither from errors nor from fmt.
type chain struct{ inner error }

func (c chain) Error() string { return "chain: " + c.inner.Error() }
func (c chain) Unwrap() error { return c.inner }

// lastErrors runs a handler for each error and returns what the rows say. Each must have failed once, with its claim given
// back, and be woken again, whatever the error is.
func lastErrors(t *testing.T, db *database.DB, errs []error) []string {
	t.Helper()
	r := rig.New(t, db)
	for n, err := range errs {
		r.Registry.RegisterFunc(fmt.Sprintf("sub.%d", n), "billing.", func(context.Context, events.Event) error { return err })
	}
	r.Publish("acme", "billing.invoice.paid", nil)
	r.Work()
	texts := make([]string, len(errs))
	for n, row := range r.Rows("acme") {
		texts[n] = row.LastError
		if row.Status != durable.Pending || row.Attempts != 1 || row.Unfinished != 0 || row.NextAttemptAt.IsZero() {
			t.Errorf("error %d: the row is %+v", n, row)
		}
		if h := row.History(); len(h) != 1 || h[0].Error != row.LastError {
			t.Errorf("error %d: the history is %+v, the text %q", n, h, row.LastError)
		}
		if !utf8.ValidString(row.LastError) || strings.ContainsRune(row.LastError, 0) || len(row.LastError) > maxText {
			t.Errorf("error %d: a text that a database cannot hold: %d bytes, %.200q", n, len(row.LastError), row.LastError)
		}
	}
	var claims int
	rig.Scan(t, db, `SELECT count(*) FROM processed_events`, nil, &claims)
	if claims != 0 {
		t.Errorf("%d claims are left", claims)
	}
	if n := len(r.Wakeups.All()); n != len(errs) {
		t.Errorf("%d wake-ups for %d failures", n, len(errs))
	}
	return texts
}

// contract: D-12. TYPE is the first type in the chain that is not from errors or fmt.
func TestErrorTextNamesTheType(t *testing.T) {
	t.Parallel()
	card := &declined{"51"}
	cases := []struct {
		err  error
		want string
	}{
		{card, "*durable_test.declined: card declined: 51"},
		{codeError(7), "durable_test.codeError: code 7"},
		{context.DeadlineExceeded, "context.deadlineExceededError: context deadline exceeded"},
		{&fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist}, "*fs.PathError: open /x: file does not exist"},
		{listError{"a", "b"}, "durable_test.listError: a, b"},
		{errors.New("no"), "*errors.errorString: no"}, // nothing else is in the chain

		{fmt.Errorf("charge: %w", card), "*durable_test.declined: charge: card declined: 51"},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", codeError(7))), "durable_test.codeError: a: b: code 7"},
		{fmt.Errorf("a: %w", chain{card}), "durable_test.chain: a: chain: card declined: 51"},
		{chain{fmt.Errorf("b: %w", card)}, "durable_test.chain: chain: b: card declined: 51"},
		{fmt.Errorf("a: %w", fmt.Errorf("b: %w", errors.New("no"))), "*errors.errorString: a: b: no"},

		{errors.Join(card, codeError(7)), "*durable_test.declined: card declined: 51\ncode 7"},
		{errors.Join(nil, codeError(7), nil), "durable_test.codeError: code 7"},
		{fmt.Errorf("a: %w", errors.Join(codeError(7), card)), "durable_test.codeError: a: code 7\ncard declined: 51"},
		{fmt.Errorf("a: %w, %w", codeError(7), card), "durable_test.codeError: a: code 7, card declined: 51"},
		// Past a branch that has none.
		{errors.Join(errors.New("no"), card), "*durable_test.declined: no\ncard declined: 51"},
		{fmt.Errorf("a: %w, %w", errors.New("no"), fmt.Errorf("b: %w", card)), "*durable_test.declined: a: no, b: card declined: 51"},
		{
			errors.Join(fmt.Errorf("a: %w", errors.Join(errors.New("x"), errors.New("y"))), codeError(7)),
			"durable_test.codeError: a: x\ny\ncode 7",
		},
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		errs := make([]error, len(cases))
		for n, c := range cases {
			errs[n] = c.err
		}
		for n, got := range lastErrors(t, db, errs) {
			if got != cases[n].want {
				t.Errorf("%#v: %q, want %q", cases[n].err, got, cases[n].want)
			}
		}
	})
}

// contract: D-12. An error whose own methods misbehave, or a typed nil, becomes a placeholder: TYPE and some text. The
// failure is counted all the same.
// scenario: B035
func TestErrorTextOfHostileErrors(t *testing.T) {
	t.Parallel()
	boom := func() { panic("boom") }
	goexit := runtime.Goexit
	nothing := func() {}
	var typedNil *declined
	cases := []struct {
		err  error
		want string // the type
	}{
		{typedNil, "*durable_test.declined"},
		{(*calm)(nil), "*durable_test.calm"},
		{(*hostile)(nil), "*durable_test.hostile"}, // through its value's methods: a nil dereference
		{fmt.Errorf("charge: %w", typedNil), "*durable_test.declined"},
		{errors.Join(typedNil, codeError(7)), "*durable_test.declined"},
		{hostile{boom, nothing}, "durable_test.hostile"},
		{hostile{goexit, nothing}, "durable_test.hostile"},
		{hostile{func() { panic(nil) }, nothing}, "durable_test.hostile"},
		{hostile{func() { panic(hostile{boom, boom}) }, nothing}, "durable_test.hostile"},
		{hostile{nothing, boom}, "durable_test.hostile"},
		{hostile{nothing, goexit}, "durable_test.hostile"},
		{hostile{boom, boom}, "durable_test.hostile"},
		{fmt.Errorf("a: %w", hostile{nothing, boom}), "durable_test.hostile"},
		{errors.Join(hostile{boom, boom}, codeError(7)), "durable_test.hostile"},
		{chain{nil}, "durable_test.chain"},
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		errs := make([]error, len(cases))
		for n, c := range cases {
			errs[n] = c.err
		}
		for n, got := range lastErrors(t, db, errs) {
			if text, ok := strings.CutPrefix(got, cases[n].want+": "); !ok || text == "" || text == "all is well" {
				t.Errorf("error %d: %q, want %s and a text", n, got, cases[n].want)
			}
		}
	})
}

// contract: D-12. What a database cannot hold is replaced, and nothing else is.
func TestErrorTextReplacesWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	cases := []struct{ message, want string }{
		{"", ""},
		{"plain", "plain"},
		{"é \U0001F600 \u2028\n\t\\ \" ' %s", "é \U0001F600 \u2028\n\t\\ \" ' %s"},
		{"a\x00b", "a\uFFFDb"},
		{"\x00", "\uFFFD"},
		{"a\xffb", "a\uFFFDb"},
		{"\xed\xa0\x80.", "\uFFFD."}, // a surrogate
		{"caf\xc3", "caf\uFFFD"},     // half of é
		{"\xf0\x9f\x98", "\uFFFD"},
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		errs := make([]error, len(cases))
		for n, c := range cases {
			errs[n] = errors.New(c.message)
		}
		for n, got := range lastErrors(t, db, errs) {
			if want := "*errors.errorString: " + cases[n].want; got != want {
				t.Errorf("%q: %q, want %q", cases[n].message, got, want)
			}
		}
	})
}

// contract: D-12. A text over 8 KiB is cut at a rune, with a mark; one of 8 KiB is not cut.
// scenario: B142, B147
func TestErrorTextIsCutAtARune(t *testing.T) {
	t.Parallel()
	const head = "*errors.errorString: "
	room := maxText - len(head)
	type text struct {
		message string
		whole   bool
	}
	cases := []text{
		{strings.Repeat("a", room), true},
		{strings.Repeat("a", room-4) + "\U0001F600", true},
		{strings.Repeat("a", room+1), false},
		{strings.Repeat("a", room-3) + "\U0001F600", false},
		{strings.Repeat("a", 1<<20), false},
	}
	for offset := range 4 {
		front := strings.Repeat("a", offset)
		cases = append(cases, text{front + strings.Repeat("\U0001F600", 5000), false},
			text{front + strings.Repeat("é", 5000), false}, text{front + strings.Repeat("€", 5000), false},
			// What is replaced grows: three bytes for one.
			text{front + strings.Repeat("\x00", room/2), false}, text{front + strings.Repeat("a\xff", room/3), false})
	}
	dbtest.ForEach(t, func(t *testing.T, db *database.DB, _ *dbtest.Faults) {
		errs := make([]error, len(cases))
		for n, c := range cases {
			errs[n] = errors.New(c.message)
		}
		for n, got := range lastErrors(t, db, errs) {
			full := head + strings.NewReplacer("\x00", "\uFFFD", "\xff", "\uFFFD").Replace(cases[n].message)
			if cases[n].whole {
				if got != full {
					t.Errorf("text %d of %d bytes was changed to %d", n, len(full), len(got))
				}
				continue
			}
			kept := 0
			for kept < len(got) && kept < len(full) && got[kept] == full[kept] {
				kept++
			}
			for kept < len(got) && !utf8.RuneStart(got[kept]) { // the mark's first rune may begin as the next one does
				kept--
			}
			mark := got[kept:]
			if !utf8.RuneStart(full[kept]) || !strings.Contains(mark, "cut") || len(mark) > 20 {
				t.Errorf("text %d: %d bytes of it, and then %q: want whole runes, and a mark", n, kept, mark)
			}
			if len(got) < maxText-utf8.UTFMax {
				t.Errorf("text %d: %d bytes, which is cut too early", n, len(got))
			}
		}
	})
}
