package natsjs

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

const handingOut = "handing out messages of the stream"

// every calls f three times in the time that the broker waits for an answer, until ctx ends.
func (c *consuming) every(ctx context.Context, f func(context.Context, *source)) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return
	}
	for {
		timer := time.NewTimer(c.from.Load().patience / 3)
		select {
		case <-timer.C:
			f(ctx, c.from.Load())
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// extend tells the broker that what is held is being worked on: a message that waits because the database is away spends no
// delivery. It waits for no answer, and so is never late.
func (c *consuming) extend(ctx context.Context, _ *source) {
	for _, msg := range c.hold.unanswered() {
		if err := msg.InProgress(); err != nil { // or it was answered just now
			c.cfg.Logger.DebugContext(ctx, "message not extended", slog.Any("error", err))
		}
	}
}

// watch logs when the broker holds messages back because too many are not answered, and nothing new was handed out since the last
// look.
func (c *consuming) watch(ctx context.Context, s *source) {
	info, err := s.consumer.Info(ctx)
	if err != nil { // the broker is away, which pull says
		return
	}
	before := c.handedOut
	c.handedOut = info.Delivered.Stream
	switch most := info.Config.MaxAckPending; {
	case most > 0 && info.NumAckPending >= most && info.NumPending > 0 && c.handedOut == before:
		c.full.Failed(ctx, c.cfg.Logger, handingOut, fmt.Errorf(
			"consumer %s of stream %s has handed out %d messages that are not answered, the most it may (max_ack_pending); %d others wait",
			info.Name, info.Stream, info.NumAckPending, info.NumPending))
	case info.NumAckPending < most:
		c.full.Succeeded(ctx, c.cfg.Logger, handingOut)
	}
}

// giveBack has what is left come again at once, elsewhere, and sends the last answers. If the database is away here it is so
// elsewhere too: then it comes again when its time is over, which costs fewer deliveries.
func (c *consuming) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWait)
	defer cancel()
	nc, _, err := c.conn(ctx)
	if err != nil {
		return
	}
	if !c.hold.isAway() {
		for _, msg := range c.hold.unanswered() {
			_ = msg.Nak() // else it comes when its time is over
		}
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		c.cfg.Logger.DebugContext(ctx, "the last answers may not have arrived", slog.Any("error", err))
	}
}
