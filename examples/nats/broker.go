package main

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// broker starts a NATS server with JetStream in this process, on a port that is free.
func broker(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(dir, "jetstream"), NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		return nil, errors.New("the NATS server does not start")
	}
	return s, nil
}
