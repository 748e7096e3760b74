package daemon_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
)

// The events of each hook match the published schema, also under the SDK's names, and the
// daemon's own data matches the definition of its type.
func TestHookEventsFitThePublishedSchema(t *testing.T) {
	h := build(t, watched)
	names := []string{"message_sending", "message_received", "message_sent", "before_agent_start", "agent_end", "session_start", "session_end", "before_tool_call", "tool_completed"}
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	observer := h.register("@acme/observer", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: names}})
	var subscribed api.SubscribeResult
	observer.must("hook.subscribe", map[string]any{"events": names}, &subscribed)
	if len(subscribed.Subscribed) != len(names) {
		t.Fatalf("subscribed %v", subscribed)
	}
	observer.must("app.ready", nil, nil)

	s := published(t, true, true)
	line := checkBy(t, s, "EventMessage")
	// fits reads events of an app until each named one has come: names of hooks with the
	// definitions of their data, "" for any data. Their order is of no interest here.
	fits := func(a *app, defs map[string]string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for len(defs) > 0 {
			in, err := a.Next(ctx)
			if err != nil {
				t.Fatalf("%v has not come: %v", defs, err)
			}
			name := strings.TrimPrefix(in.Event, "hook:")
			def, wanted := defs[name]
			if delete(defs, name); !wanted {
				continue
			}
			text, err := json.Marshal(map[string]any{"id": "1", "type": "event", "timestamp": 1, "event": in.Event, "payload": in.Payload})
			if err != nil {
				t.Fatal(err)
			}
			if err := line(string(text)); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			var e api.HookEvent
			if a.decode(in.Payload, &e); def == "" {
				continue
			}
			if err := checkBy(t, s, def)(string(e.Data)); err != nil {
				t.Errorf("%s: %s: %v", name, e.Data, err)
			}
		}
	}
	alice.dispatch("telegram:dave", "hello", nil)
	fits(telegram, map[string]string{"message_sending": "Message"})
	fits(observer, map[string]string{"session_start": "SessionStarted", "message_sending": "Message", "message_sent": "Message"})
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:alice", "text": "hi"}, nil)
	got := alice.message("hook:message_received")
	fits(observer, map[string]string{"session_start": "SessionStarted", "message_received": "Inbound", "before_agent_start": "RunStarting"})
	alice.must("agent.complete", map[string]any{"runId": got.RunID, "success": true}, nil)
	fits(observer, map[string]string{"agent_end": "RunCompleted"})
	for name, data := range map[string]any{
		"before_tool_call": map[string]any{"toolName": "search", "params": map[string]any{"q": "x"}, "more": 1}, "tool_completed": map[string]any{"toolName": "search"},
	} {
		alice.must("hook.emit", map[string]any{"hookName": name, "data": data}, nil)
		fits(observer, map[string]string{name: "ToolUse"})
	}
	// An app can raise some of the daemon's hooks too, with data of its own.
	for _, name := range []string{"session_end", "session_start", "agent_end"} {
		alice.must("hook.emit", map[string]any{"hookName": name, "data": map[string]any{"own": true}}, nil)
		fits(observer, map[string]string{name: ""})
	}
}
