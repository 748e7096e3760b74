package registry

import (
	"fmt"
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/store"
)

// The store forgets ended processes, a few with each new one, and those of a change that was not written
// with a later one.
func TestEndedProcessesLeaveAFewAtATime(t *testing.T) {
	running := make(map[string]bool)
	p := processes{boot: "boot", runs: func(name string) bool { return running[name] }, apps: make(map[string]appProcess), full: someProcesses}
	stored := map[store.EndedProcess]bool{}
	for i := range 100 {
		one := store.EndedProcess{Boot: "earlier", Name: fmt.Sprint(i)}
		p.stale, stored[one] = append(p.stale, one), true
	}
	most := 0
	for i := range 4 * someProcesses {
		name := fmt.Sprint("p", i)
		running[name] = i%512 == 0 // few go on
		fresh, ended, ok := p.add(name, "app")
		if !fresh || !ok || len(ended) > endTogether {
			t.Fatalf("%s: fresh %t, ok %t, %d ended", name, fresh, ok, len(ended))
		}
		if i%3 == 0 {
			continue // its change fails
		}
		p.written(name)
		stored[store.EndedProcess{Boot: "boot", Name: name}] = true
		for _, one := range ended {
			delete(stored, one)
		}
		p.gone(ended)
		p.gone(ended) // another change with the same ones
		most = max(most, len(stored))
	}
	if most > 2*someProcesses {
		t.Errorf("the store has %d rows", most)
	}
	for name := range running {
		if _, known := p.app(name); running[name] && !known {
			t.Errorf("%s runs, and is forgotten", name)
		}
	}
	for one := range stored {
		if _, known := p.app(one.Name); !known && !slices.Contains(p.stale, one) {
			t.Errorf("nobody forgets %v", one)
		}
	}
}
