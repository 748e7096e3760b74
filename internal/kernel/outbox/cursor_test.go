package outbox

import "testing"

// The cursor of a log that was reset, and counts anew, passes no newer message.
func TestCursorPasses(t *testing.T) {
	c := Cursor{Seq: 9, Newest: "m5", KeptBack: []string{"m3"}}
	for _, m := range []struct {
		seq  uint64
		id   string
		want bool
	}{{9, "m5", true}, {8, "m4", true}, {8, "m3", false}, {10, "m4", false}, {7, "m6", false}} {
		if got := c.passes(m.seq, m.id); got != m.want {
			t.Errorf("%+v: %t", m, got)
		}
	}
}
