package rig

import (
	"context"
	"log/slog"
	"strings"
	"sync"
)

// Logs is a slog.Handler that keeps what is logged.
type Logs struct {
	mu    sync.Mutex
	lines []string
}

// Enabled implements slog.Handler.
func (l *Logs) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *Logs) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Level.String() + " " + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(" " + a.String())
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, b.String())
	return nil
}

// WithAttrs implements slog.Handler.
func (l *Logs) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *Logs) WithGroup(string) slog.Handler { return l }

// Lines returns the lines that contain all the parts: "LEVEL message key=value …".
func (l *Logs) Lines(parts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
lines:
	for _, line := range l.lines {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue lines
			}
		}
		out = append(out, line)
	}
	return out
}
