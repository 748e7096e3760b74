// Package keylock has one lock for each of any number of keys. A lock costs memory only while a
// caller holds it or waits for it.
package keylock

import "sync"

// Locks is a set of locks made as they are needed. Its zero value is ready for use.
type Locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	mu    sync.Mutex
	users int
}

// Lock takes the lock of a key.
func (l *Locks) Lock(key string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[string]*lock)
	}
	k := l.held[key]
	if k == nil {
		k = new(lock)
		l.held[key] = k
	}
	k.users++
	l.mu.Unlock()
	k.mu.Lock()
	return func() {
		k.mu.Unlock()
		l.mu.Lock()
		if k.users--; k.users == 0 {
			delete(l.held, key)
		}
		l.mu.Unlock()
	}
}
