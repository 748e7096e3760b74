package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
)

// If the stock kernel answers with a result, so does ocipd, because the stock SDK throws an
// error that its caller does not expect (clients.md, "Stock kernel beside ocipd").
func TestCapabilitiesThatAreNotGranted(t *testing.T) {
	h := build(t, acme)
	a := h.register("@openclawos/chat", api.Capabilities{Channels: api.Provides{Provides: []string{"chat"}}})
	for _, params := range []map[string]any{
		{"type": "cable", "config": map[string]any{"id": "x"}},
		{"type": "tool", "config": map[string]any{}},
		{"type": "tool"},
		{"type": "channel", "config": map[string]any{"channelId": "undeclared"}},
		{"type": "hook", "config": map[string]any{"event": "llm_input"}},
		{},
	} {
		var got api.CapabilityResult
		if a.must("capability.register", params, &got); got.Granted || got.Reason == "" {
			t.Errorf("%v is answered %+v", params, got)
		}
	}
	var said api.OK
	if a.must("capability.unregister", map[string]any{"capabilityId": "nonesuch"}, &said); said.OK || said.Reason == "" {
		t.Errorf("an unknown capability is given back: %+v", said)
	}
}

// Apps of the stock kernel read their section under the last part of their id
// (clients.md 7).
func TestConfigUnderTheLastPartOfTheID(t *testing.T) {
	h := build(t, acme+`
apps:
  "@openclawos/lobster": {apiKey: one, nested: {deep: 1}}
  "@other/lobster": {apiKey: another's}
  "@openclawos/apps": {x: 1}
`)
	get := func(a *app, path string) any {
		t.Helper()
		var v api.ConfigValue
		a.must("config.get", map[string]any{"path": path}, &v)
		return v.Value
	}
	a := h.register("@openclawos/lobster", api.Capabilities{})
	if got := get(a, "lobster.apiKey"); got != "one" {
		t.Errorf("its key is %v", got)
	}
	if got, ok := get(a, "lobster").(map[string]any); !ok || len(got) != 2 {
		t.Errorf("its section is %v", got)
	}
	if got, ok := get(a, "").(map[string]any); !ok || len(got) != 2 || got["lobster"] != nil {
		t.Errorf("all of it is %v", got)
	}
	// A name with a meaning keeps that meaning.
	if got, ok := get(h.register("@openclawos/apps", api.Capabilities{}), "apps").(map[string]any); !ok || got["@openclawos/apps"] == nil || len(got) != 1 {
		t.Errorf("the section of sections is %v", got)
	}
	if got := get(h.register("@acme/none", api.Capabilities{}), "none.x"); got != nil {
		t.Errorf("there is %v where there is nothing", got)
	}
}

// An app that subscribed under both names of a hook hears both, and one that drops one of
// them still hears the other (clients.md 12).
func TestBothNamesOfAHook(t *testing.T) {
	h := build(t, acme)
	chat := h.channel("@openclawos/chat", "chat")
	alice := h.register("@acme/alice", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"agent_completed", "message_received"}}})
	alice.must("hook.subscribe", map[string]any{"events": []string{"agent_completed", "agent_end", "agent_end"}}, nil)
	alice.must("app.ready", nil, nil)
	run := func() string {
		t.Helper()
		var queued api.QueueResult
		chat.must("agent.queue", map[string]any{"sessionKey": "chat:me", "text": "hi"}, &queued)
		alice.message("hook:message_received")
		return queued.RunID
	}
	h.reloaded(acme + "default_agent: alice\n")
	alice.must("agent.complete", map[string]any{"runId": run(), "success": true}, nil)
	first, second := alice.message("hook:agent_completed"), alice.message("hook:agent_end")
	if first.EventID == second.EventID || first.HookName != "agent_completed" || second.HookName != "agent_end" {
		t.Errorf("it heard %+v and %+v", first, second)
	}
	// Also after its connection ended.
	alice.Close()
	<-alice.Done()
	alice = h.again(alice)
	var left api.UnsubscribeResult
	if alice.must("hook.unsubscribe", map[string]any{"events": []string{"agent_completed"}}, &left); len(left.Unsubscribed) != 1 {
		t.Errorf("it left %+v", left)
	}
	alice.must("agent.complete", map[string]any{"runId": run(), "success": true}, nil)
	if in := alice.next("hook:agent_end"); in.Event == "" {
		t.Error("the other name is gone too")
	}
}

