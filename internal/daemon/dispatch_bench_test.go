package daemon_test

import "testing"

// report is plain text that binds nobody to anything.
const report = "The build of milestone 2 is at 75 percent and on track. The last three runs were green, the slow test is fixed, and the numbers of the week " +
	"are in the usual place. Could you tell me how far the review of the second part is, and whether anything in it needs work from our side before the " +
	"end of the week? Nothing here is urgent, any answer by tomorrow is fine. It can wait for you. Thanks and regards!"

// BenchmarkDispatch takes messages from one app to another over the real socket, one
// at a time and many at once. `make profile` records where their time goes.
func BenchmarkDispatch(b *testing.B) {
	for _, way := range []struct {
		name   string
		crowds int
	}{{"alone", 0}, {"crowd", 64}} {
		b.Run(way.name, func(b *testing.B) {
			h := build(b, acme)
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
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					alice.dispatch("telegram:dave", report, fresh(nil))
				}
			})
		})
	}
}
