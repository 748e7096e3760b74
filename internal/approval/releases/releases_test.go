package releases

import (
	"context"
	"testing"
	"testing/synctest"
)

// The end of an app's connection leaves a claim with the connection on which the app has come back,
// also if that end is noticed late.
func TestClaimStaysWithTheLaterConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &Releases{o: Options{Closing: t.Context()}, holders: make(map[string]*holder)}
		earlier, ends := context.WithCancel(t.Context())
		later, cancel := context.WithCancel(t.Context())
		defer cancel()
		x.hold(earlier, "a", "claim")
		before := x.holders["a"]
		x.hold(later, "a", "claim")
		now := x.holders["a"]
		ends()
		x.left("a", "claim", before)
		x.lose("a", "claim", before)
		synctest.Wait()
		if x.holders["a"] != now || now.timer != nil {
			t.Error("the later connection has lost the claim")
		}
	})
}
