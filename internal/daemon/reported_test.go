package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A runtime's report about a channel that is not its own changes nothing: neither the
// session's agent, nor the address of answers, nor the counterparty.
func TestReportOfAnotherChannelMovesNothing(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	report := func(key, to string) error {
		return bob.call("hook.emit", map[string]any{"hookName": "message_received", "context": map[string]any{"agentId": "bob"},
			"data": map[string]any{"sessionKey": key, "content": "hi", "metadata": map[string]any{"to": to, "chatId": to}}}, nil)
	}
	// The channel's app is not there yet, and nobody has written.
	if err := report("chat:555", "666"); err != nil {
		t.Fatal(err)
	}
	chat := h.channel("@acme/chat", "chat")
	alice.dispatch("chat:555", "for 555 alone", nil)
	if m := chat.message("hook:message_sending"); m.Target != "555" || len(m.Metadata["to"]) > 0 || len(m.Metadata["chatId"]) > 0 {
		t.Errorf("it goes to %q with %v", m.Target, m.Metadata)
	}
	// Now it is there, with a session of alice's, and the channel belongs to it.
	if err := report("chat:555", "666"); api.AsError(err).Code != api.Forbidden {
		t.Errorf("another agent's session: %v", err)
	}
	if err := report("chat:777", "666"); api.AsError(err).Code != api.CapabilityDenied {
		t.Errorf("another app's channel: %v", err)
	}
	// A session that a route gives to another app's agent is that agent's.
	if err := report("telegram:222", "222"); api.AsError(err).Code != api.Forbidden {
		t.Errorf("another agent's route: %v", err)
	}
	telegram := h.channel("@openclawos/telegram", "telegram")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:222", "text": "for alice"}, nil)
	if m := alice.message("hook:message_received"); m.Content != "for alice" {
		t.Errorf("alice got %q", m.Content)
	}
	// The reported message is recorded with an unknown sender.
	if r := h.records(audit.Filter{Like: audit.Record{SessionKey: "chat:555", Side: audit.SideReceiver}}); len(r) != 1 || r[0].Counterparty.Kind != "unknown" {
		t.Errorf("on record: %+v", r)
	}
}

// An observer of an agent's channel hears of its messages, not of sessions between agents
// that are named after it.
func TestNamedChannelIsNotObserved(t *testing.T) {
	h := build(t, acme)
	telegram := h.register("@openclawos/telegram", api.Capabilities{
		Channels: api.Provides{Provides: []string{"telegram"}}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sending", "tool_completed", "message_received"}},
	})
	telegram.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "telegram"}}, nil)
	telegram.must("hook.subscribe", map[string]any{"events": []string{"message_sending", "tool_completed", "message_received"}}, nil)
	telegram.must("app.ready", nil, nil)
	alice := h.agent("@acme/alice")
	alice.must("hook.emit", map[string]any{"hookName": "tool_completed", "data": map[string]any{"x": "for nobody"}, "context": map[string]any{"agentId": "alice", "sessionKey": "agent:alice:telegram:1"}}, nil)
	alice.dispatch("agent:bob:telegram:1", "for bob", nil)
	alice.dispatch("telegram:dave", "for dave", nil)
	if m := telegram.message("hook:message_sending"); m.Content[:8] != "for dave" {
		t.Errorf("the channel's app was shown %q", m.Content)
	}
}
