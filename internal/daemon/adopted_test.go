package daemon_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	protocol "github.com/openclawos/ocipd/internal/api/wire"
)

// After a restart a stock app connects again and is silent until its next heartbeat: its
// messages arrive all the same, and its requests need its token (clients.md 8).
func TestConnectionOfAnAbsentApp(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	token := telegram.Token()
	h.stop()
	h.start()
	deaf := h.connect()
	deaf.id = "@openclawos/telegram"
	alice := h.agent("@acme/alice")
	sent := alice.dispatch("telegram:stranger", "are you back?", nil)
	m := deaf.message("hook:message_sending")
	if m.DispatchID != sent.DispatchID {
		t.Errorf("%s came, want %s", m.DispatchID, sent.DispatchID)
	}
	deaf.refuse(api.AppNotRegistered, "app.heartbeat", map[string]any{})
	deaf.refuse(api.AppNotRegistered, "hook.result", map[string]any{"eventId": m.EventID, "result": map[string]any{"delivered": true}})
	// Any connection with its token takes over.
	other := h.connect(client.WithToken(token))
	other.id = deaf.id
	other.must("app.heartbeat", nil, nil)
	<-deaf.Done()
	if got := h.events("@openclawos/telegram"); len(got) < 2 || got[1] != "resumed" {
		t.Errorf("on record is %q", got)
	}
}

// A stock app keeps a partial line of the previous daemon, and reads it as the beginning of
// the next daemon's first line, so that line contains no message.
func TestHalfALineOfTheDaemonBefore(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	h.restart()
	buffer := `{"id":"1","type":"event","event":"hook:message_sending","payload":{"da`
	w := h.dialWire("kernel.sock")
	sent := h.agent("@acme/alice").dispatch("telegram:stranger", "are you back?", nil)
	for read := 0; ; read++ {
		line := buffer + w.read().line
		buffer = ""
		var m protocol.Incoming
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			if read > 0 {
				t.Fatal(err)
			}
			continue
		}
		if strings.Contains(line, sent.DispatchID) {
			break
		}
	}
}

// A connection becomes the app as which it registers, even if it was taken for an absent
// app. If two apps are absent, it is taken for neither.
func TestConnectionOfAnotherApp(t *testing.T) {
	h := build(t, acme)
	telegram, irc := h.channel("@openclawos/telegram", "telegram"), h.channel("@openclawos/irc", "irc")
	h.stop()
	h.start()
	either := h.connect()
	either.id = "either"
	alice := h.agent("@acme/alice")
	alice.dispatch("irc:stranger", "who is there?", nil)
	alice.dispatch("telegram:stranger", "who is there?", nil)
	// One of the two continues, so the other is the only absent one.
	telegram = h.again(telegram)
	telegram.must("app.heartbeat", nil, nil)
	telegram.message("hook:message_sending")
	later := h.connect()
	later.id = "later"
	later.message("hook:message_sending")
	if s := h.status(); len(s.Apps) != 3 {
		t.Errorf("there are %+v", s.Apps)
	}
	if _, err := later.Register(t.Context(), manifest("@acme/new", api.Capabilities{})); err != nil {
		t.Fatal(err)
	}
	later.must("app.ready", nil, nil)
	irc = h.again(irc)
	irc.must("app.heartbeat", nil, nil)
	alice.dispatch("irc:stranger", "and now?", nil)
	irc.message("hook:message_sending")
	either.silent("hook:message_sending")
}
