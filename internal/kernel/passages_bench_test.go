package kernel

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// BenchmarkLook measures a message without media, as most are.
func BenchmarkLook(b *testing.B) {
	k := &ruleset{base: &base{}}
	m := &outgoing{
		speaker: speaker{sender: &directory.Agent{}},
		content: gate.NewText("The report is ready: three items are open, and the first one is due on Friday."),
		metadata: api.Object{
			"accountId": api.String("main"), "threadId": api.String("1234.5678"), "replyTo": api.String("msg-20931"),
			"lang": api.String("en-GB"), "note": api.String("as you asked"),
		},
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := k.look(b.Context(), m); err != nil || len(m.passages) != 5 {
			b.Fatal(err, m.passages)
		}
	}
}
