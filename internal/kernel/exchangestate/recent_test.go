package exchangestate

import (
	"context"
	"testing"

	"github.com/openclawos/ocipd/internal/store"
)

// A value read from the store never replaces one that was committed meanwhile, and is not cached if
// it was forgotten meanwhile.
func TestRecentKeepsWhatIsNewest(t *testing.T) {
	stored := map[string]int{"old": 1}
	reads, during := 0, func() {}
	r := newRecent(8, func(_ context.Context, key string) (int, error) {
		reads++
		value, ok := stored[key]
		during()
		if !ok {
			return 0, store.ErrNotFound
		}
		return value, nil
	})
	of := func(key string, want, wantReads int) {
		t.Helper()
		if got, err := r.of(t.Context(), key); got != want || err != nil || reads != wantReads {
			t.Errorf("%s is %d, %v after %d reads; want %d after %d", key, got, err, reads, want, wantReads)
		}
	}
	of("none", 0, 1)
	of("none", 0, 1)
	of("old", 1, 2)
	during = func() { r.put("new", 2) }
	of("new", 2, 3)
	of("new", 2, 3)
	// forget waits for a read in progress, and a read that begins meanwhile waits.
	forgotten := make(chan struct{})
	during = func() {
		go func() {
			_, _ = r.forget(func(key string) bool { return key == "late" }, func() (store.Receipt, error) { return store.Receipt{}, nil })
			close(forgotten)
		}()
	}
	stored["late"] = 3
	of("late", 3, 4)
	<-forgotten
	during, stored["late"] = func() {}, 4
	of("late", 4, 5)
	of("old", 1, 5)
}
