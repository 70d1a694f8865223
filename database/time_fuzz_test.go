package database_test

import (
	"testing"

	"github.com/openloam/loam/database"
)

// What a time column holds is read or refused, and what was read is stored and read back as the same time.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{
		"", "2026-01-02 03:04:05.000006", "2026-01-02 03:04:05", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789+14:00",
		"0000-01-01 00:00:00.000000", "0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999", "9999-12-31T23:59:59-12:00", "2026-02-30 00:00:00", "now",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var at, again database.Time
		if at.Scan(text) != nil {
			return
		}
		stored, err := at.Value()
		if err != nil { // a zone can move it out of the years that can be stored
			if y := at.UTC().Year(); y >= 0 && y <= 9999 {
				t.Fatalf("%q was read as %v, which cannot be stored: %v", text, at, err)
			}
			return
		}
		if err := again.Scan(stored); err != nil || !again.Equal(at.Time) {
			t.Fatalf("%q was read as %v, stored as %v, read back as %v (%v)", text, at, stored, again, err)
		}
	})
}