// The app that owns a channel hears that its message was sent, if it subscribed to that
// (clients.md 12).
func TestOwnerHearsMessageSent(t *testing.T) {
	h := build(t, acme)
	telegram := h.register("@openclawos/telegram", api.Capabilities{
		Channels: api.Provides{Provides: []string{"telegram"}}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sending", "message_sent"}},
	})
	telegram.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "telegram"}}, nil)
	telegram.must("hook.subscribe", map[string]any{"events": []string{"message_sending", "message_sent"}}, nil)
	telegram.must("app.ready", nil, nil)
	sent := h.agent("@acme/alice").dispatch("telegram:dave", "hello", nil)
	telegram.message("hook:message_sending")
	if m := telegram.message("hook:message_sent"); m.DispatchID != sent.DispatchID {
		t.Errorf("it heard %+v", m)
	}
}

// The provider of a channel may subscribe to its messages with a manifest that lists
// its channel alone, and hears of no other channel's (seeds.md 17).
func TestProviderSubscribes(t *testing.T) {
	h := build(t, acme)
	telegram := h.register("@openclawos/telegram", api.Capabilities{Channels: api.Provides{Provides: []string{"telegram"}}})
	var subscribed api.SubscribeResult
	telegram.must("hook.subscribe", map[string]any{"events": []string{"message_sending", "message_received"}}, &subscribed)
	if len(subscribed.Subscribed) != 1 || subscribed.Subscribed[0] != "message_sending" || len(subscribed.Denied) != 1 {
		t.Fatalf("it is answered %+v", subscribed)
	}
	telegram.must("app.ready", nil, nil)
	irc, alice := h.channel("@openclawos/irc", "irc"), h.agent("@acme/alice")
	alice.dispatch("irc:stranger", "not for telegram", nil)
	irc.message("hook:message_sending")
	telegram.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "telegram"}}, nil)
	alice.dispatch("telegram:dave", "for telegram", nil)
	if m := telegram.message("hook:message_sending"); m.ChannelID != "telegram" {
		t.Errorf("it was shown %+v", m)
	}
}

// The next app with an id is not the former one: it can neither answer for it nor
// acknowledge its deliveries, unless it has its token.
func TestNextAppOfAnIDIsAnother(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	alice.dispatch("telegram:dave", "one", nil)
	m := telegram.message("hook:message_sending")
	token := telegram.Token()
	h.leaves(telegram)
	next := h.channel("@openclawos/telegram", "telegram")
	next.missed(m.EventID, "no such event")
	h.leaves(next)

	// The former app returns, takes over its id, and its events are its own.
	first := h.channel("@openclawos/telegram", "telegram")
	alice.dispatch("telegram:dave", "two", nil)
	var last delivered
	for last.DispatchID == "" || last.DispatchID == m.DispatchID {
		last = first.message("hook:message_sending")
	}
	over := h.connect(client.WithToken(first.Token()))
	over.id = first.id
	var said api.OK
	if over.must("hook.result", map[string]any{"eventId": last.EventID, "result": map[string]any{"delivered": true}}, &said); !said.OK {
		t.Errorf("one that went on is not who it was: %+v", said)
	}
	alice.dispatch("telegram:dave", "three", nil)
	for last.DispatchID == "" || !strings.HasPrefix(last.Content, "three") {
		last = over.message("hook:message_sending")
	}
	h.leaves(over)
	again := h.connect(client.WithToken(first.Token()))
	again.id = first.id
	if again.must("hook.result", map[string]any{"eventId": last.EventID, "result": map[string]any{"delivered": true}}, &said); !said.OK {
		t.Errorf("one that was away and went on is not who it was: %+v", said)
	}
	if token == first.Token() {
		t.Error("the tokens are one")
	}
}

// leaves closes an app's connection, and waits until the daemon has seen that.
func (h *harness) leaves(a *app) {
	h.t.Helper()
	a.Close()
	<-a.Done()
	h.waitGone(a.id)
}

// waitGone waits until an app has no connection.
func (h *harness) waitGone(id string) {
	h.t.Helper()
	h.statusUntil(id+" is gone", func(s api.Status) bool {
		return !slices.ContainsFunc(s.Apps, func(a api.AppStatus) bool { return a.ID == id })
	})
}
