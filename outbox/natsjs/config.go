package natsjs

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/openloam/loam/outbox"
)

// Mode is what of NATS is used.
type Mode string

const (
	// JetStream stores what is sent: an event is done when the broker has acknowledged it, and a consumer that was away gets
	// it later.
	JetStream Mode = "jetstream"
	// Core stores nothing: an event is done when it is on its way, and who does not listen at that moment never gets it.
	Core Mode = "core"
)

// The defaults of Config.
const (
	DefaultStream  = "LOAM_EVENTS"
	DefaultSubject = "loam.events"
)

// Config says how a Bus works. Only Service is required.
type Config struct {
	// Service is the name of this service: 1 to 64 of A-Z, a-z, 0-9, _ and -. Processes that share it share the work, each
	// service gets every event. It names the durable consumer, or the queue group: changed, it is another service.
	Service string
	// URL is the broker's, or several separated by commas. Defaults to nats://127.0.0.1:4222.
	URL string
	// Options are those of nats.go: TLS, credentials, nkeys, handlers. Reconnecting for ever and the URL are set after them.
	Options []nats.Option
	// Mode is JetStream or Core. Defaults to JetStream.
	Mode Mode
	// Source is what the events say that they come from: a URI reference. Defaults to "/" and Service.
	Source string
	// Stream is the name of the stream, made if it is not there: 1 to 64 of A-Z, a-z, 0-9, _ and -. Defaults to LOAM_EVENTS.
	Stream string
	// Subject is what the subjects of events begin with; the event's name follows. Words of A-Z, a-z, 0-9, _ and -, separated by
	// dots, at most 200 bytes. Defaults to loam.events.
	Subject string
	// AckWait is how long the broker waits for a process of this service that has died until another gets its messages. One that
	// lives extends it. At least a second; defaults to 60 s.
	AckWait time.Duration
	// Now is the clock of what events say. Defaults to time.Now.
	Now func() time.Time
	// Logger gets log lines, never with a payload. Defaults to slog.Default().
	Logger *slog.Logger
	// MeterProvider makes the counters. Defaults to OpenTelemetry's global one.
	MeterProvider metric.MeterProvider
}

// maxSubjectBytes keeps subject and event name well within the 4,096 bytes that a server allows to a line of its protocol.
const maxSubjectBytes = 200

var (
	nameRE    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	subjectRE = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
)

func (c *Config) fill() {
	c.URL = cmp.Or(c.URL, nats.DefaultURL)
	c.Mode = cmp.Or(c.Mode, JetStream)
	c.Source = cmp.Or(c.Source, "/"+c.Service)
	c.Stream = cmp.Or(c.Stream, DefaultStream)
	c.Subject = cmp.Or(c.Subject, DefaultSubject)
	c.AckWait = cmp.Or(c.AckWait, 60*time.Second)
	c.Options = slices.Clone(c.Options)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
}

// validate reports every mistake at once.
func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("natsjs: "+format, args...)) }
	const name = "must be 1 to 64 of A-Z, a-z, 0-9, _ and -"
	if !nameRE.MatchString(c.Service) {
		bad("Service: %.80q %s", c.Service, name)
	}
	for i, text := range c.addresses() {
		if !validURL(text) { // which may have a password in it, and is not shown
			bad("URL: address %d must be nats://, tls://, ws:// or wss:// with a host, or host:port", i+1)
		}
	}
	if c.Mode != JetStream && c.Mode != Core {
		bad("Mode: %.80q must be %s or %s", c.Mode, JetStream, Core)
	}
	if _, err := url.Parse(c.Source); err != nil || strings.ContainsAny(c.Source, " \t\r\n") {
		bad("Source: %.80q must be a URI reference, like /billing", c.Source)
	}
	if !nameRE.MatchString(c.Stream) {
		bad("Stream: %.80q %s", c.Stream, name)
	}
	if !subjectRE.MatchString(c.Subject) || len(c.Subject) > maxSubjectBytes {
		bad("Subject: %.80q must be words of A-Z, a-z, 0-9, _ and -, separated by dots, at most %d bytes", c.Subject, maxSubjectBytes)
	}
	if strings.HasPrefix(c.Subject, "$") || strings.HasPrefix(c.Subject, "_INBOX") {
		bad("Subject: %.80q is one of NATS's own", c.Subject)
	}
	if c.AckWait < time.Second {
		bad("AckWait: %v must be at least 1s", c.AckWait)
	}
	for i, o := range c.Options {
		if o == nil {
			bad("Options: number %d is nil", i+1)
		}
	}
	return errors.Join(errs...)
}

func (c *Config) addresses() []string {
	all := strings.Split(c.URL, ",")
	for i, text := range all {
		all[i] = strings.TrimSpace(text)
	}
	return all
}

// validURL reports whether nats.go can read an address; it takes one without a scheme.
func validURL(text string) bool {
	if !strings.Contains(text, "://") {
		text = "nats://" + text
	}
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" && slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme)
}

// The environment variables that FromEnv reads.
const (
	BackendEnv = "EVENT_BUS_BACKEND"
	ModeEnv    = "NATS_MODE"
	URLEnv     = "NATS_URL"
)

// FromEnv makes the Bus that a program's environment asks for, of cfg: EVENT_BUS_BACKEND is db (no bus: nil, which is what
// Config.Bus of the engine has by default) or nats, NATS_MODE is jetstream or core, NATS_URL the broker's URL. What is empty
// leaves cfg as it is; EVENT_BUS_BACKEND defaults to db. getenv is os.Getenv in a program: Loam reads no environment by itself.
func FromEnv(cfg Config, getenv func(string) string) (outbox.Bus, error) {
	switch backend := getenv(BackendEnv); backend {
	case "", "db":
		return nil, nil
	case "nats":
	default:
		return nil, fmt.Errorf("natsjs: %s: %.80q must be db or nats", BackendEnv, backend)
	}
	if mode := Mode(getenv(ModeEnv)); mode != "" {
		if mode != JetStream && mode != Core {
			return nil, fmt.Errorf("natsjs: %s: %.80q must be %s or %s", ModeEnv, mode, JetStream, Core)
		}
		cfg.Mode = mode
	}
	cfg.URL = cmp.Or(getenv(URLEnv), cfg.URL)
	b, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return b, nil
}
