// Package quietlog keeps a library that logs every failure of a loop from filling the log.
package quietlog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// New returns a handler that passes records of at least the level on to next, each message at most once in a period; the
// next one that passes says how many were left out.
func New(next slog.Handler, level slog.Level, period time.Duration) slog.Handler {
	return &handler{next: next, level: level, shared: &shared{period: period, last: map[string]*seen{}}}
}

type handler struct {
	next   slog.Handler
	level  slog.Level
	shared *shared
}

type shared struct {
	mu     sync.Mutex
	period time.Duration
	last   map[string]*seen
}

type seen struct {
	at      time.Time
	dropped int
}

// maxMessages bounds the memory: beyond it everything is forgotten.
const maxMessages = 1000

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	dropped, pass := h.shared.pass(r.Message, r.Time)
	if !pass {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", dropped))
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.next.WithAttrs(attrs), h.level, h.shared}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.next.WithGroup(name), h.level, h.shared}
}

func (s *shared) pass(message string, at time.Time) (dropped int, pass bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.last[message]
	if ok && at.Sub(last.at) < s.period {
		last.dropped++
		return 0, false
	}
	if ok {
		dropped = last.dropped
	} else if len(s.last) >= maxMessages {
		clear(s.last)
	}
	s.last[message] = &seen{at: at}
	return dropped, true
}
