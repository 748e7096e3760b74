package daemon

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Ids are UUIDs of version 7 with the current time, each later than those before it, and no
// two are equal even if many are made at once.
func TestIDs(t *testing.T) {
	i := newIDs()
	before := ""
	for range 10_000 {
		next := i.next()
		if next <= before {
			t.Fatalf("%s came after %s", next, before)
		}
		before = next
	}
	id, err := uuid.Parse(before)
	if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		t.Fatalf("%s is no UUID of version 7: %v", before, err)
	}
	sec, nsec := id.Time().UnixTime()
	if off := time.Since(time.Unix(sec, nsec)); off < -time.Minute || off > time.Minute {
		t.Errorf("%s is of %s", id, time.Unix(sec, nsec))
	}
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		made = make(map[string]bool)
	)
	for range 8 {
		all.Go(func() {
			for range 1000 {
				id := i.next()
				mu.Lock()
				made[id] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(made) != 8000 {
		t.Errorf("%d of 8000 ids differ", len(made))
	}
}
