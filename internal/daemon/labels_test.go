package daemon_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// No person goes without the label of an agent's message, in whatever room: it stands in
// the annotation alone where agents alone read.
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
		if strings.Contains(content, ocip.DisclosureLabel) != labelled {
			t.Errorf("%s: %q, %+v", session, content, got.OCIP)
		}
	}
}

// Whose a channel or an agent of another tenant is, no refusal says.
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
