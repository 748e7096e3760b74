package exchangestate

import "sync"

// cache keeps recently used values, at least the last half of its size and never more than its
// size. It has two generations. A used value goes to the young one. When that is full, it becomes
// the old one, and the values of the former old one are dropped. Keeping a full order would take
// longer than all other work here.
type cache[K comparable, V any] struct {
	mu         sync.Mutex
	half       int
	young, old map[K]V
}

func newCache[K comparable, V any](size int) *cache[K, V] {
	return &cache[K, V]{half: max(1, size/2), young: make(map[K]V), old: make(map[K]V)}
}

func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.getLocked(key)
}

func (c *cache[K, V]) getLocked(key K) (V, bool) {
	value, known := c.young[key]
	if !known {
		if value, known = c.old[key]; known {
			c.addLocked(key, value)
		}
	}
	return value, known
}

func (c *cache[K, V]) add(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(key, value)
}

func (c *cache[K, V]) addLocked(key K, value V) {
	c.young[key] = value
	if len(c.young) > c.half {
		clear(c.old)
		c.young, c.old = c.old, c.young
		delete(c.old, key)
		c.young[key] = value
	}
}

// getOrAdd returns the value that is there, or else adds one and returns that.
func (c *cache[K, V]) getOrAdd(key K, value V) (_ V, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, there := c.getLocked(key); there {
		return known, true
	}
	c.addLocked(key, value)
	return value, false
}

// empty removes all values.
func (c *cache[K, V]) empty() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.young, c.old = make(map[K]V), make(map[K]V)
}

// remove removes the values of some keys.
func (c *cache[K, V]) remove(which func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, generation := range [...]map[K]V{c.young, c.old} {
		for key := range generation {
			if which(key) {
				delete(generation, key)
			}
		}
	}
}
