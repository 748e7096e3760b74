package mcpproxy

import (
	"context"
	"sync"
)

// crew is work in progress. Its goroutines take further work once they are done, because a new goroutine has to
// grow its stack again in every call.
type crew struct {
	sync.WaitGroup
	// jobs takes work for goroutines that have none.
	jobs chan func()
}

// work runs a function beside its caller. Goroutines without work remain until the context ends.
func (c *crew) work(ended context.Context, f func()) {
	select {
	case c.jobs <- f:
		return
	default:
	}
	c.Go(func() {
		for {
			f()
			select {
			case f = <-c.jobs:
			case <-ended.Done():
				return
			}
		}
	})
}
