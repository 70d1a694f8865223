package main

import (
	"context"
	"maps"
	"slices"

	"github.com/openloam/loam/database"
)

// backend is a kind of database to be tortured on.
type backend interface {
	// prepare makes a database for this run, with its files in dir if it has files, and returns what open needs.
	prepare(ctx context.Context, dir string) (location string, err error)
	// open opens it, in the parent and in each child.
	open(ctx context.Context, location string) (*database.DB, error)
	// attacks are those that are possible on this kind only, once it is prepared.
	attacks() []attack
	// obey does in a child what an attack has told all children to do.
	obey(ctx context.Context, db *database.DB, order string) error
	// check looks for damage, after all.
	check(ctx context.Context, db *database.DB) error
	// release takes the database away. What is to be kept is in dir afterwards.
	release(keep bool) error
}

var backends = map[string]func() backend{
	"postgres": func() backend { return &postgresBackend{} },
	"sqlite":   func() backend { return &sqliteBackend{} },
}

func backendNames() []string { return slices.Sorted(maps.Keys(backends)) }

// schema is the application's own tables.
var schema = []string{
	`CREATE TABLE torture_orders (id VARCHAR(36) NOT NULL PRIMARY KEY, tenant VARCHAR(40) NOT NULL)`,
	`CREATE TABLE torture_balances (tenant VARCHAR(40) NOT NULL PRIMARY KEY, amount BIGINT NOT NULL)`,
	`CREATE TABLE torture_booked (id VARCHAR(36) NOT NULL)`, // without a key: a second time shows
}
