package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// However much of one tenant waits to be written, a change of another goes with the next batch, and that
// batch is a small one. Within a tenant nothing passes anything, and nothing passes a task.
func TestBatchesGoRoundTenants(t *testing.T) {
	q := commitQueue{wait: time.Hour}
	add := func(of string, many int, size int64) {
		for range many {
			q.add(&pending{Change: &Change{}, tenant: of, size: size})
		}
	}
	took := func() string {
		var all []string
		for _, p := range q.take(nil) {
			if len(all) == 0 || !strings.HasPrefix(all[len(all)-1], p.tenant+" ") {
				all = append(all, p.tenant+" 0")
			}
			var n int
			fmt.Sscanf(all[len(all)-1], p.tenant+" %d", &n)
			all[len(all)-1] = fmt.Sprint(p.tenant, " ", n+1)
		}
		return strings.Join(all, ", ")
	}
	add("acme", 2*maxBatch, 12<<10)
	if got := took(); got != "acme 512" {
		t.Errorf("of one tenant are taken %s", got)
	}
	add("globex", 2, 12<<10)
	if got := took(); got != "acme 40, globex 2" {
		t.Errorf("of two tenants are taken %s", got)
	}
	if got := took(); got != "acme 42" {
		t.Errorf("then %s", got)
	}
	q.waiting = nil
	add("acme", 3, 1<<20)
	add("globex", 1, 1)
	if got := []string{took(), took(), took(), took()}; !slices.Equal(got, []string{"acme 1, globex 1", "acme 1", "acme 1", ""}) {
		t.Errorf("of large ones are taken %q", got)
	}
	add("acme", 1, 1)
	q.add(&pending{Change: &Change{}, tenant: "task", task: func(*writer) error { return nil }})
	add("globex", 1, 1)
	q.closed, q.last = true, &pending{Change: &Change{}, tenant: "last"}
	q.add(q.last)
	if got := []string{took(), took(), took(), took(), took()}; !slices.Equal(got, []string{"acme 1", "task 1", "globex 1", "last 1", ""}) {
		t.Errorf("around a task are taken %q", got)
	}
}

// A tenant's changes are written in the order in which they came.
func TestOrderWithinATenant(t *testing.T) {
	q := commitQueue{wait: time.Hour}
	for i := range 500 {
		q.add(&pending{Change: &Change{}, tenant: fmt.Sprint(i % 7 % 3), size: 12 << 10})
		q.waiting[i].receipt.Seq = uint64(i)
	}
	newest := make(map[string]uint64)
	for batch := q.take(nil); batch != nil; batch = q.take(nil) {
		for _, p := range batch {
			if before, some := newest[p.tenant]; some && p.receipt.Seq < before {
				t.Fatalf("%d of tenant %s is written after %d", p.receipt.Seq, p.tenant, before)
			}
			newest[p.tenant] = p.receipt.Seq
		}
	}
	if q.leading || len(q.waiting) > 0 {
		t.Errorf("%d are left", len(q.waiting))
	}
}
