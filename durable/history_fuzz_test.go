package durable_test

import (
	"testing"

	"github.com/openloam/loam/durable"
)

// contract: D-18. A history that a foreign hand has damaged is none; reading it does not panic.
func FuzzHistory(f *testing.F) {
	for _, seed := range []string{
		``, `[]`, `null`, `{}`, `[{}]`, `[{"at":"2026-01-02T03:04:05.000006Z","run":1,"error":"x","duration_ms":7}]`, `[{"at":"nonsense"}]`,
		`[{"run":-1}]`, `[{"at":null,"stack":"a\nb"}]`, `[[]]`, `[{"at":"2026-01-02T03:04:05+14:00"}]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		row := durable.EventDelivery{Errors: text}
		for _, h := range row.History() {
			if h.At.IsZero() && h.At.Year() != 1 {
				t.Fatalf("%q: %+v", text, h)
			}
		}
	})
}
