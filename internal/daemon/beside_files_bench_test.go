package daemon_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkBesideFiles sends messages between two agents of one tenant, alone and while an
// agent of another tenant has 250 messages with one large file in progress. It reports the
// time of a message in milliseconds: the median and the 99th percentile.
func BenchmarkBesideFiles(b *testing.B) {
	const files = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, media: [%s]}
  - {id: adam, app: "@acme/adam", instance_id: agent-adam-1, user_id: adam, org_unit: engineering, tenant_id: acme-corp}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: engineering, tenant_id: globex-inc}
  - {id: greg, app: "@globex/greg", instance_id: agent-greg-1, user_id: greg, org_unit: engineering, tenant_id: globex-inc}
`
	for _, flood := range []struct {
		name string
		make func(f *os.File) error
	}{
		{"alone", nil},
		{"sparse", func(f *os.File) error { return f.Truncate(128 << 20) }},
		{"digits", func(f *os.File) error {
			_, err := f.WriteString(strings.Repeat("4111 1111 1111 1112 ", 8<<20/20))
			return err
		}},
		{"words", func(f *os.File) error {
			_, err := f.WriteString(strings.Repeat(report+"\n", 8<<20/(len(report)+1)))
			return err
		}},
	} {
		b.Run(flood.name, func(b *testing.B) {
			dir := b.TempDir()
			h := build(b, fmt.Sprintf(files, dir))
			alice, gina, greg := h.agent("@acme/alice"), h.agent("@globex/gina"), h.agent("@globex/greg")
			go func() {
				for {
					if _, err := greg.Next(b.Context()); err != nil {
						return
					}
				}
			}()
			if flood.make != nil {
				f, err := os.Create(dir + "/file.bin")
				if err != nil {
					b.Fatal(err)
				}
				if err := flood.make(f); err != nil {
					b.Fatal(err)
				}
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
				sent := fresh(nil)
				sent["mediaUrls"] = []string{f.Name()}
				for i := range 250 {
					go func() {
						_ = alice.call("message.dispatch", map[string]any{"sessionKey": fmt.Sprintf("agent:adam:x%d", i), "content": "see it", "metadata": sent}, nil)
					}()
				}
			}
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				gina.dispatch("agent:greg:main", report, fresh(nil))
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			alice.Close()
		})
	}
}
