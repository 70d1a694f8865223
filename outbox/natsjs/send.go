package natsjs

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/outbox"
)

// inFlight is how many events of one Send the broker may have without an acknowledgement.
const inFlight = 256

// Send implements outbox.Sink. In mode jetstream an event's result is nil once the broker has acknowledged it: it is stored, or
// was before. What is too large for the broker or the stream is marked by outbox.Permanent. A subject that the stream does not
// take, or that this user may not publish to, is an error of that event, which spends an attempt. Everything else, a full
// stream and a missing one among it, is marked by outbox.Unavailable. In mode core a result is nil once the broker has read the event.
//
// The first call connects. It returns when ctx ends, or a few seconds after while a connection is being made.
func (b *Bus) Send(ctx context.Context, evs []events.Event) []error {
	errs := make([]error, len(evs))
	if len(evs) == 0 {
		return errs
	}
	nc, js, err := b.conn(ctx)
	if err == nil && b.cfg.Mode == JetStream {
		err = b.prepare(ctx, js)
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	out := make([]*nats.Msg, len(evs))
	all := make([]int, len(evs))
	for i, e := range evs {
		out[i], all[i] = encode(e, b.cfg.Source, b.cfg.Now(), b.cfg.Subject+"."+e.Name), i
	}
	if b.cfg.Mode == Core {
		b.sendCore(ctx, nc, out, errs)
	} else {
		b.publish(ctx, nc, js, out, all, errs)
		b.publishAgain(ctx, nc, js, out, errs)
	}
	sent := 0
	for i, err := range errs {
		if err == nil {
			sent++
			continue
		}
		errs[i] = b.classify(err)
	}
	b.metrics.sent.Add(ctx, int64(sent))
	return errs
}

// prepare looks at the stream, once for each connection.
func (b *Bus) prepare(ctx context.Context, js jetstream.JetStream) error {
	if b.ready.Load() {
		return nil
	}
	_, err := b.ensureStream(ctx, js)
	switch {
	case errors.Is(err, errDenied): // who may publish need not be one who may administer
		if b.told.First("denied") {
			b.cfg.Logger.WarnContext(ctx, "no right to look at the NATS stream, or to make it; sending without",
				attrs("stream", b.cfg.Stream, "error", err.Error())...)
		}
	case err != nil:
		return err
	}
	b.ready.Store(true)
	return nil
}

// flight is a message on its way.
type flight struct {
	i      int
	future jetstream.PubAckFuture
	denied <-chan struct{}
	stop   func()
}

// publish sends the messages of those indices and waits for each acknowledgement. Once there is no answer, or no connection, the
// others are not tried.
func (b *Bus) publish(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, out []*nats.Msg, which []int, errs []error) {
	var flying []flight
	var away error
	land := func() {
		f := flying[0]
		flying = flying[1:]
		errs[f.i] = b.land(ctx, nc, f)
		if away == nil && gone(errs[f.i]) {
			away = errs[f.i]
		}
	}
	for _, i := range which {
		if len(flying) == inFlight {
			land()
		}
		if away == nil {
			away = context.Cause(ctx)
		}
		if errs[i] = away; away != nil {
			continue
		}
		f := flight{i: i}
		f.denied, f.stop = b.denied.watch(out[i].Subject)
		if f.future, errs[i] = js.PublishMsgAsync(out[i], jetstream.WithExpectStream(b.cfg.Stream)); errs[i] != nil {
			f.stop()
			if errs[i] = tooLarge(nc, out[i], errs[i]); !outbox.IsPermanent(errs[i]) {
				away = errs[i] // it could not be written
			}
			continue
		}
		flying = append(flying, f)
	}
	for len(flying) > 0 {
		land()
	}
}

// land waits for what the broker says.
func (b *Bus) land(ctx context.Context, nc *nats.Conn, f flight) error {
	defer f.stop()
	select {
	case ack := <-f.future.Ok():
		if ack.Duplicate {
			b.metrics.duplicates.Add(ctx, 1)
		}
		return nil
	case err := <-f.future.Err():
		if last := nc.LastError(); last != nil && errors.Is(err, jetstream.ErrAsyncPublishTimeout) {
			return fmt.Errorf("%w (the last error of the connection: %w)", err, last)
		}
		return err
	case <-f.denied:
		return errDenied
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publishAgain is for events to which no stream answered, or another one: if the stream is gone it is made, and they are tried
// once more; those whose subject it does not take have an error of their own.
func (b *Bus) publishAgain(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, out []*nats.Msg, errs []error) {
	var again []int
	for i, err := range errs {
		if unanswered(err) {
			again = append(again, i)
		}
	}
	if len(again) == 0 {
		return
	}
	s, err := b.ensureStream(ctx, js)
	var retry []int
	for _, i := range again {
		switch {
		case err != nil:
			errs[i] = err
		case !covered(s.CachedInfo().Config.Subjects, out[i].Subject):
			errs[i] = fmt.Errorf("%w: %s", errNotTaken, out[i].Subject)
		default:
			retry = append(retry, i)
		}
	}
	b.publish(ctx, nc, js, out, retry, errs)
}

// sendCore sends messages and asks the broker whether it has read them.
func (b *Bus) sendCore(ctx context.Context, nc *nats.Conn, out []*nats.Msg, errs []error) {
	before := nc.LastError()
	denied := make([]<-chan struct{}, len(out))
	for i, m := range out {
		var stop func()
		denied[i], stop = b.denied.watch(m.Subject)
		defer stop()
		if err := nc.PublishMsg(m); err != nil {
			errs[i] = tooLarge(nc, m, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.times.ack)
	defer cancel()
	err := nc.FlushWithContext(ctx)
	if after := nc.LastError(); err == nil && after != before && errors.Is(after, nats.ErrPermissionViolation) { //nolint:errorlint // it is another one of the same kind
		b.denied.noted(ctx, nc)
	}
	for i := range out {
		select {
		case <-denied[i]:
			errs[i] = errDenied
		default:
			if errs[i] == nil {
				errs[i] = err
			}
		}
	}
}
