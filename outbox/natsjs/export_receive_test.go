package natsjs

import "time"

// Backoff sets how long after delivery n a message comes again.
func (b *Bus) Backoff(f func(n int) time.Duration) { b.limits.backoff = f }

// FetchBytes sets how much is fetched at once at most.
func (b *Bus) FetchBytes(n int) { b.limits.fetchBytes = n }

// Hurry has a bus fetch, and stop, in less time.
func (b *Bus) Hurry() { b.limits.fetchWait, b.limits.stopWait = 200*time.Millisecond, time.Second }

// StopWait sets how long the messages that a process has when it stops are worked on.
func (b *Bus) StopWait(d time.Duration) { b.limits.stopWait = d }
