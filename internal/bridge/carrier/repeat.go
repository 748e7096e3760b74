package carrier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Waits are the times before a further attempt: doubled each time, and lengthened by up to a half at
// random, so that many hosts do not come back together.
type Waits struct{ next time.Duration }

// The last wait is short enough that all messages have their receipts soon after the end of an outage.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = 4 * time.Second
)

// Reset begins again with the first wait.
func (w *Waits) Reset() { w.next = 0 }

// Wait waits for the next of the times, and reports whether the context still lasts.
func (w *Waits) Wait(ctx context.Context) bool {
	w.next = min(max(2*w.next, firstWait), lastWait)
	over := time.NewTimer(w.next + rand.N(w.next/2)) //nolint:gosec // it spreads attempts
	defer over.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-over.C:
		return true
	}
}

// steady is how long a connection lasts that is a good one. After a shorter one the waits go on growing: a
// broker that ends each connection at once would otherwise have the daemon offer everything again all the time.
const steady = time.Minute

// maxText bounds the reason that is said, in bytes: a broker makes texts up.
const maxText = 1000

// Repeat makes one connection after another until the context ends, and tells a person of each new reason
// why there is none. Once reports whether its connection was made, and why it has ended. An error that is
// final ends Repeat, and is returned.
func Repeat(ctx context.Context, what string, final error, say func(format string, args ...any), once func() (made bool, err error)) error {
	var again Waits
	said := ""
	for {
		long := time.NewTimer(steady)
		made, err := once()
		// Stop does not tell: it reports true for a time that is over too, while nobody has received it.
		select {
		case <-long.C:
			if made {
				again.Reset()
				said = ""
			}
		default:
			long.Stop()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, final):
			return err
		}
		if why := fmt.Sprint(err); why != said {
			say("%s: %.*s", what, maxText, why)
			said = why
		}
		if !again.Wait(ctx) {
			return nil
		}
	}
}
