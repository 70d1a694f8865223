package main

import (
	"context"
	"time"
)

// brokerAttacks are those on the broker, with one.
var brokerAttacks = []attack{
	{"kill the broker", 3, killBroker},
	{"freeze the broker", 2, freezeBroker},
}

// ackPatience is longer than a relay waits for the broker's acknowledgement: then it cannot know what of its events is stored.
const ackPatience = 11 * time.Second

// storing is how long the broker has for what it finds when it wakes up, much shorter than the margin of a lease.
const storing = 50 * time.Millisecond

// killBroker kills it and starts it again, over what it has stored.
func killBroker(ctx context.Context, a *arena) {
	a.broker.attack.Lock()
	defer a.broker.attack.Unlock()
	a.say("kill the broker")
	if a.killTheBroker() {
		a.wait(ctx, time.Duration(a.random(1500))*time.Millisecond)
	}
	a.brokerUp(ctx)
}

func (a *arena) killTheBroker() bool {
	if err := a.broker.kill(); err != nil {
		a.diary.add("v", "the broker has ended by itself:", err)
		return false
	}
	a.count("broker killed")
	return true
}

func (a *arena) brokerUp(ctx context.Context) {
	if err := a.broker.up(ctx); err != nil {
		a.diary.add("v", err)
	}
}

// freezeBroker suspends it for some seconds, in long runs now and then for longer than a relay waits for it: it is neither there
// nor gone. Sometimes it does not wake up. When it does, one process is killed that has waited for its acknowledgement, and does not
// get it: what it has sent is stored, and not marked.
func freezeBroker(ctx context.Context, a *arena) {
	if !canSuspend {
		return
	}
	a.broker.attack.Lock()
	defer a.broker.attack.Unlock()
	took := 500*time.Millisecond + time.Duration(a.random(3500))*time.Millisecond
	if a.length >= time.Minute && a.random(4) == 0 {
		took += ackPatience
	}
	p, err := a.broker.freeze()
	if err != nil {
		a.diary.add("v", "the broker has ended by itself:", err)
		a.brokerUp(ctx)
		return
	}
	a.untilSuspended(ctx, p.Pid)
	a.count("broker frozen")
	a.say("freeze the broker for %v", took)
	a.wait(ctx, took)
	if a.random(4) == 0 {
		a.killTheBroker()
		a.brokerUp(ctx)
		return
	}
	s := a.take()
	if s != nil {
		defer a.putBack(s)
		if err := suspend(s.proc.cmd.Process); err == nil {
			a.untilSuspended(ctx, s.proc.cmd.Process.Pid)
		}
	}
	if err := resume(p); err != nil {
		a.diary.add("v", "the broker cannot be resumed:", err)
	}
	if s != nil {
		a.wait(ctx, storing)
		a.killSlot(s)
	}
}
