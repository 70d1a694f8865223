package main

import (
	"context"
	"time"
)

const (
	watchEvery = 100 * time.Millisecond
	watchLimit = time.Second
)

// watch notes from when to when the database does not answer the parent: somebody restarts the server, which is none of the
// attacks. It returns a function that stops it.
func (a *arena) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for answered, away := time.Now(), false; ; a.wait(ctx, watchEvery) {
			asked := time.Now()
			err := a.ask(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				away = true
				continue
			case away:
				a.away(answered)
			}
			answered, away = asked, false
		}
	}()
	return func() { cancel(); <-ended }
}

func (a *arena) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchLimit)
	defer cancel()
	return a.db.Read().PingContext(ctx)
}
