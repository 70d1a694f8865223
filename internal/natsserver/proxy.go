package natsserver

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a client and a server, and can lose what the server says.
type Proxy struct {
	tb       testing.TB
	listener net.Listener
	target   string
	all      sync.WaitGroup

	mu    sync.Mutex
	deaf  bool
	links map[net.Conn]bool
}

// Between starts a proxy to the server of a URL, until the test ends.
func Between(tb testing.TB, url string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed with the test
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{tb: tb, listener: l, target: strings.TrimPrefix(url, "nats://"), links: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	tb.Cleanup(p.Close)
	return p
}

// Close breaks all connections, and takes no others.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.Cut()
	p.all.Wait()
}

// URL is the proxy's.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Lose has everything lost that the server says, from now on, or nothing; what the client says comes through.
func (p *Proxy) Lose(lose bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = lose
}

// Cut breaks all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.links {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.DialTimeout("tcp", p.target, 5*time.Second) //nolint:noctx // it has a limit
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.links[client], p.links[server] = true, true
		p.mu.Unlock()
		p.all.Go(func() { p.pass(client, server, false) })
		p.all.Go(func() { p.pass(server, client, true) })
	}
}

func (p *Proxy) pass(from, to net.Conn, server bool) {
	defer func() {
		p.mu.Lock()
		delete(p.links, from)
		p.mu.Unlock()
		_, _ = from.Close(), to.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		lost := server && p.deaf
		p.mu.Unlock()
		if n > 0 && !lost {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
