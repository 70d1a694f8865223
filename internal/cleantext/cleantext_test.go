package cleantext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/openloam/loam/internal/cleantext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCut(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "fine": "fine", "a\x00b\xffc": "a\uFFFDb\uFFFDc", strings.Repeat("x", 40): strings.Repeat("x", 40)} {
		if got := cleantext.Cut(in, 40); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for n := 1; n < 9; n++ { // the cut is within a rune, or not
		got := cleantext.Cut(strings.Repeat("x", n)+strings.Repeat("é", 40), 40)
		if len(got) > 40 || len(got) < 38 || !utf8.ValidString(got) || !strings.HasSuffix(got, "… (cut)") {
			t.Errorf("%d: %q has %d bytes", n, got, len(got))
		}
	}
}
