package daemon_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// readings are the lines of a connection in the stock SDK's view: it decodes every read of
// up to 64 KiB separately.
func (w *wire) readings(done func(line string) bool) {
	w.t.Helper()
	var rest string
	read := make([]byte, 64<<10)
	for {
		n, err := w.lines.Read(read)
		if err != nil {
			w.t.Fatal(err)
		}
		rest += strings.ToValidUTF8(string(read[:n]), "\ufffd")
		for {
			line, after, whole := strings.Cut(rest, "\n")
			if !whole {
				break
			}
			rest = after
			if done(line) {
				return
			}
		}
	}
}

// A message that waited for a busy channel app arrives as it was approved, in any script,
// and so does a single message that takes several reads; so do the metadata, which the
// daemon passes on unchanged.
func TestNoCharacterOfAMessageIsLostToAStockClient(t *testing.T) {
	h := build(t, acme+busy)
	owner := h.registered("@acme/chat", `{"channels":{"provides":["chat"]}}`)
	owner.grant("capability.register", `{"type":"channel","config":{"id":"chat"}}`)
	alice := h.agent("@acme/alice")
	sent := make(map[string]string)
	for n := range 120 {
		text := fmt.Sprint("明日は晴れるでしょう 🤝 ", n)
		if n%40 == 0 {
			text = strings.Repeat(text, 60_000/len(text))
		}
		var result api.DispatchResult
		alice.must("message.dispatch", map[string]any{"sessionKey": "chat:x", "content": text, "metadata": map[string]any{"note": text}}, &result)
		sent[result.DispatchID] = text
	}
	owner.grant("app.ready", "{}")
	owner.readings(func(line string) bool {
		var in struct {
			Event   string
			Payload struct {
				Data struct {
					Content, DispatchID string
					Metadata            struct{ Note string }
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &in); err != nil {
			t.Fatal(err)
		}
		if in.Event != "hook:message_sending" {
			return false
		}
		data := &in.Payload.Data
		if want := sent[data.DispatchID]; data.Content != want || data.Metadata.Note != want {
			t.Fatalf("a message was changed on its way: %.200q and %.200q, want %.200q", data.Content, data.Metadata.Note, want)
		}
		delete(sent, data.DispatchID)
		return len(sent) == 0
	})
}

// A text that was cut within an emoji is accepted, in every method with texts, and its records say so.
func TestATextCutInsideAnEmojiIsTaken(t *testing.T) {
	h := build(t, acme)
	owner := h.registered("@acme/chat", `{"channels":{"provides":["chat","telegram"]}}`)
	for _, channel := range []string{"chat", "telegram"} {
		owner.grant("capability.register", `{"type":"channel","config":{"id":"`+channel+`"}}`)
	}
	owner.grant("app.ready", "{}")
	alice := h.registered("@acme/alice", `{}`)
	bob := h.agent("@acme/bob")
	for _, tc := range []struct {
		by             *wire
		method, params string
		records        int
	}{
		{alice, "message.dispatch", `{"sessionKey":"chat:x","content":"half \ud83d"}`, 1},
		{alice, "message.dispatch", `{"sessionKey":"agent:bob:main","content":"half","metadata":{"note":"\ud83d"}}`, 1},
		{alice, "hook.emit", `{"hookName":"message_sending","data":{"sessionKey":"chat:x","content":"half \ude00"}}`, 1},
		{owner, "agent.queue", `{"sessionKey":"telegram:x","text":"half \ud83d"}`, 1},
		{alice, "hook.emit", `{"hookName":"message_received","data":{"sessionKey":"agent:alice:x","content":"half \ud83d"},"context":{"agentId":"alice"}}`, 1},
	} {
		before := len(mended(h))
		if m := tc.by.ask(tc.method, tc.params); !m.Success {
			t.Errorf("%s %s: %s", tc.method, tc.params, m.line)
		}
		if n := len(mended(h)) - before; n != tc.records {
			t.Errorf("%s %s: %d records say that it was mended, want %d", tc.method, tc.params, n, tc.records)
		}
	}
	var got struct{ Data struct{ Content string } }
	if err := json.Unmarshal([]byte(owner.event("hook:message_sending").Payload), &got); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got.Data.Content, "half \ufffd") {
		t.Errorf("the channel was given %q", got.Data.Content)
	}
	bob.Close()
}

// mended are the records of replaced halves of characters.
func mended(h *harness) (found []audit.Entry) {
	for _, e := range h.records(audit.Filter{}) {
		if e.Details["mended"] != nil {
			found = append(found, e)
		}
	}
	return found
}

// A number that breaks its reader is refused by name, also in metadata.
func TestANumberOfThousandsOfDigitsIsRefused(t *testing.T) {
	h := build(t, acme)
	alice := h.registered("@acme/alice", `{}`)
	m := alice.ask("message.dispatch", `{"sessionKey":"telegram:1","content":"x","metadata":{"a":{"n":`+strings.Repeat("7", 5000)+`}}}`)
	alice.failed(m, api.InvalidParams)
	if !strings.Contains(string(m.Error.Details), `"metadata.a.n"`) {
		t.Errorf("got %s", m.line)
	}
}
