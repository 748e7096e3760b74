package daemon_test

import (
	"slices"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// bothServed is an app that serves the agents of both tenants in one channel.
const bothServed = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: engineering, tenant_id: globex-inc}
routes:
  - {session: "telegram:*", agent: alice}
access:
  apps:
    "@both/telegram": {channels: [telegram], tenants: [acme-corp, globex-inc]}
`

// What the agents of one tenant were shown of a session is nothing that another's
// learn from an answer.
func TestSeenIsTheTenantsOwn(t *testing.T) {
	h := build(t, bothServed)
	telegram, alice, gina := h.channel("@both/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@globex/gina")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign("conv-1", 1, "acme-corp")}}, nil)
	for range 2 {
		if got := alice.dispatch("telegram:zed", "Hello", nil).OCIP; got.ConversationID != "conv-1" {
			t.Errorf("alice, who was shown an agent, has %+v", got)
		}
		if got := gina.dispatch("telegram:zed", "Hello", nil).OCIP; got.ExchangeID != "" {
			t.Errorf("gina, who was shown nobody, has %+v", got)
		}
		// It is so from the store as well.
		h.stop()
		h.start()
		telegram, alice, gina = h.channel("@both/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@globex/gina")
	}
	listed := func() api.Contact {
		t.Helper()
		var page api.ContactListResult
		h.operator("contact.list", map[string]any{"agent": "alice"}, &page)
		if len(page.Contacts) != 1 {
			t.Fatalf("listed are %+v", page)
		}
		return page.Contacts[0]
	}
	if zed := listed(); !zed.Learned || zed.InstanceID != "agent-zed-9" || !slices.Equal(zed.SeenBy, []string{"acme-corp"}) {
		t.Errorf("listed is %+v", zed)
	}
	var got api.ContactForgetResult
	if h.operator("contact.forget", map[string]any{"sessionKey": "telegram:zed"}, &got); !got.Changed || got.InstanceID != "agent-zed-9" {
		t.Errorf("the answer is %+v", got)
	}
	if zed := listed(); zed.Kind != "unknown" || len(zed.SeenBy) != 0 {
		t.Errorf("once forgotten it is listed as %+v", zed)
	}
	if r := h.records(audit.Filter{Like: audit.Record{SessionKey: "telegram:zed", ActionType: audit.ActionSecurity}}); len(r) != 1 || r[0].Event != "contact_forgotten" {
		t.Errorf("on record is %+v", r)
	}
	h.verify()
}
