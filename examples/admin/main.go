// Command admin shows the operator's pages, with a delivery in every state, and River UI beside them.
//
//	go run ./examples/admin                    on http://127.0.0.1:8080, until Ctrl-C
//	go run ./examples/admin -http :9000        elsewhere
//	go run ./examples/admin -once              asks for each page once, and ends
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"riverqueue.com/riverui"

	"github.com/openloam/loam"
	"github.com/openloam/loam/admin"
	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/durable"
)

func main() {
	address := flag.String("http", "127.0.0.1:8080", "the `address` to listen at")
	once := flag.Bool("once", false, "ask for each page once, and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *address, *once); err != nil {
		fmt.Fprintln(os.Stderr, "admin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, address string, once bool) (err error) {
	dir, err := os.MkdirTemp("", "loam-admin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.Open(ctx, filepath.Join(dir, "admin.db"))
	if err != nil {
		return err
	}
	defer db.Close()

	registry := durable.NewRegistry()
	register(registry)
	engine, err := loam.New(loam.Config{DB: db, Registry: registry, Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Millisecond})
	if err != nil {
		return err
	}
	if err := engine.Migrate(ctx); err != nil {
		return err
	}
	if err := engine.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Stop(context.WithoutCancel(ctx))) }()
	if err := seed(ctx, db, engine); err != nil {
		return err
	}
	site, stopSite, err := newSite(ctx, db, engine)
	if err != nil {
		return err
	}
	defer stopSite()
	if once {
		return visit(ctx, w, site)
	}
	return serve(ctx, w, address, site)
}

// newSite mounts everything: the pages, River UI, health, and a page to change who one is.
func newSite(ctx context.Context, db *database.DB, engine *loam.Engine) (site http.Handler, stop func(), err error) {
	pages, err := admin.New(admin.Config{
		Engine: engine, Authorize: authorize, Prefix: "/admin/loam", Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return nil, nil, err
	}
	client, err := river.NewClient(riversqlite.New(db.Write()), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, err
	}
	ui, err := riverui.NewHandler(&riverui.HandlerOpts{
		Endpoints: riverui.NewEndpoints(client, nil), Logger: slog.New(slog.DiscardHandler), Prefix: "/riverui",
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, stop = context.WithCancel(ctx)
	if err := ui.Start(ctx); err != nil {
		stop()
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/loam/", pages)
	mux.Handle("/riverui/", http.NewCrossOriginProtection().Handler(onlyFor("full", ui))) // it knows neither rights nor tenants
	mux.Handle("/health/", admin.Health(engine))
	mux.HandleFunc("POST /as/{who}", become)
	mux.HandleFunc("GET /{$}", home)
	return mux, stop, nil
}

func serve(ctx context.Context, w io.Writer, address string, site http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: site, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Fprintf(w, "http://%s\n", listener.Addr())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(limit)
	<-ended
	return err
}
