// Package natsserver runs NATS servers for tests: inside the process, or as a process of its own that can be stopped, killed
// and started again over the same store. Both are the version that go.mod names.
package natsserver

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startLimit is how long a server may take until it answers.
const startLimit = 30 * time.Second

// Run runs a server with JetStream inside the process, on a port of its own, until the test ends, and returns it; its URL is
// ClientURL(). change can alter its options.
func Run(tb testing.TB, change ...func(*server.Options)) *server.Server {
	tb.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: tb.TempDir(), NoSigs: true, NoLog: true,
	}
	for _, c := range change {
		c(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(startLimit) {
		tb.Fatal("the NATS server does not answer")
	}
	return s
}
