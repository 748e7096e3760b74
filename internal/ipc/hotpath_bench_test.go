package ipc

import (
	"fmt"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// A message is read, and one is written, for each that goes through the daemon.
// Both are measured for a short text and for one of ten thousand characters.

func texts() map[string]string {
	return map[string]string{
		"short":    "What is the status of ticket ENG-1234?",
		"long":     strings.Repeat("What is the status of it? ", 400),
		"japanese": strings.Repeat("締め切りは明日です。", 4),
	}
}

func BenchmarkParseRequest(b *testing.B) {
	decode := wire.DecoderOf[api.DispatchParams]()
	for name, text := range texts() {
		line := []byte(`{"id":"a1b2c3","type":"request","timestamp":1707000000000,"method":"message.dispatch","params":{"sessionKey":"telegram:dave","content":"` +
			text + `","metadata":{"exchange":{"type":"information_query","maxRounds":3}}},"token":"k5Wb0Vn1W0q2f6uW1Z8yqv0gG6c7mX9l1ZbY3D5e7R0"}`)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r, err := wire.ParseRequest(line)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := decode(r.Params, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEvent(b *testing.B) {
	for name, text := range texts() {
		payload := api.Message{ChannelID: "telegram", Target: "dave", Content: gate.NewText(text), DispatchID: "01a1fa2b-9a2e-741e-915f-d67dd4412a77"}.Append(nil)
		b.Run(name, func(b *testing.B) {
			ours, theirs := pair(b)
			if err := theirs.SetDeadline(time.Time{}); err != nil {
				b.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			q, _ := newQueue(ours, 1<<30, time.Now)
			n := 0
			for b.Loop() {
				q.event("01a1fa2b-9b70-76bc-bf78-e05877c47e46", 1795198524272, "hook:message_sending", payload, nil)
				if n++; n%16 == 0 {
					q.flush()
				}
			}
		})
	}
}

// BenchmarkRoundTrip sends requests in groups, as a busy client does, and reads the
// answers.
func BenchmarkRoundTrip(b *testing.B) {
	for name, request := range map[string]struct{ method, params string }{
		"quick":   {"app.heartbeat", `{}`},
		"patient": {"session.get", `{"key":"telegram:dave"}`},
	} {
		b.Run(name, func(b *testing.B) {
			_, path := serve(b, &fakeKernel{})
			p := dial(b, path)
			if err := p.SetDeadline(time.Time{}); err != nil {
				b.Fatal(err)
			}
			const group = 32
			var lines []byte
			for n := range group {
				lines = fmt.Appendf(lines, `{"id":"%d","type":"request","timestamp":1707000000000,"method":%q,"params":%s}`+"\n", n, request.method, request.params)
			}
			for n := 0; b.Loop(); n++ {
				if n%group == 0 {
					if _, err := p.Write(lines); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := p.lines.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
