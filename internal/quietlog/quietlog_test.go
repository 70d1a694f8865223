package quietlog_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openloam/loam/internal/quietlog"
	"github.com/openloam/loam/internal/rig"
)

// logger logs at times that the test chooses.
type logger struct {
	t    *testing.T
	h    slog.Handler
	logs *rig.Logs
	at   time.Time
}

func newLogger(t *testing.T) *logger {
	t.Helper()
	logs := &rig.Logs{}
	return &logger{t, quietlog.New(logs, slog.LevelWarn, time.Minute), logs, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (l *logger) warn(message string) {
	l.t.Helper()
	if err := l.h.Handle(l.t.Context(), slog.NewRecord(l.at, slog.LevelWarn, message, 0)); err != nil {
		l.t.Fatal(err)
	}
}

// One message gets through once in a period, and then says how many were left out; another message is its own.
func TestOncePerPeriod(t *testing.T) {
	t.Parallel()
	l := newLogger(t)
	for _, step := range []struct {
		after time.Duration
		what  string
	}{
		{0, "a"},
		{0, "b"},
		{time.Second, "a"},
		{58*time.Second + 999*time.Millisecond, "a"},
		{time.Millisecond, "a"}, // one minute after the first
		{time.Second, "b"},      // one second more: none was left out
		{59 * time.Second, "a"},
		{time.Second, "a"}, // not again before
		{time.Hour, "a"},
	} {
		l.at = l.at.Add(step.after)
		l.warn(step.what)
	}
	want := []string{"WARN a", "WARN b", "WARN a left_out=2", "WARN b", "WARN a", "WARN a left_out=1"}
	if got := l.logs.Lines(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Records below the level are not passed on, nor is what the next handler does not want.
func TestLevel(t *testing.T) {
	t.Parallel()
	logs := &rig.Logs{}
	log := slog.New(quietlog.New(logs, slog.LevelWarn, time.Minute))
	log.DebugContext(t.Context(), "debug")
	log.InfoContext(t.Context(), "info")
	log.WarnContext(t.Context(), "warn")
	log.ErrorContext(t.Context(), "error")
	if got := logs.Lines(); !slices.Equal(got, []string{"WARN warn", "ERROR error"}) {
		t.Errorf("got %q", got)
	}
	strict := quietlog.New(slog.NewTextHandler(&strings.Builder{}, &slog.HandlerOptions{Level: slog.LevelError}), slog.LevelWarn, time.Minute)
	if strict.Enabled(t.Context(), slog.LevelWarn) || !strict.Enabled(t.Context(), slog.LevelError) {
		t.Error("the next handler's level does not count")
	}
}

// Handlers derived for attributes and groups pass them on and share the memory of what was seen.
func TestDerivedHandlersShare(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	h := quietlog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}), slog.LevelWarn, time.Minute)
	log := slog.New(h)
	log.With(slog.String("job", "7")).WithGroup("g").WarnContext(t.Context(), "a", slog.Int("n", 1))
	log.With(slog.String("job", "8")).WarnContext(t.Context(), "a")
	log.WithGroup("h").WarnContext(t.Context(), "a")
	log.WarnContext(t.Context(), "b")
	if want := "level=WARN msg=a job=7 g.n=1\nlevel=WARN msg=b\n"; out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

// Ever new messages do not fill the memory, and all get through.
func TestManyMessages(t *testing.T) {
	t.Parallel()
	l := newLogger(t)
	for i := range 5000 {
		l.warn(fmt.Sprintf("message %d", i))
	}
	l.warn("message 4999")
	if got := len(l.logs.Lines()); got != 5000 {
		t.Errorf("%d lines, want 5000", got)
	}
}

// Of one message from many goroutines, one gets through.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	logs := &rig.Logs{}
	log := slog.New(quietlog.New(logs, slog.LevelWarn, time.Hour))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { log.WarnContext(t.Context(), "a") })
	}
	all.Wait()
	if got := len(logs.Lines()); got != 1 {
		t.Errorf("%d lines, want 1", got)
	}
}
