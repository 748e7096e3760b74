package attachments

import (
	"sync"

	"github.com/openclawos/ocipd/internal/ocip"
)

// subject is the weighed bytes, and everything else that the findings depend on. It includes the
// tenant, so that the time that a look takes does not tell one tenant about another's files.
type subject struct {
	tenant, sha256, renderings string
	head                       int
}

// cache keeps the findings under one set of rules, at least the most recently used half of its
// bytes. It has two generations, and drops the old one when the young one is full.
type cache struct {
	mu         sync.Mutex
	rules      *ocip.Rules
	half, used int
	young, old map[subject]*ocip.Text
}

func (c *cache) get(rules *ocip.Rules, of subject) *ocip.Text {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules != rules {
		return nil
	}
	found := c.young[of]
	if found == nil {
		if found = c.old[of]; found != nil {
			c.addLocked(of, found)
		}
	}
	return found
}

func (c *cache) add(rules *ocip.Rules, of subject, found *ocip.Text) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules != rules {
		c.rules, c.young, c.old, c.used = rules, nil, nil, 0
	}
	c.addLocked(of, found)
}

func (c *cache) addLocked(of subject, found *ocip.Text) {
	if c.young[of] != nil {
		return
	}
	size := found.Size() + len(of.tenant) + len(of.sha256) + len(of.renderings)
	if size > c.half {
		return
	}
	if c.used+size > c.half {
		c.young, c.old, c.used = nil, c.young, 0
	}
	if c.young == nil {
		c.young = make(map[subject]*ocip.Text)
	}
	c.young[of] = found
	c.used += size
}
