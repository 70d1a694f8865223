package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // makes and drops the database

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
)

// serverEnv has the URL of a server where the run may make a database.
const serverEnv = "LOAM_DATABASE_URL"

// postgresBackend makes a database of its own on a server. The children reach it through a proxy that treats their
// connections badly; the parent goes straight to it.
type postgresBackend struct {
	server *sql.DB
	name   string
	direct string // "" in a child
	proxy  *proxy
}

func (b *postgresBackend) prepare(ctx context.Context, _ string) (string, error) {
	base := os.Getenv(serverEnv)
	if base == "" {
		return "", fmt.Errorf("%s is not set: it must have the URL of a PostgreSQL server where databases may be created, "+
			"as postgres://user@127.0.0.1:5432/postgres (make postgres starts one)", serverEnv)
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", fmt.Errorf("%s is not a URL as postgres://user@127.0.0.1:5432/postgres", serverEnv)
	}
	if b.server, err = sql.Open("pgx", base); err != nil {
		return "", err
	}
	b.name = "loam_torture_" + strings.ToLower(rand.Text())
	if _, err := b.server.ExecContext(ctx, `CREATE DATABASE `+b.name); err != nil {
		return "", database.Explain(err)
	}
	u.Path = "/" + b.name
	b.direct = u.String()
	if u.Port() == "" {
		u.Host += ":5432"
	}
	if b.proxy, err = newProxy(ctx, u.Host); err != nil {
		return "", err
	}
	u.Host = b.proxy.addr()
	return u.String(), nil
}

func (b *postgresBackend) open(ctx context.Context, location string) (*database.DB, error) {
	if b.direct != "" {
		location = b.direct
	}
	return postgres.Open(ctx, location)
}

func (b *postgresBackend) attacks() []attack {
	return []attack{
		{"cut", 2, b.cut},
		{"half-open", 1, b.halfOpen},
		{"slow", 1, b.slow},
		{"terminate", 2, b.terminate},
	}
}

// cut resets all connections of the children.
func (b *postgresBackend) cut(_ context.Context, a *arena) {
	a.say("cut all connections")
	from := time.Now()
	b.proxy.cut()
	a.away(from)
	a.count("cut")
}

// halfOpen lets nothing pass for some seconds, longer than a lease at times, and then resets the connections: to the
// children the server is neither there nor gone.
func (b *postgresBackend) halfOpen(ctx context.Context, a *arena) {
	took := time.Second + time.Duration(a.random(4000))*time.Millisecond
	a.say("half-open for %v", took)
	from := time.Now()
	b.proxy.freeze()
	a.wait(ctx, took)
	b.proxy.cut()
	b.proxy.thaw()
	a.away(from)
	a.count("half-open")
}

// slow adds latency for some seconds.
func (b *postgresBackend) slow(ctx context.Context, a *arena) {
	delay := 10*time.Millisecond + time.Duration(a.random(60))*time.Millisecond
	a.say("latency of %v", delay)
	from := time.Now()
	b.proxy.slow(delay)
	a.wait(ctx, time.Second+time.Duration(a.random(3000))*time.Millisecond)
	b.proxy.slow(0)
	a.away(from)
	a.count("slow")
}

// terminate ends the sessions of the database at the server, the parent's too.
func (b *postgresBackend) terminate(ctx context.Context, a *arena) {
	a.say("terminate all sessions")
	defer a.away(time.Now())
	if _, err := b.server.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, b.name); err != nil {
		a.say("terminate: %v", err)
		return
	}
	a.count("terminate")
}

// reconnecting is how long the children may take to make their connections anew.
const reconnecting = 3 * time.Second

// away notes that the children could not write since a time, and for as long as they need to connect again.
func (a *arena) away(from time.Time) {
	a.diary.addAt("full", from.UnixNano(), time.Now().Add(reconnecting).UnixNano())
}

func (b *postgresBackend) obey(_ context.Context, _ *database.DB, order string) error {
	return fmt.Errorf("unknown order %q", order)
}

// check has nothing to look for: PostgreSQL keeps its own files.
func (b *postgresBackend) check(context.Context, *database.DB) error { return nil }

func (b *postgresBackend) release(keep bool) error {
	if b.server == nil {
		return nil
	}
	var errs []error
	if b.proxy != nil {
		errs = append(errs, b.proxy.close())
	}
	if b.name != "" && keep {
		fmt.Println("the database", b.name, "is kept on the server")
	} else if b.name != "" {
		_, err := b.server.ExecContext(context.Background(), `DROP DATABASE IF EXISTS `+b.name+` WITH (FORCE)`)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, b.server.Close())...)
}
