package keylock

import (
	"sync"
	"testing"
)

// Only one goroutine at a time has a key. Another key is free meanwhile. Nothing remains when all
// are done.
func TestLocks(t *testing.T) {
	var (
		l    Locks
		all  sync.WaitGroup
		uses int
	)
	unlock := l.Lock("a")
	for range 100 {
		all.Go(func() {
			defer l.Lock("a")()
			uses++
		})
	}
	l.Lock("b")()
	if uses > 0 {
		t.Errorf("%d had a key that was held", uses)
	}
	unlock()
	all.Wait()
	if uses != 100 || len(l.held) > 0 {
		t.Errorf("%d uses, want 100; %d locks are left", uses, len(l.held))
	}
}
