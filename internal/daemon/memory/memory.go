// Package memory gives back to the system what a burst of work has left behind: the
// runtime keeps it for the next burst, and so do caches.
package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// Every is how often to look.
	Every = 5 * time.Second
	// busy is how much is allocated between two looks where there is work to do, and
	// worth from how much on it is worth it to give back what is left of it.
	busy  = 16 << 20
	worth = 64 << 20
	// rest is how little is allocated between two looks where nothing is left to do, and
	// worthAtRest from how much on it is worth it then: what follows a burst, as the index
	// that catches up, is done by then too, and nobody waits.
	rest        = 64 << 10
	worthAtRest = 4 << 20
	// idlePercent is how much the heap may grow between two collections while there is
	// little to do: they cost nobody anything then.
	idlePercent = 50
)

// Options is what memory is given back with.
type Options struct {
	// Looks says when to look whether a burst is over.
	Looks <-chan time.Time
	// Shrink is called first, for what is kept in caches.
	Shrink func()
	// BusyPercent is how much the heap may grow while there is work to do. Zero leaves
	// that to the operator at all times.
	BusyPercent int
}

// GiveBack gives memory back once a burst is over, until the context ends.
func GiveBack(ctx context.Context, o Options) {
	var k keeper
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.Looks:
		}
		switch k.look(allocated()) {
		case burst:
			o.grow(o.BusyPercent)
		case over:
			o.grow(idlePercent)
			o.Shrink()
			runtime.GC() // pools keep what they have over one collection
			debug.FreeOSMemory()
			UnmapProgram()
			k.given = allocated()
		case nothing:
		}
	}
}

func (o *Options) grow(percent int) {
	if o.BusyPercent > 0 {
		debug.SetGCPercent(percent)
	}
}

// keeper knows how much had been allocated, since the program began, when it looked
// last and when it last gave something back.
type keeper struct{ last, given uint64 }

// seen is what a look shows.
type seen uint8

const (
	nothing seen = iota
	// burst: there is work to do.
	burst
	// over: a burst is over that left something behind.
	over
)

func (k *keeper) look(allocated uint64) seen {
	more := allocated - k.last
	k.last = allocated
	switch {
	case more >= busy:
		return burst
	case allocated-k.given >= worth, more < rest && allocated-k.given >= worthAtRest:
		return over
	}
	return nothing
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
