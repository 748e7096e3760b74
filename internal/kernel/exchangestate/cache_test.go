package exchangestate

import "testing"

// Recently used values are there, each with its newest value, and no more than the size.
func TestCache(t *testing.T) {
	const size = 64
	c := newCache[int, int](size)
	for i := range 50 * size {
		c.add(i, -1)
		c.add(i, i)
		if got, ok := c.get(i / 8 * 8); !ok || got != i/8*8 {
			t.Fatalf("%d has %d, %v, and was wanted of late", i/8*8, got, ok)
		}
		if n := len(c.young) + len(c.old); n > size {
			t.Fatalf("%d are kept", n)
		}
		// The last half is there, and an older value never comes back.
		for lately := max(0, i-size/4); lately <= i; lately++ {
			if got, ok := c.old[lately]; ok && got != lately {
				t.Fatalf("%d has %d", lately, got)
			}
			if _, young := c.young[lately]; !young {
				if _, old := c.old[lately]; !old {
					t.Fatalf("at %d, %d is gone", i, lately)
				}
			}
		}
	}
	if _, ok := c.get(0); ok {
		t.Error("what nobody wanted is kept")
	}
	if got, there := c.getOrAdd(-5, 1); got != 1 || there {
		t.Errorf("got %d", got)
	}
	if got, there := c.getOrAdd(-5, 2); got != 1 || !there {
		t.Errorf("got %d, and 1 was there", got)
	}
	c.remove(func(key int) bool { return key != -5 })
	if n := len(c.young) + len(c.old); n != 1 {
		t.Errorf("%d are left", n)
	}
}
