package peercheck

import (
	"sync"
	"time"
)

const (
	// every is the time between two records about the same.
	every = time.Minute
	// maxRecent bounds the remembered records, and so the records of a minute: whoever is refused
	// can start new processes at will.
	maxRecent = 256
)

// recent remembers what is on record since a minute.
type recent struct {
	mu   sync.Mutex
	last map[string]*recorded
	// missed counts those for which there was no room.
	missed int
}

// recorded is the time of a record, and how often the same happened after it.
type recorded struct {
	at     time.Time
	missed int
}

// due reports whether something is to be recorded now. If so, missed says how often it happened,
// since the last such record, without one: the same, or anything for which there was no room.
func (r *recent) due(key string, now time.Time) (due bool, missed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = make(map[string]*recorded)
	}
	one := r.last[key]
	switch {
	case one != nil && one.since(now) < every:
		one.missed++
		return false, 0
	case one == nil && len(r.last) >= maxRecent && !r.trim(now):
		r.missed++
		return false, 0
	case one != nil:
		missed = one.missed
	}
	missed, r.missed = missed+r.missed, 0
	r.last[key] = &recorded{at: now}
	return true, missed
}

// since is the age of a record. A clock that was set back makes it old.
func (r *recorded) since(now time.Time) time.Duration {
	if now.Before(r.at) {
		return every
	}
	return now.Sub(r.at)
}

// trim forgets what happened more than a minute ago, and reports whether that made room. What was
// missed is kept for the next record.
func (r *recent) trim(now time.Time) bool {
	for key, one := range r.last {
		if one.since(now) >= every {
			r.missed += one.missed
			delete(r.last, key)
		}
	}
	return len(r.last) < maxRecent
}

// forget makes something due again.
func (r *recent) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, key)
}
