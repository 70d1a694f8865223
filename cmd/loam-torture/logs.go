package main

import (
	"context"
	"log/slog"
)

// logWatcher writes the engine's log lines that are evidence into the diary, and passes on those that say that something is
// wrong.
type logWatcher struct {
	slog.Handler
	diary *diary
}

// letters are the lines of the diary for log messages about a delivery.
var letters = map[string]string{
	"outcome not written: the claim was lost":                                                       "r",
	"outcome not written before shutdown; the delivery runs again when its lease is over":           "a",
	"the run has ended, but its row is no longer pending: somebody changed or deleted it":           "g",
	"not ended at shutdown: the handler has not returned, or its outcome cannot be written":         "a",
	"handler is stuck: it has not returned after its deadline; its claim is kept, its slot is free": "v",
}

// expected are messages that the scripts cause by the thousand.
var expected = map[string]bool{"delivery is dead": true, "delivery failed, it will be tried again": true}

// Handle implements slog.Handler.
func (w logWatcher) Handle(ctx context.Context, r slog.Record) error {
	if letter := letters[r.Message]; letter != "" {
		delivery := "?"
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "delivery" {
				delivery = a.Value.String()
			}
			return true
		})
		if letter == "v" {
			w.diary.add(letter, "delivery", delivery+":", r.Message)
		} else {
			w.diary.add(letter, delivery)
		}
	}
	if expected[r.Message] || !w.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return w.Handler.Handle(ctx, r)
}

// Enabled implements slog.Handler.
func (w logWatcher) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// WithAttrs implements slog.Handler.
func (w logWatcher) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logWatcher{w.Handler.WithAttrs(attrs), w.diary}
}

// WithGroup implements slog.Handler.
func (w logWatcher) WithGroup(name string) slog.Handler {
	return logWatcher{w.Handler.WithGroup(name), w.diary}
}
