package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/openloam/loam"
	"github.com/openloam/loam/admin"
)

// servePages serves the operator's pages of each tenant under /TENANT/ until ctx ends. Whoever asks may do everything: a
// program that people use asks who they are.
func servePages(ctx context.Context, addr string, engine *loam.Engine, out *printer) (stop func() error, err error) {
	mux := http.NewServeMux()
	mux.Handle("/health/", admin.Health(engine))
	for _, t := range tenants {
		pages, err := admin.New(admin.Config{
			Engine: engine,
			Prefix: "/" + t,
			Authorize: func(*http.Request) (admin.Operator, error) {
				return admin.Operator{ID: "you", Tenant: t, Rights: []admin.Right{admin.View, admin.ViewPayloads, admin.Redeliver}}, nil
			},
		})
		if err != nil {
			return nil, err
		}
		mux.Handle("/"+t+"/", pages)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	for _, t := range tenants {
		out.title("Pages of " + t + ": http://" + listener.Addr().String() + "/" + t + "/")
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return func() error {
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err := server.Shutdown(shutdown)
		if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
		return err
	}, nil
}
