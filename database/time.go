package database

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// timeFormat has a fixed width, so that text compares as time does. Drivers' own formats trim zeros or write offsets.
const timeFormat = "2006-01-02 15:04:05.000000"

// Time is a point in time as the tables hold it: UTC, cut to microseconds; on SQLite text of fixed width, on PostgreSQL a
// timestamptz. The zero Time is NULL.
// It is the only type that reads and writes a time column.
type Time struct{ time.Time }

var (
	_ driver.Valuer            = Time{}
	_ pgtype.TimestamptzValuer = Time{}
	_ sql.Scanner              = (*Time)(nil)
)

// At returns t as a column holds it. What is below a microsecond is cut off, never rounded up.
func At(t time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{t.UTC().Truncate(time.Microsecond)}
}

// Value implements driver.Valuer: how SQLite holds it.
func (t Time) Value() (driver.Value, error) {
	if t.IsZero() {
		return nil, nil
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return t.UTC().Format(timeFormat), nil // Format cuts what is below a microsecond
}

// TimestamptzValue implements pgtype.TimestamptzValuer: how PostgreSQL holds it, whatever the zone of its session.
func (t Time) TimestamptzValue() (pgtype.Timestamptz, error) {
	if t.IsZero() {
		return pgtype.Timestamptz{}, nil
	}
	return pgtype.Timestamptz{Time: At(t.Time).Time, Valid: true}, t.check()
}

func (t Time) check() error {
	if year := t.UTC().Year(); year < 0 || year > 9999 {
		return fmt.Errorf("database: the year %d cannot be stored, it must be 0 to 9999", year)
	}
	return nil
}

// Scan implements sql.Scanner.
func (t *Time) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = Time{}
		return nil
	case time.Time:
		*t = At(v)
		return nil
	case string:
		return t.parse(v)
	case []byte:
		return t.parse(string(v))
	}
	return fmt.Errorf("database: a time column holds a %T", src)
}

func (t *Time) parse(text string) error {
	// The last two are what a hand at the database's shell writes.
	for _, format := range []string{timeFormat, "2006-01-02 15:04:05", time.RFC3339Nano} {
		if u, err := time.Parse(format, text); err == nil {
			*t = At(u)
			return nil
		}
	}
	return fmt.Errorf("database: a time column holds %q, not the form %q", text, timeFormat)
}

// Millis returns t in milliseconds since 1970, as the ledger holds its times.
func Millis(t time.Time) int64 { return t.UnixMilli() }
