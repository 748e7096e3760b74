package hooks

import (
	"context"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/hangup"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// exemptFor is the longest time that a caller may use one exemption. After it the daemon checks
// grant, program and configuration anew, in case it missed a change.
const exemptFor = time.Minute

// Exemptions lists the connections whose callers need not ask about tool calls. A change that could
// end an exemption closes these connections before it is acknowledged. A Unix socket shows its end
// to the other side at once, so the daemon waits for nobody.
type Exemptions struct {
	mu  sync.Mutex
	all map[*hangup.Ending]struct{}
}

// enter adds a connection, and reports whether it is new.
func (x *Exemptions) enter(ctx context.Context, e *hangup.Ending) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, again := x.all[e]; again {
		return false
	}
	if x.all == nil {
		x.all = make(map[*hangup.Ending]struct{})
	}
	x.all[e] = struct{}{}
	// A connection that is ending must not stay open, since its caller relies on it.
	context.AfterFunc(ctx, func() {
		e.HangUp()
		x.leave(e)
	})
	return true
}

func (x *Exemptions) leave(e *hangup.Ending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, e)
}

// End closes all exempted connections, so that their callers ask again. Code that changes the
// conditions of exemptions calls it after the change and before the answer. It blocks on nothing
// but its own lock.
func (x *Exemptions) End() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for e := range x.all {
		e.HangUp()
	}
	clear(x.all)
}

// Caller asks about the tool calls of an agent.
type Caller struct {
	Agent *directory.Agent
	Peer  api.Peer
	// Process is the caller's claim about its process id. Behind a forwarder, which would then be
	// the process at the other end of the socket, it would notice the end of a connection late.
	Process int
	// Lasts is the end of the caller's grant, zero for a caller that must ask about each call.
	// Still checks again whether the caller may speak under the same rules.
	Lasts time.Time
	Still func(context.Context) bool
}

// ExemptUntil returns the time until which a caller need not ask about tool calls, unless its
// connection ends before, or 0 if it must ask.
func (h *Hooks) ExemptUntil(ctx context.Context, x *Exemptions, c *Caller, rules *Rules) int64 {
	e := hangup.Of(ctx)
	if _, _, pid := c.Peer.Credentials(); e == nil || c.Process == 0 || int64(c.Process) != int64(pid) || c.Lasts.IsZero() || !h.exempt(c.Agent, rules) {
		return 0
	}
	// The connection is entered before the checks, so that any change after them closes it.
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

// exempt reports whether any tool call of an agent would be allowed without a record: its calls are
// not recorded, nobody intercepts or observes them, and nothing is paused.
func (h *Hooks) exempt(agent *directory.Agent, rules *Rules) bool {
	return agent.Tools == directory.ToolsOff && !rules.Terms.Requires() && len(h.o.Apps.Listeners(api.ToolExecuting)) == 0 && h.paused(agent, "") == nil
}
