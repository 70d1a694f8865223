package natsjs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/internal/once"
	"github.com/openloam/loam/outbox"
)

const scope = "github.com/openloam/loam"

// times are the limits of waiting. Tests have shorter ones.
type times struct {
	// connect is how long one address is tried, ack how long the broker may take to acknowledge an event, and api how long it may
	// take to answer a request.
	connect, ack, api time.Duration
	// reconnect is how long after a failed try of nats.go to connect again the next one is made.
	reconnect time.Duration
	// window is for how long the broker knows an event's id.
	window time.Duration
}

var defaultTimes = times{
	connect: 2 * time.Second, ack: 10 * time.Second, api: 5 * time.Second, reconnect: 2 * time.Second,
	window: time.Hour,
}

// Bus is NATS as a bus of events. It is safe for use by several goroutines.
type Bus struct {
	cfg     Config
	times   times
	limits  limits
	metrics metrics
	denied  denials
	told    once.Each // warnings

	opening chan struct{} // has room for the one that opens the connection

	mu     sync.Mutex
	nc     *nats.Conn
	js     jetstream.JetStream
	closed bool

	ready   atomic.Bool // the stream was looked at on this connection
	away    atomic.Pointer[time.Time]
	trouble atomic.Pointer[error] // why it is not connected
}

var _ outbox.Bus = (*Bus)(nil)

// New checks cfg and makes a Bus. It does no I/O: the first Send, or Consume, connects.
func New(cfg Config) (*Bus, error) {
	cfg.fill()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Bus{cfg: cfg, times: defaultTimes, limits: defaultLimits, opening: make(chan struct{}, 1)}
	var err error
	if b.metrics, err = newMetrics(cfg.MeterProvider.Meter(scope)); err != nil {
		return nil, fmt.Errorf("natsjs: MeterProvider: %w", err)
	}
	return b, nil
}

// conn returns the connection, which is made when it is asked for first. The error is marked by outbox.Unavailable: there is
// none at the moment. Each call tries until there was one; from then on nats.go connects again by itself, for ever.
func (b *Bus) conn(ctx context.Context) (*nats.Conn, jetstream.JetStream, error) {
	select {
	case b.opening <- struct{}{}:
		defer func() { <-b.opening }()
	case <-ctx.Done():
		return nil, nil, outbox.Unavailable(context.Cause(ctx))
	}
	b.mu.Lock()
	nc, js, closed := b.nc, b.js, b.closed
	b.mu.Unlock()
	if closed {
		return nil, nil, outbox.Unavailable(errors.New("natsjs: the bus is closed"))
	}
	if nc == nil || nc.IsClosed() {
		var err error
		if nc, js, err = b.open(); err != nil {
			return nil, nil, outbox.Unavailable(fmt.Errorf("connect to NATS: %w", err))
		}
	}
	if !nc.IsConnected() {
		err := nats.ErrDisconnected
		if why := b.trouble.Load(); why != nil {
			err = *why
		}
		return nil, nil, outbox.Unavailable(fmt.Errorf("not connected to NATS: %w", err))
	}
	return nc, js, nil
}

// maxPending is what nats.go may have without an acknowledgement. Send has a smaller limit of its own: here those are counted as
// well, until their time is over, that the broker has refused, and they must not keep others back.
const maxPending = 1 << 20

func (b *Bus) open() (*nats.Conn, jetstream.JetStream, error) {
	o := nats.GetDefaultOptions()
	o.Timeout, o.ReconnectWait = b.times.connect, b.times.reconnect
	o.PingInterval = 20 * time.Second // so that a broker that is silently gone is noticed within a minute
	o.FlusherTimeout = b.times.ack    // and one that reads no more holds a Send no longer
	o.Name = b.cfg.Service
	for _, set := range b.cfg.Options {
		if err := set(&o); err != nil {
			return nil, nil, err
		}
	}
	o.Url, o.Servers = "", b.cfg.addresses()
	o.AllowReconnect, o.MaxReconnect = true, -1
	o.RetryOnFailedConnect = false // so that the first error is known here, as it is
	o.IgnoreAuthErrorAbort = true  // credentials that are renewed are found without a restart
	b.handlers(&o)
	nc, err := o.Connect()
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(b.times.api), jetstream.WithPublishAsyncTimeout(b.times.ack),
		jetstream.WithPublishAsyncMaxPending(maxPending))
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		nc.Close()
		return nil, nil, errors.New("natsjs: the bus is closed")
	}
	b.nc, b.js = nc, js
	b.ready.Store(false)
	return nc, js, nil
}

// handlers sets ours, each of which calls the user's. An outage is logged by who suffers from it, not here.
func (b *Bus) handlers(o *nats.Options) {
	log := b.cfg.Logger
	failed, lost, again, back, ended := o.AsyncErrorCB, o.DisconnectedErrCB, o.ReconnectErrCB, o.ReconnectedCB, o.ClosedCB
	note := func(err error) {
		if err != nil {
			b.trouble.Store(&err)
		}
	}
	o.AsyncErrorCB = func(nc *nats.Conn, sub *nats.Subscription, err error) {
		b.denied.note(err)
		log.Debug("the NATS connection has an error", slog.Any("error", err))
		if failed != nil {
			failed(nc, sub, err)
		}
	}
	o.DisconnectedErrCB = func(nc *nats.Conn, err error) {
		note(err)
		log.Debug("disconnected from NATS", slog.Any("error", err))
		if lost != nil {
			lost(nc, err)
		}
	}
	o.ReconnectErrCB = func(nc *nats.Conn, err error) {
		note(err)
		log.Debug("cannot connect to NATS again", slog.Any("error", err))
		if again != nil {
			again(nc, err)
		}
	}
	o.ReconnectedCB = func(nc *nats.Conn) {
		log.Debug("connected to NATS again")
		if back != nil {
			back(nc)
		}
	}
	o.ClosedCB = func(nc *nats.Conn) {
		log.Debug("the NATS connection is closed")
		if ended != nil {
			ended(nc)
		}
	}
}

// Away implements outbox.Bus, by Config.Now.
func (b *Bus) Away() time.Time {
	if since := b.away.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// since notes that the broker is away, or that it is not.
func (b *Bus) since(away bool) {
	if !away {
		b.away.Store(nil)
		return
	}
	now := b.cfg.Now()
	b.away.CompareAndSwap(nil, &now)
}

// closeLimit is how long Close waits for what is on its way.
const closeLimit = 5 * time.Second

// Close sends what is on its way and closes the connection; then the Bus is of no more use. It is called after Send and Consume
// have returned: the engine's Stop does not close the bus.
func (b *Bus) Close() error {
	b.mu.Lock()
	nc := b.nc
	b.nc, b.js, b.closed = nil, nil, true
	b.mu.Unlock()
	if nc == nil {
		return nil
	}
	var err error
	if nc.IsConnected() {
		if err = nc.FlushTimeout(closeLimit); err != nil {
			err = fmt.Errorf("close the NATS connection: %w", err)
		}
	}
	nc.Close()
	return err
}
