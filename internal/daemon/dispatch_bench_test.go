package daemon_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// report is plain text that binds nobody to anything.
const report = "The build of milestone 2 is at 75 percent and on track. The last three runs were green, the slow test is fixed, and the numbers of the week " +
	"are in the usual place. Could you tell me how far the review of the second part is, and whether anything in it needs work from our side before the " +
	"end of the week? Nothing here is urgent, there is no hurry with answers. It can wait for you. Thanks and regards!"

// BenchmarkDispatch sends messages from one app to another over the real socket, one at a
// time, and many at once to as many agents: messages between the same two are decided one
// after the other, and share no commit. `make profile` records where their time goes.
func BenchmarkDispatch(b *testing.B) {
	for _, way := range []struct {
		name   string
		crowds int
	}{{"alone", 0}, {"crowd", 64}} {
		b.Run(way.name, func(b *testing.B) {
			var others strings.Builder
			for i := range 2 * way.crowds {
				fmt.Fprintf(&others, "  - {instance_id: agent-p%d, user_id: p%d, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: [\"telegram:p%d\"]}\n", i, i, i)
			}
			h := build(b, strings.Replace(acme, "directory:\n", "directory:\n"+others.String(), 1))
			channel := h.channel("@acme/telegram", "telegram")
			alice := h.agent("@acme/alice")
			go func() {
				for {
					if _, err := channel.Next(b.Context()); err != nil {
						return
					}
				}
			}()
			b.ReportAllocs()
			if way.crowds == 0 {
				for b.Loop() {
					alice.dispatch("telegram:dave", report, fresh(nil))
				}
				return
			}
			b.SetParallelism(way.crowds)
			var sender atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				session := fmt.Sprintf("telegram:p%d", int(sender.Add(1))%(2*way.crowds))
				for pb.Next() {
					alice.dispatch(session, report, fresh(nil))
				}
			})
		})
	}
}
