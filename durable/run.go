package durable

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/tenant"
)

var (
	// ErrClaimLost is the cause of a handler's context when its claim was lost, or could not be renewed in time.
	ErrClaimLost = errors.New("durable: the claim on this delivery was lost; another process may run it")
	// ErrShutdown is the cause of a handler's context when the engine stops and has waited long enough.
	ErrShutdown = errors.New("durable: the engine is shutting down")
	// ErrTimeout is the cause of a handler's context at its deadline.
	ErrTimeout = errors.New("durable: the handler's time limit is over")
)

// run is one start of a handler, from its claim to its outcome. Its goroutine owns it.
type run struct {
	row     EventDelivery
	sub     Subscriber
	claim   ledger.Claim
	expires time.Time // on the monotonic clock: not renewed by then, the handler is cancelled

	started time.Time // on the engine's clock
	begun   time.Time // on the monotonic clock

	slot *slot

	mu     sync.Mutex
	cancel context.CancelCauseFunc
	expiry *time.Timer
}

// result is what became of a handler.
type result struct {
	err   error
	text  string // describes err
	steer *steering
	stack string
}

// runAll runs each in a goroutine of its own and waits until all have an outcome or are stuck, or ctx ends.
func (d *Deliveries) runAll(ctx context.Context, g grant, runs []*run) {
	settled := make([]<-chan struct{}, len(runs))
	for i, r := range runs {
		r.slot = g[r.row.ID]
		settled[i] = d.launch(ctx, r)
	}
	d.slots.begin(g)
	d.inflight.unreserve(runs)
	for _, s := range settled {
		select {
		case <-s:
		case <-ctx.Done():
			return
		}
	}
}

// launch starts r and returns a channel that is closed when its slot is free again.
func (d *Deliveries) launch(ctx context.Context, r *run) <-chan struct{} {
	hctx := tenant.WithActor(tenant.With(context.WithoutCancel(ctx), r.row.TenantID), "")
	hctx, r.cancel = context.WithCancelCause(hctx)
	d.inflight.add(r)
	r.arm(r.expires)
	if d.cancelled() {
		r.cancel(ErrShutdown)
	}
	settled := make(chan struct{})
	free := sync.OnceFunc(func() {
		d.slots.give(r.slot)
		close(settled)
	})
	d.calls.enter()
	go func() {
		defer d.calls.leave()
		defer free()
		defer d.inflight.remove(r)
		defer r.end()
		d.execute(hctx, r, free)
	}()
	return settled
}

// arm sets the time at which a claim that was not renewed cancels the handler: at once, if it is over.
func (r *run) arm(expires time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.expiry != nil {
		r.expiry.Stop()
	}
	left := time.Until(expires)
	r.expiry = time.AfterFunc(left, func() { r.cancel(ErrClaimLost) })
	if left <= 0 {
		r.cancel(ErrClaimLost)
	}
}

// end frees what the run holds in memory.
func (r *run) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expiry.Stop()
	r.cancel(nil)
}

// execute runs the handler with its deadline and its span, and writes the outcome. free gives the slot back early, when
// the handler is stuck.
func (d *Deliveries) execute(ctx context.Context, r *run, free func()) {
	r.started, r.begun = d.Now(), time.Now()
	switch cause := context.Cause(ctx); { // something came between the claim and the run
	case errors.Is(cause, ErrClaimLost): // its transaction took longer than the lease
		d.write(ctx, r, outcome{kind: lost})
		return
	case cause != nil:
		d.write(ctx, r, outcome{kind: cut})
		return
	}
	if h, ok := r.sub.Handler.(txHandler); ok {
		d.executeTx(ctx, r, h, free)
		return
	}
	ctx, stop := context.WithTimeoutCause(ctx, d.timeout(&r.sub), ErrTimeout)
	defer stop()
	res := await(ctx, d, r, contained(func() result { return d.handle(ctx, r, r.sub.Handler.Handle) }, panicked), free)
	d.slots.returned(r.slot, true)
	d.write(ctx, r, d.decide(context.Cause(ctx), r, res))
}

// await waits for the end of a run that has just begun. One that is stuck is reported, and its slot is freed.
func await[T any](ctx context.Context, d *Deliveries, r *run, ended <-chan T, free func()) T {
	timeout := d.timeout(&r.sub)
	stuck := time.NewTimer(timeout + d.StuckAfter)
	defer stuck.Stop()
	select {
	case end := <-ended:
		return end
	case <-stuck.C:
		free()
		d.metrics.stuck.Add(ctx, 1, subscriberLabel(r.row.SubscriberKey))
		d.Logger.ErrorContext(ctx, "handler is stuck: it has not returned after its deadline; its claim is kept, its slot is free",
			append(r.row.attrs(), slog.Duration("timeout", timeout), slog.Duration("after", d.StuckAfter))...)
		return <-ended
	}
}

// handle calls the handler, within the middlewares, with an event of its own.
func (d *Deliveries) handle(ctx context.Context, r *run, call HandlerFunc) result {
	err := around(d.middleware, &r.row, func(ctx context.Context) error {
		e, err := events.Stored(r.row.EventID, r.row.EventName, r.row.TenantID, []byte(r.row.Payload), r.row.Headers)
		if err != nil {
			return err
		}
		return call(events.InRun(ctx, e, r.row.SubscriberKey), e)
	})(ctx)
	if err == nil {
		return result{}
	}
	return result{err: err, text: errorText(err), steer: steeringOf(err)}
}

func panicked(p *PanicError) result {
	return result{err: p, text: errorText(p), stack: cleanText(string(p.Stack))}
}

// decide turns a handler's result into the outcome of the run; cause is that of the end of its context. What the handler
// asked for comes first; a run that was cut short spends no attempt; a panic always does.
func (d *Deliveries) decide(cause error, r *run, res result) outcome {
	out := outcome{kind: failure, took: time.Since(r.begun), text: res.text, stack: res.stack}
	switch {
	case res.err == nil:
		out.kind = success
	case res.steer != nil:
		out.kind = res.steer.kind
		out.next = d.Now().Add(res.steer.wait)
	case res.stack != "":
	case errors.Is(cause, ErrShutdown):
		out.kind = cut
	case errors.Is(cause, ErrClaimLost):
		out.kind = lost
	}
	return out
}
