package main

import (
	"io"
	"net"
	"testing"
	"time"
)

// The proxy passes what comes, holds it back, and breaks connections.
func TestProxy(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }() // an echo
		}
	}()
	p, err := newProxy(t.Context(), server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	echo := func(c net.Conn, limit time.Duration) error {
		_ = c.SetDeadline(time.Now().Add(limit))
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	c := dial()
	if err := echo(c, 10*time.Second); err != nil {
		t.Fatalf("it does not pass: %v", err)
	}
	p.slow(300 * time.Millisecond)
	began := time.Now()
	if err := echo(c, 10*time.Second); err != nil || time.Since(began) < 600*time.Millisecond {
		t.Errorf("slow: %v after %v, want 600ms at least", err, time.Since(began))
	}
	p.slow(0)
	p.freeze()
	if err := echo(c, 200*time.Millisecond); err == nil {
		t.Error("frozen, and something passed")
	}
	p.thaw()
	if err := echo(dial(), 10*time.Second); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
	c = dial()
	if err := echo(c, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	p.cut()
	if err := echo(c, 10*time.Second); err == nil {
		t.Error("cut, and something passed")
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
