package main

import (
	"fmt"
	"slices"
)

// The crowd are more subscribers of every event, for numbers: each publish makes a delivery for each of them, and what they do
// costs little. They nearly always succeed, and those that will do not read their row first. All else, and how they are
// judged, is as with the others.

// mostCrowd is how many there may be: judgeState has a bit for each subscriber.
const mostCrowd = 40

// Each one makes room for more: a process must not hand on most of an event's deliveries, and some events must be waiting.
const (
	crowdConcurrency = 2
	crowdBacklog     = 75
)

// Of so many deliveries of the crowd's, one goes as the others' do; the rest succeed at once.
const calm = 20

// withCrowd returns the application's subscribers and n more.
func withCrowd(n int) []subscriber {
	all := slices.Clone(subscribers)
	for i := range n {
		all = append(all, subscriber{key: fmt.Sprintf("crowd.%02d", i+1), pattern: "shop.", slow: 1, crowd: true})
	}
	return all
}

// knownKeys are all keys there can be.
var knownKeys = func() map[string]subscriber {
	known := map[string]subscriber{}
	for _, s := range withCrowd(mostCrowd) {
		known[s.key] = s
	}
	return known
}()
