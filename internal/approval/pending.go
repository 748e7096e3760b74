package approval

import "sync"

// pending caches the pending requests, for comparison with each new one. The store has their
// content.
type pending struct {
	mu sync.Mutex
	// asked maps each asker's pending digests to the ids of the requests.
	asked map[asker]map[string]string
}

// asker counts requests: for each agent, each kind on its own. Somebody who writes to an agent, and
// so causes escalations, must not use up the places of the agent's own requests.
type asker struct{ kind, agent string }

func (p *pending) put(kind, agent, asked, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.putLocked(asker{kind, agent}, asked, id)
}

func (p *pending) putLocked(whose asker, asked, id string) {
	if p.asked[whose] == nil {
		p.asked[whose] = make(map[string]string)
	}
	p.asked[whose][asked] = id
}

// Waiting returns the pending request of a kind for the same thing that an agent asks, or "". It
// computes the digest only if the agent has pending requests.
func (p *pending) Waiting(kind, agent string, asked func() string) string {
	whose := asker{kind, agent}
	p.mu.Lock()
	some := len(p.asked[whose]) > 0
	p.mu.Unlock()
	if !some {
		return ""
	}
	// Hash a long text outside the lock that all agents share.
	what := asked()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[whose][what]
}

// Room reports whether a request is new and within the limit.
func (p *pending) Room(kind, agent, asked string, limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.asked[asker{kind, agent}]
	return mine[asked] == "" && len(mine) < limit
}

// Reserve takes a place for a request, unless its agent has reached the limit for its kind. A
// request that is not made gives it back with [pending.Free].
func (p *pending) Reserve(r *Request, limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	whose := asker{r.Kind, r.Agent}
	if len(p.asked[whose]) >= limit {
		return false
	}
	p.putLocked(whose, r.Asked, r.ApprovalID)
	return true
}

// Free gives a place back, when a request is decided or was never recorded.
func (p *pending) Free(r *Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	whose := asker{r.Kind, r.Agent}
	if delete(p.asked[whose], r.Asked); len(p.asked[whose]) == 0 {
		delete(p.asked, whose)
	}
}

// Count returns the number of pending requests.
func (p *pending) Count() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mine := range p.asked {
		n += len(mine)
	}
	return n
}
