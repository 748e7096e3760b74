package daemon_test

import (
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// An envelope with a line of causes that cannot be read makes no person's message of
// what comes in under an agent's own key, whoever brings it.
func TestAttack1UnreadableLineUnderAnAgentsKey(t *testing.T) {
	h := build(t, declaredTenants)
	gina := h.agent("@globex/gina")
	for _, id := range []string{"@nobody/stranger", "@acme/alice"} {
		gina.must("app.heartbeat", nil, nil)
		a := h.register(id, api.Capabilities{})
		e := a.refuse(api.Forbidden, "agent.queue", map[string]any{"sessionKey": "agent:gina:main", "text": "I promise it.", "metadata": map[string]any{
			"ocip": map[string]any{
				"version": "1.0", "message_type": "agent-generated", "classification": "internal", "conversation_id": "c",
				"source_agent":   map[string]any{"instance_id": "agent-eve-1", "user_id": "eve", "org_unit": "sales", "tenant_id": "globex-inc"},
				"exchange_round": 1, "max_rounds": 3, "capabilities": map[string]any{"can_commit": false, "can_share": []string{"public"}},
				"reply_policy": "agent-ok", "requires_commitment": false, "expires_at": "2099-03-14T10:00:00.000Z",
			},
			"ocipChain": "none",
		}})
		contains(t, e.Message, "agent:gina:main")
		if r := h.records(audit.Filter{App: id, Result: "deny"}); len(r) != 1 || r[0].Event != "bringing_refused" {
			t.Errorf("records of %s are %+v", id, r)
		}
	}
}

// Another tenant's app is not named to one that wants what it has.
func TestAppsOfAnotherTenantAreNotNamed(t *testing.T) {
	h := build(t, declaredTenants)
	owner := h.registered("@globex/gina", `{"tools":{"provides":["search"]}}`)
	owner.grant("capability.register", `{"type":"tool","config":{"toolId":"search"}}`)
	for id, want := range map[string]string{"@acme/alice": "tool search belongs to another app", "@globex/filter": "tool search belongs to app @globex/gina"} {
		w := h.registered(id, `{"tools":{"provides":["search"]}}`)
		contains(t, string(w.grant("capability.register", `{"type":"tool","config":{"toolId":"search"}}`).Result), `"granted":false`, want)
	}
}

// An app of a channel is shown no session of an agent that it does not serve, and an
// agent's app none that another tenant's runtime has written to.
func TestSessionsOfAnotherTenantAreNotShown(t *testing.T) {
	h := build(t, declaredTenants)
	telegram, alice, gina := h.channel("@acme/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@globex/gina")
	for _, session := range []string{"telegram:from-gina", "loose:from-gina"} {
		gina.must("hook.emit", map[string]any{"hookName": "message_sending", "data": map[string]any{"sessionKey": session, "content": "hello"}}, nil)
	}
	for _, a := range []*app{telegram, alice} {
		var list api.SessionListResult
		if a.must("session.list", nil, &list); list.Total != 0 {
			t.Errorf("%s is shown %+v", a.id, list.Sessions)
		}
	}
}

// What interceptors have seen is on record, also where the message turns out to be of
// no exchange that it could be of.
func TestInterceptedAndOfAnotherConversation(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	h.channel("@openclawos/telegram", "telegram")
	alice.dispatch("telegram:dave", "one", map[string]any{"exchange": map[string]any{"id": "x1", "conversationId": "c1"}})
	alice.refuse(api.Conflict, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "two", "metadata": map[string]any{"exchange": map[string]any{"id": "x1", "conversationId": "c2"}}})
	r := h.records(audit.Filter{App: "@acme/alice", Result: "deny"})
	if len(r) != 1 || r[0].Event != "exchange_refused" || r[0].ContentDigest == "" || r[0].DispatchID == "" {
		t.Errorf("records are %+v", r)
	}
}
