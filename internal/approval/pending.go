package approval

import "sync"

// pending is what every new request is compared with: the requests that wait. What
// they are is in the store.
type pending struct {
	mu sync.Mutex
	// asked holds, by who asks, what was asked for and waits, and the id of the
	// request.
	asked map[asker]map[string]string
}

// asker is what a request is counted with: an agent, and each kind by itself. Who
// writes to an agent, and so escalates, must not take the places of what the agent
// asks for.
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

// Waiting returns the request of a kind that waits for what an agent asks, or "".
// The digest of what is asked is made only where something of the agent waits.
func (p *pending) Waiting(kind, agent string, asked func() string) string {
	whose := asker{kind, agent}
	p.mu.Lock()
	some := len(p.asked[whose]) > 0
	p.mu.Unlock()
	if !some {
		return ""
	}
	// The digest of a long text is not for the lock that all agents share.
	what := asked()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[whose][what]
}

// Room reports whether a request is new and there is a place for it.
func (p *pending) Room(kind, agent, asked string, limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.asked[asker{kind, agent}]
	return mine[asked] == "" && len(mine) < limit
}

// Reserve takes a place for a request, unless its agent has as many of its kind
// waiting as may. A request that is not made gives it back with [pending.Free].
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

// Count is how many requests wait.
func (p *pending) Count() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mine := range p.asked {
		n += len(mine)
	}
	return n
}
