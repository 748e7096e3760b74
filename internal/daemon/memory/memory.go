// Package memory returns the memory of a burst of work to the system; otherwise the Go
// runtime and caches keep it for the next burst.
package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// Every is the interval of checks.
	Every = 5 * time.Second
	// busy is how much is allocated between two checks while there is work. worth is from
	// how much on it pays to return the rest of a burst.
	busy  = 16 << 20
	worth = 64 << 20
	// rest is how little is allocated between two checks when there is no work. worthAtRest
	// is from how much on it pays then: work after a burst, such as the catching up of the
	// index, is done too, and nobody waits.
	rest        = 64 << 10
	worthAtRest = 4 << 20
	// idlePercent is the permitted growth of the heap between two collections when there is
	// little to do, because collections cost nobody anything then.
	idlePercent = 50
)

// Options are the inputs of [GiveBack].
type Options struct {
	// Looks says when to check whether a burst is over.
	Looks <-chan time.Time
	// Shrink is called first, to shrink caches.
	Shrink func()
	// BusyPercent is the permitted growth of the heap while there is work. Zero always
	// leaves the setting to the operator.
	BusyPercent int
}

// Return returns the memory that is not in use, and the pages of the program.
func Return() {
	runtime.GC() // pools keep their content over one collection
	debug.FreeOSMemory()
	unmapProgram()
}

// GiveBack returns memory after each burst, until the context ends.
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
			Return()
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

// keeper knows how much the program had allocated in total at the last check, and when it
// last returned memory.
type keeper struct{ last, given uint64 }

// seen is the result of a check.
type seen uint8

const (
	nothing seen = iota
	// burst: there is work.
	burst
	// over: a burst is over and has left memory behind.
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
