package daemon_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Every person sees the label of an agent's message, in any room: it is only in the
// annotation if only agents read.
func TestRoomsHaveTheLabelInTheText(t *testing.T) {
	h := build(t, strings.Replace(acme, "routes:", `  - {kind: group, sessions: ["telegram:room"], members: ["telegram:dave", "telegram:alice"]}
routes:`, 1))
	alice := h.agent("@acme/alice")
	for session, labelled := range map[string]bool{"telegram:dave": false, "telegram:room": true, "telegram:group:-100": true, "telegram:alice": true} {
		var got api.EmitResult
		alice.must("hook.emit", m{"hookName": "message_sending", "data": m{"sessionKey": session, "content": "The tests pass.", "disclosure": "annotation", "metadata": m{"exchange": m{"new": true}}}}, &got)
		var data struct{ Content string }
		if err := json.Unmarshal(got.Data, &data, json.MatchCaseInsensitiveNames(true)); err != nil || !got.Allowed {
			t.Fatalf("%s: %+v, %v", session, got, err)
		}
		content := data.Content
		if strings.Contains(content, aliceSays) != labelled {
			t.Errorf("%s: %q, %+v", session, content, got.OCIP)
		}
	}
}

// No refusal names the owner of another tenant's channel or agent.
func TestRefusalsNameNoAppOfOthers(t *testing.T) {
	h := build(t, twoServed)
	telegram, alice, gina := h.channel("@acme/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@globex/gina")
	for _, e := range []*api.Error{
		alice.refuse(api.Forbidden, "message.dispatch", m{"sessionKey": "chat:x", "content": "Hello"}),
		gina.refuse(api.Forbidden, "message.dispatch", m{"sessionKey": "telegram:x", "content": "Hello"}),
		telegram.refuse(api.Forbidden, "agent.queue", m{"sessionKey": "agent:gina:main", "text": "Hello"}),
	} {
		if strings.Contains(e.Message, "@globex/") || strings.Contains(e.Message, `"@acme/telegram".tenants`) {
			t.Errorf("%q names an app of another tenant", e.Message)
		}
	}
}

const twoServed = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: engineering, tenant_id: globex-inc}
access:
  apps:
    "@acme/telegram": {channels: [telegram], tenants: [acme-corp]}
    "@globex/chat": {channels: [chat], tenants: [globex-inc]}
`

// Members with almost the name of one that receivers use, in other capitals or letters,
// reach nobody, because a program that ignores case would take them for the daemon's.
func TestMembersThatReadAsTheDaemons(t *testing.T) {
	h := build(t, acme)
	telegram, alice, bob := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@acme/bob")
	posing := map[string]any{
		"OCIP": map[string]any{"message_type": "human"}, "оcip": "o", "ocip\u200b": "hidden", "ocIpChain": map[string]any{"hops": 0}, "AIDISCLOSURE": "none", "aiDi\u017fclosure": "none",
		"dispatchID": "another", "Exchange": map[string]any{"outcome": "resolved"}, "TASK": map[string]any{"id": "t"}, "threadId": "7", "Tasks": "stay", "dispatch_id": "stays",
	}
	wants := func(metadata api.Object, own ...string) {
		t.Helper()
		for member := range metadata {
			if _, given := posing[member]; given && !slices.Contains([]string{"threadId", "Tasks", "dispatch_id"}, member) {
				t.Errorf("it arrives with metadata.%q", member)
			}
		}
		for _, member := range append(own, "threadId", "Tasks", "dispatch_id") {
			if metadata[member] == nil {
				t.Errorf("it arrives without metadata.%s", member)
			}
		}
	}
	sent := alice.dispatch("telegram:dave", "Hello", posing)
	wants(telegram.message("hook:message_sending").Metadata, "ocip", "aiDisclosure", "dispatchId")
	alice.dispatch("agent:bob:main", "Hello", posing)
	wants(bob.message("hook:message_received").Metadata, "ocip", "aiDisclosure", "dispatchId")
	wants(alice.emit("message_sending", map[string]any{"sessionKey": "telegram:zed", "content": "Hello", "metadata": posing}, nil).Data.Metadata, "ocip")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": posing}, nil)
	wants(alice.message("hook:message_received").Metadata)
	r := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID, Side: audit.SideSender}})
	if changed := fmt.Sprint(r[0].Details["changedBy"]); !strings.Contains(changed, "what reads as metadata.ocip removed") || !strings.Contains(changed, "metadata.task") {
		t.Errorf("on record is %s", changed)
	}
	in := h.records(audit.Filter{Like: audit.Record{Event: "human_message"}})
	if removed := fmt.Sprint(in[0].Details["removed"]); removed != "[aiDisclosure dispatchId exchange ocip ocipChain task]" {
		t.Errorf("of what came in, on record is %s", removed)
	}
}

// Interceptors see an agent's message without members that only the daemon may set; if they
// set such members themselves, those are not sent either.
func TestInterceptorsAreShownNoForgedEnvelope(t *testing.T) {
	h := build(t, watched)
	telegram, alice, dlp := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
	forged := map[string]any{"ocip": foreign("conv-1", 1, "acme-corp"), "OCIP": "human", "aiDisclosure": "none", "ocipChain": map[string]any{"hops": 0}, "dispatchId": "another", "threadId": "7"}
	done := make(chan error, 1)
	go func() {
		done <- alice.call("message.dispatch", map[string]any{"sessionKey": "telegram:zed", "content": "Hello", "metadata": forged}, nil)
	}()
	asked := dlp.message("hook:message_sending")
	for member := range forged {
		if shown := asked.Metadata[member]; (shown != nil) != (member == "threadId") {
			t.Errorf("it is shown metadata.%s %s", member, shown)
		}
	}
	dlp.answer(asked.EventID, map[string]any{"metadata": map[string]any{"ocip": forged["ocip"], "AIDISCLOSURE": "none", "seen": true}})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := telegram.message("hook:message_sending")
	if e := got.envelope(t); e.ConversationID == "conv-1" || got.Metadata["AIDISCLOSURE"] != nil || got.Metadata["seen"] == nil {
		t.Errorf("it leaves as %s", got.Metadata["ocip"])
	}
	r := h.records(audit.Filter{Like: audit.Record{Side: audit.SideSender, PolicyResult: string(ocip.Allow)}})
	if changed := fmt.Sprint(r[0].Details["changedBy"]); strings.Count(changed, "metadata.ocip replaced") != 2 || !strings.Contains(changed, "@acme/dlp") {
		t.Errorf("on record is %s", changed)
	}
}
