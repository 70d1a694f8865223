package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// proxy stands between the children and a server, and treats their connections badly.
type proxy struct {
	listener net.Listener
	target   string
	all      sync.WaitGroup

	mu    sync.Mutex
	links map[*link]bool
	delay time.Duration // of every piece
	still chan struct{} // not nil: nothing passes until it is closed
}

// link is one connection through the proxy.
type link struct{ client, server net.Conn }

// newProxy begins to listen, on a port of its own.
func newProxy(ctx context.Context, target string) (*proxy, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, links: map[*link]bool{}}
	p.all.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		dial := net.Dialer{Timeout: 5 * time.Second}
		server, err := dial.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{client, server}
		p.mu.Lock()
		p.links[l] = true
		p.mu.Unlock()
		p.all.Go(func() { p.pass(l, client, server) })
		p.all.Go(func() { p.pass(l, server, client) })
	}
}

// pass copies one direction until either side ends.
func (p *proxy) pass(l *link, from, to net.Conn) {
	defer p.drop(l)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.hold()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// hold waits for as long as a piece is to be late.
func (p *proxy) hold() {
	p.mu.Lock()
	delay, still := p.delay, p.still
	p.mu.Unlock()
	if still != nil {
		<-still
	}
	time.Sleep(delay)
}

// drop breaks a link. What is on its way is lost: the sides see a reset.
func (p *proxy) drop(l *link) {
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// cut breaks all links.
func (p *proxy) cut() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		p.drop(l)
	}
}

// slow makes every piece late; 0 ends that.
func (p *proxy) slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// freeze lets nothing pass, without a word to either side, until thaw.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still == nil {
		p.still = make(chan struct{})
	}
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still != nil {
		close(p.still)
		p.still = nil
	}
}

func (p *proxy) close() error {
	err := p.listener.Close()
	p.thaw()
	p.cut()
	p.all.Wait()
	return err
}
