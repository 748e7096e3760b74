package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Events for one tenant's apps cost another's nothing: an interceptor's block counts, and
// so does the receipt of a delivery, however much else has to be remembered.
func TestEventsAreTheAppsOwn(t *testing.T) {
	const watchers, notices = 64, 66 // told under two names each: more than 8192 events
	var watching strings.Builder
	for n := range watchers {
		fmt.Fprintf(&watching, "    \"@acme/w%d\": {observes: [alice]}\n", n)
	}
	h := build(t, `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: engineering, tenant_id: globex-inc}
hooks: {wait: 1h, answer: 1h}
access:
  apps:
    "@globex/filter": {intercepts: [gina]}
    "@globex/chat": {channels: [chat], tenants: [globex-inc]}
`+watching.String())
	alice, gina := h.agent("@acme/alice"), h.agent("@globex/gina")
	chat, filter := h.channel("@globex/chat", "chat"), h.interceptor("@globex/filter", false)
	tools := []string{"tool_completed", "after_tool_call"}
	var all []*app
	for n := range watchers {
		w := h.register(fmt.Sprintf("@acme/w%d", n), api.Capabilities{Hooks: api.HookDeclaration{Subscribes: tools[:1]}})
		w.must("hook.subscribe", map[string]any{"events": tools}, nil)
		w.must("app.ready", nil, nil)
		all = append(all, w)
	}

	first := gina.send("chat:5", "let through")
	filter.answer(filter.message("hook:message_sending").EventID, map[string]any{})
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	given := chat.message("hook:message_sending")
	second := gina.send("chat:5", "stopped")
	asked := filter.message("hook:message_sending")
	for n := range notices {
		alice.emit("tool_completed", map[string]any{"toolName": fmt.Sprint(n)}, nil)
	}
	for _, w := range all {
		for range notices {
			w.message("hook:after_tool_call")
		}
	}
	var said api.OK
	if chat.must("hook.result", map[string]any{"eventId": given.EventID, "result": map[string]any{"delivered": true}}, &said); !said.OK {
		t.Errorf("the receipt is answered %+v", said)
	}
	if filter.must("hook.result", map[string]any{"eventId": asked.EventID, "result": nil}, &said); !said.OK {
		t.Fatalf("the block is answered %+v", said)
	}
	if code, ocipCode := codeOf(t, <-second); code != api.Forbidden || ocipCode != string(ocip.InterceptorBlocked) {
		t.Errorf("what was blocked is %s, %s", code, ocipCode)
	}
	chat.silent("hook:message_sending")
}

// A required app has the right to intercept whatever its manifest lists, including incoming
// messages. While it does not listen to one of these, such a message is refused.
func TestRequiredInterceptorIsAskedOfWhatItLists(t *testing.T) {
	h := build(t, acme+`
hooks: {apps: {"@sec/dlp": {required: true}}, answer: 1h}
access:
  apps:
    "@sec/dlp": {}
    "@acme/telegram": {channels: [telegram]}
`)
	telegram, alice := h.channel("@acme/telegram", "telegram"), h.agent("@acme/alice")
	lists := []string{"message_sending", "message_received", "tool_executing"}
	dlp := h.register("@sec/dlp", api.Capabilities{Hooks: api.HookDeclaration{Intercepts: lists}})
	dlp.must("hook.subscribe", map[string]any{"events": lists[:1]}, nil)
	dlp.must("app.ready", nil, nil)

	in := map[string]any{"sessionKey": "telegram:alice", "text": "Hello"}
	blocked := func(err error) {
		t.Helper()
		if code, ocipCode := codeOf(t, err); code != api.Forbidden || ocipCode != string(ocip.InterceptorBlocked) {
			t.Errorf("what comes in is %s, %s", code, ocipCode)
		}
	}
	blocked(telegram.call("agent.queue", in, nil))
	if got := alice.emit("tool_executing", map[string]any{"toolName": "shell"}, nil); got.Allowed {
		t.Error("a tool runs that a required interceptor is not asked about")
	}

	var subscribed api.SubscribeResult
	if dlp.must("hook.subscribe", map[string]any{"events": lists}, &subscribed); len(subscribed.Denied) > 0 {
		t.Fatalf("the required app is denied %v", subscribed.Denied)
	}
	var granted api.CapabilityResult
	if dlp.must("capability.register", map[string]any{"type": "hook", "config": map[string]any{"event": "message_received", "intercept": true}}, &granted); !granted.Granted {
		t.Errorf("the required app may not intercept: %s", granted.Reason)
	}
	for _, result := range []any{nil, map[string]any{}} {
		done := make(chan error, 1)
		go func() { done <- telegram.call("agent.queue", in, nil) }()
		m := dlp.message("hook:message_received")
		if m.Content != "Hello" {
			t.Errorf("it is asked about %q", m.Content)
		}
		dlp.answer(m.EventID, result)
		if err := <-done; result == nil {
			blocked(err)
		} else if err != nil {
			t.Error(err)
		}
	}
}
