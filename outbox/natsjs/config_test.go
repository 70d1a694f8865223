package natsjs_test

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/openloam/loam/outbox/natsjs"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every mistake of a Config is reported at once, each with the field and what is allowed; a password in a URL is not shown.
func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	_, err := natsjs.New(natsjs.Config{
		Service: "bil.ling", URL: "http://u:secret@x, nats://", Mode: "push", Source: "a b", Stream: "LOAM.*", Subject: "loam.>", AckWait: time.Millisecond, Options: []nats.Option{nil},
	})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		`Service: "bil.ling" must be 1 to 64 of A-Z, a-z, 0-9, _ and -`, "URL: address 1 must be nats://", "URL: address 2 must be", `Mode: "push" must be jetstream or core`,
		`Source: "a b" must be a URI reference`, `Stream: "LOAM.*" must be`, `Subject: "loam.>" must be words`, "Options: number 1 is nil", "AckWait: 1ms must be at least 1s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in the message: %v", err)
	}
	for _, c := range []natsjs.Config{
		{},
		{Service: strings.Repeat("a", 65)},
		{Service: "ä"},
		{Service: "a b"},
		{Service: "a", Subject: strings.Repeat("a", 201)},
		{Service: "a", Subject: "loam..x"},
		{Service: "a", Subject: "$JS.API"},
		{Service: "a", Subject: "_INBOX.x"},
		{Service: "a", Stream: strings.Repeat("S", 65)},
	} {
		if _, err := natsjs.New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	for _, c := range []natsjs.Config{
		{Service: "a"}, {Service: "Billing_2-b", URL: "localhost:4222, tls://user:secret@nats.example:4443", Subject: "a.B_c.d-e"}, {Service: "a", Mode: natsjs.Core, Source: "urn:x:y"},
	} {
		if _, err := natsjs.New(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What the environment asks for.
//
// contract: O-05, N-05
func TestFromEnv(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ backend, mode, url, err string }{
		{"", "", "", ""},
		{"db", "core", "", ""}, // the others are not looked at
		{"nats", "", "", ""},
		{"nats", "core", "nats://127.0.0.1:1", ""},
		{"nats", "jetstream", "tls://x:1", ""},
		{"NATS", "", "", `EVENT_BUS_BACKEND: "NATS" must be db or nats`},
		{"nats", "push", "", `NATS_MODE: "push" must be jetstream or core`},
		{"nats", "", "http://x", "URL: address 1 must be nats://"},
	} {
		env := map[string]string{natsjs.BackendEnv: c.backend, natsjs.ModeEnv: c.mode, natsjs.URLEnv: c.url}
		bus, err := natsjs.FromEnv(natsjs.Config{Service: "billing"}, func(key string) string { return env[key] })
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || bus != nil {
				t.Errorf("%+v: %v, %v", c, bus, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		case (bus != nil) != (c.backend == "nats"): // no typed nil either
			t.Errorf("%+v: the bus is %v", c, bus)
		}
	}
}

// A bus that is made, and closed, connects to nothing.
//
// contract: O-05
func TestNothingConnectsBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan bool, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = c.Close()
		}
		came <- err == nil
	}()
	s := newSender(t, "nats://"+l.Addr().String())
	if errs := s.Send(t.Context(), nil); len(errs) != 0 {
		t.Errorf("%v", errs)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_ = l.Close()
	if <-came {
		t.Error("it connected")
	}
}
