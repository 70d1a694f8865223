package natsjs

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/openloam/loam/outbox"
)

// Error codes of JetStream that nats.go has no name for.
const (
	codeOtherStream    jetstream.ErrorCode = 10060 // the subject is another stream's
	codeStoreFailed    jetstream.ErrorCode = 10077 // the stream is full, or its disk
	codeHeaderTooLarge jetstream.ErrorCode = 10097
	codeAccountFull    jetstream.ErrorCode = 10002
	codeMemoryFull     jetstream.ErrorCode = 10028
	codeStorageFull    jetstream.ErrorCode = 10047
)

// errNotTaken is a subject that no part of the stream's subjects matches.
var errNotTaken = errors.New("the stream does not take the subject")

// classify marks why an event was not sent. Only what is certainly the event's own may spend its attempts, or none of them: by
// mistake an outage would dead-letter rows.
func (b *Bus) classify(err error) error {
	switch code := apiCode(err); {
	case outbox.IsPermanent(err), outbox.IsUnavailable(err):
		return err
	case errors.Is(err, errDenied), errors.Is(err, errNotTaken):
		return err
	case code == jetstream.JSErrCodeStreamMessageExceedsMaximum, code == codeHeaderTooLarge:
		return outbox.Permanent(fmt.Errorf("stream %s refuses the event: %w", b.cfg.Stream, err))
	case code == codeStoreFailed, code == codeAccountFull, code == codeMemoryFull, code == codeStorageFull:
		return outbox.Unavailable(fmt.Errorf("stream %s is full, or its broker; raise its limits (nats stream edit %s) or make room: %w", b.cfg.Stream, b.cfg.Stream, err))
	case code != 0:
		return outbox.Unavailable(fmt.Errorf("stream %s: %w", b.cfg.Stream, err))
	default:
		return outbox.Unavailable(fmt.Errorf("send to NATS: %w", err))
	}
}

// apiCode is the code of an error that JetStream answered, or 0.
func apiCode(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// gone reports whether err says that there is no answer to be had, whatever the event.
func gone(err error) bool {
	for _, e := range []error{
		jetstream.ErrAsyncPublishTimeout, nats.ErrDisconnected, nats.ErrConnectionClosed, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		nats.ErrConnectionDraining, jetstream.ErrJetStreamPublisherClosed, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// unanswered reports whether the stream may be missing.
func unanswered(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || apiCode(err) == codeOtherStream
}

// tooLarge marks the error of a message that is larger than the broker's limit: none will take it.
func tooLarge(nc *nats.Conn, m *nats.Msg, err error) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		return outbox.Permanent(fmt.Errorf("the event has %d bytes with its headers, the broker takes at most %d: %w", m.Size(), nc.MaxPayload(), err))
	}
	return err
}
