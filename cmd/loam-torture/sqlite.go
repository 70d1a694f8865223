package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/sqlite"
)

// sqliteBackend has its file in a small file system of its own where it can mount one, so that a full disk is a full disk.
// Elsewhere the children are told to let the file grow no further, which SQLite reports with the same error.
type sqliteBackend struct {
	dir   string
	mount string // "" without
}

const databaseFile = "app.db"

func (b *sqliteBackend) prepare(_ context.Context, dir string) (string, error) {
	b.dir = dir
	mount := filepath.Join(dir, "disk")
	if err := os.Mkdir(mount, 0o700); err != nil {
		return "", err
	}
	if mountSmall(mount) == nil {
		b.mount = mount
	}
	return filepath.Join(mount, databaseFile), nil
}

func (b *sqliteBackend) open(ctx context.Context, location string) (*database.DB, error) {
	return sqlite.Open(ctx, location)
}

func (b *sqliteBackend) attacks() []attack {
	return []attack{{name: "full", cards: 1, run: b.fill}}
}

// fill leaves no room for some seconds: neither free pages in the file nor, then, on the disk.
func (b *sqliteBackend) fill(ctx context.Context, a *arena) {
	took := max(500*time.Millisecond, time.Duration(a.random(4000))*time.Millisecond)
	if err := b.useFreePages(ctx, a.db); err != nil {
		a.say("full: %v", err)
	}
	from := time.Now().UnixNano()
	if b.mount == "" {
		a.tell("full")
	} else if err := b.shrink(); err != nil {
		a.say("full: %v", err)
		return
	}
	a.say("full for %v", took)
	a.wait(ctx, took)
	if b.mount == "" {
		a.tell("room")
	} else if err := resizeSmall(b.mount, roomy); err != nil {
		a.say("room: %v", err)
	}
	a.diary.addAt("full", from, time.Now().UnixNano())
	_ = a.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DROP TABLE IF EXISTS torture_filler`)
		return err
	})
	a.count("full")
}

// shrink makes the file system as small as what is in it.
func (b *sqliteBackend) shrink() error {
	var err error
	for range 20 { // it may grow between the question and the answer
		var used int64
		if used, err = usedSmall(b.mount); err != nil {
			return err
		}
		if err = resizeSmall(b.mount, used); err == nil {
			return nil
		}
	}
	return err
}

// useFreePages takes the pages that deleted rows have left, for they are room.
func (b *sqliteBackend) useFreePages(ctx context.Context, db *database.DB) error {
	for range 40 {
		var free int
		if err := db.Read().QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil {
			return err
		}
		if free < 20 {
			return nil
		}
		err := db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS torture_filler (b BLOB)`); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO torture_filler VALUES (zeroblob($1))`, min(free, 500)*4000)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *sqliteBackend) obey(ctx context.Context, db *database.DB, order string) error {
	pages := map[string]int{"full": 1, "room": 1 << 30}[order] // as many as there are, at least
	if pages == 0 {
		return fmt.Errorf("unknown order %q", order)
	}
	_, err := db.Write().ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", pages))
	return err
}

func (b *sqliteBackend) check(ctx context.Context, db *database.DB) error {
	var answer string
	if err := db.Read().QueryRowContext(ctx, `PRAGMA integrity_check`).Scan(&answer); err != nil {
		return err
	}
	if answer != "ok" {
		return errors.New("integrity_check: " + answer)
	}
	return nil
}

func (b *sqliteBackend) release(keep bool) error {
	if b.mount == "" {
		return nil
	}
	var errs []error
	if keep {
		for _, suffix := range []string{"", "-wal"} {
			errs = append(errs, copyFile(filepath.Join(b.mount, databaseFile+suffix), filepath.Join(b.dir, databaseFile+suffix)))
		}
	}
	return errors.Join(append(errs, unmountSmall(b.mount))...)
}

func copyFile(from, to string) error {
	in, err := os.Open(from) //nolint:gosec // ours
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) //nolint:gosec // ours
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
