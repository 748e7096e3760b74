package hooks

import (
	"context"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/ending"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// exemptFor is how long a caller may go by one exemption: after it the daemon checks grant, program
// and configuration anew, whatever has been overlooked in between.
const exemptFor = time.Minute

// Exemptions are the connections whose callers were told that they need not ask about tool
// calls. Whatever could change that ends these connections before it is acknowledged: a Unix
// socket shows its end to the other side at once, so that nobody has to be waited for.
type Exemptions struct {
	mu  sync.Mutex
	all map[*ending.Ending]struct{}
}

// enter adds a connection, and reports whether it is new.
func (x *Exemptions) enter(ctx context.Context, e *ending.Ending) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, again := x.all[e]; again {
		return false
	}
	if x.all == nil {
		x.all = make(map[*ending.Ending]struct{})
	}
	x.all[e] = struct{}{}
	// A connection that is ending is not open for another moment to who goes by it.
	context.AfterFunc(ctx, func() {
		e.HangUp()
		x.leave(e)
	})
	return true
}

func (x *Exemptions) leave(e *ending.Ending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, e)
}

// End has everybody ask again. Who changes what exemptions depend on calls it after the change
// and before the answer. It blocks on nothing but its own lock.
func (x *Exemptions) End() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for e := range x.all {
		e.HangUp()
	}
	clear(x.all)
}

// Caller is who asks about the tool calls of an agent.
type Caller struct {
	Agent *directory.Agent
	Peer  api.Peer
	// Process is what the caller says it is: behind a forwarder, which is the process at the other
	// end of the socket then, the end of a connection would be seen late.
	Process int
	// Lasts is when the caller's grant ends, zero for who is asked about each call, and Still looks
	// again whether the caller may speak by the same rules.
	Lasts time.Time
	Still func(context.Context) bool
}

// ExemptUntil is until when a caller need not ask about tool calls, unless its connection ends
// before that, 0 where it has to ask.
func (h *Hooks) ExemptUntil(ctx context.Context, x *Exemptions, c *Caller, rules *Rules) int64 {
	e := ending.Of(ctx)
	if _, _, pid := c.Peer.Credentials(); e == nil || c.Process == 0 || int64(c.Process) != int64(pid) || c.Lasts.IsZero() || !h.exempt(c.Agent, rules) {
		return 0
	}
	// First the connection is entered, then all is looked at: what changes after the look ends
	// the connection.
	first := x.enter(ctx, e)
	if !c.Still(ctx) || !h.exempt(c.Agent, rules) {
		if first {
			x.leave(e)
		}
		return 0
	}
	until := h.o.Now().Add(exemptFor)
	if c.Lasts.Before(until) {
		until = c.Lasts
	}
	return until.UnixMilli()
}

// exempt reports whether each tool call of an agent would be let through unrecorded, whatever it
// says: calls are not recorded, nobody intercepts or observes them, and nothing is paused.
func (h *Hooks) exempt(agent *directory.Agent, rules *Rules) bool {
	return agent.Tools == directory.ToolsOff && !rules.Terms.Requires() && len(h.o.Apps.Listeners(api.ToolExecuting)) == 0 && h.paused(agent, "") == nil
}
