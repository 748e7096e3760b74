package attachments

import (
	"context"
	"slices"
	"sync"
)

// turns shares the processors that weigh files. Each agent has one message under way at a time,
// wherever its files are read from. Of these, a few have a turn: the tenants alternate, and within
// a tenant its agents. A turn lasts for about 64 KiB, so that a new message waits only briefly for
// the others.
type turns struct {
	mu   sync.Mutex
	free int
	// waiting are the tenants with waiting messages, the next one first.
	waiting []*tenant
	// under are the agents with a message under way.
	under map[string]*line
}

// tenant holds the waiting messages of one tenant, the next one first.
type tenant struct {
	name string
	line []chan struct{}
}

// line holds the messages that wait for another message of their agent.
type line []chan struct{}

// place is one message's place among the turns. One goroutine uses it.
type place struct {
	t             *turns
	ctx           context.Context
	tenant, agent string
	has           bool
}

// enter waits until no other message of the agent is under way, or returns the error of a context
// that ends first. Without an error the caller must call leave.
func (t *turns) enter(ctx context.Context, of, agent string) (*place, error) {
	p := &place{t: t, ctx: ctx, tenant: of, agent: of + "\x00" + agent}
	t.mu.Lock()
	if t.under == nil {
		t.under = make(map[string]*line)
	}
	behind, busy := t.under[p.agent]
	if !busy {
		t.under[p.agent] = new(line)
		t.mu.Unlock()
		return p, nil
	}
	mine := make(chan struct{})
	*behind = append(*behind, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return p, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(*behind, mine); i >= 0 {
		*behind = slices.Delete(*behind, i, i+1)
	} else {
		p.nextLocked() // its turn came at the same moment
	}
	return nil, ctx.Err()
}

// leave lets the next message of the agent begin.
func (p *place) leave() {
	p.Rest()
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	p.nextLocked()
}

func (p *place) nextLocked() {
	behind := p.t.under[p.agent]
	if len(*behind) == 0 {
		delete(p.t.under, p.agent)
		return
	}
	close((*behind)[0])
	*behind = (*behind)[1:]
}

// Wait waits for a turn (media.Pace).
func (p *place) Wait() error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	t := p.t
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		p.has = true
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	i := slices.IndexFunc(t.waiting, func(one *tenant) bool { return one.name == p.tenant })
	if i < 0 {
		i = len(t.waiting)
		t.waiting = append(t.waiting, &tenant{name: p.tenant})
	}
	of := t.waiting[i]
	of.line = append(of.line, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		p.has = true
		return nil
	case <-p.ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A tenant whose line has become empty is removed from the list, so it may have another line by
	// now.
	for i, one := range t.waiting {
		if j := slices.Index(one.line, mine); j >= 0 {
			if one.line = slices.Delete(one.line, j, j+1); len(one.line) == 0 {
				t.waiting = slices.Delete(t.waiting, i, i+1)
			}
			return p.ctx.Err()
		}
	}
	t.giveLocked() // its turn came at the same moment
	return p.ctx.Err()
}

// Rest ends a turn, if there is one (media.Pace).
func (p *place) Rest() {
	if !p.has {
		return
	}
	p.has = false
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	p.t.giveLocked()
}

// giveLocked gives the turn that has ended to the next message.
func (t *turns) giveLocked() {
	if len(t.waiting) == 0 {
		t.free++
		return
	}
	of := t.waiting[0]
	t.waiting = t.waiting[1:]
	close(of.line[0])
	if of.line = of.line[1:]; len(of.line) > 0 {
		t.waiting = append(t.waiting, of)
	}
}
