package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// ownTelegram is a channel that serves one of two tenants, and an app without a channel.
var ownTelegram = strings.Replace(bothServed, `"@both/telegram": {channels: [telegram], tenants: [acme-corp, globex-inc]}`,
	`"@acme/telegram": {channels: [telegram], tenants: [acme-corp]}`+"\n    \"@nobody/stranger\": {}", 1)

// Addresses learned from messages belong to the tenant of the agent in question: they reach
// no other tenant, neither an app nor a message.
func TestBroughtIsTheTenantsOwn(t *testing.T) {
	h := build(t, ownTelegram)
	telegram, gina := h.channel("@acme/telegram", "telegram"), h.agent("@globex/gina")
	bring := func(a *app, key string) {
		t.Helper()
		a.must("agent.queue", map[string]any{"sessionKey": key, "text": "Hello", "metadata": map[string]any{"chatId": "-100999", "isGroup": true, "accountId": "of-acme"}}, nil)
	}
	bring(telegram, "telegram:55")
	// The channel's app does not serve her, so no runtime of hers delivers there.
	if got := gina.refuse(api.Forbidden, "hook.emit", map[string]any{"hookName": "message_sending", "data": map[string]any{"sessionKey": "telegram:55", "content": "Hello"}}); strings.Contains(got.Message, "999") {
		t.Errorf("she is told %s", got.Message)
	}
	// Nor does an app that serves both mix them up.
	h.reloaded(bothServed)
	h.leaves(telegram)
	telegram = h.channel("@both/telegram", "telegram")
	bring(telegram, "telegram:56")
	got := gina.emit("message_sending", map[string]any{"sessionKey": "telegram:56", "content": "Hello"}, nil)
	for _, member := range []string{"chatId", "accountId"} {
		if text := string(got.Data.Metadata[member]); strings.Contains(text, "999") || strings.Contains(text, "acme") {
			t.Errorf("what gina sends has %s %s", member, text)
		}
	}
	if got := h.forgets("telegram:56"); !got.Changed {
		t.Errorf("nothing is known of the session: %+v", got)
	}
}

// A session cannot be taken from the tenant to which the configuration gives it, and to
// other tenants' apps it looks unowned.
func TestSessionsOfTenants(t *testing.T) {
	byDefault := strings.Replace(bothServed, `routes:
  - {session: "telegram:*", agent: alice}`, "default_agent: alice", 1)
	h := build(t, byDefault+"    \"@nobody/stranger\": {}\n")
	telegram, alice, gina, stranger := h.channel("@both/telegram", "telegram"), h.agent("@acme/alice"), h.agent("@globex/gina"), h.agent("@nobody/stranger")
	gina.emit("message_sending", map[string]any{"sessionKey": "telegram:901", "content": "Hello"}, nil)
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:901", "text": "for alice"}, nil)
	if m := alice.message("hook:message_received"); m.Content != "for alice" {
		t.Errorf("alice has %+v", m)
	}
	for _, tc := range []struct {
		who    *app
		method string
		params func(key string) map[string]any
	}{
		{stranger, "agent.queue", func(key string) map[string]any { return map[string]any{"sessionKey": key, "text": "x"} }},
		{gina, "agent.queue", func(key string) map[string]any { return map[string]any{"sessionKey": key, "text": "x"} }},
		{gina, "hook.emit", func(key string) map[string]any {
			return map[string]any{"hookName": "message_received", "context": map[string]any{"agentId": "gina"}, "data": map[string]any{"sessionKey": key, "content": "x"}}
		}},
	} {
		said := func(key string) string {
			err := tc.who.call(tc.method, tc.params(key), nil)
			if err == nil {
				t.Fatalf("%s by %s is taken", tc.method, tc.who.id)
			}
			return strings.ReplaceAll(err.Error(), key, "KEY")
		}
		if used, unused := said("telegram:901"), said("telegram:902"); used != unused {
			t.Errorf("%s by %s: of a session in use %q, else %q", tc.method, tc.who.id, used, unused)
		}
	}
	// The first message of another tenant still counts as the first.
	h.reloaded(strings.Replace(byDefault, "access:", "ocip: {unknown: {first_contact: hold}}\naccess:", 1))
	// Alice's messages there reveal nothing to gina.
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:903", "text": "for alice"}, nil)
	for _, session := range []string{"telegram:903", "telegram:904"} {
		h.decides(api.DecideApprove, gina.held(ocip.FirstContactHeld, session, "Hello", nil).ApprovalID)
		gina.dispatch(session, "Hello again", nil)
	}
	h.restart()
	gina = h.again(gina)
	for _, session := range []string{"telegram:903", "telegram:904"} {
		if sent := gina.dispatch(session, "Hello once more", nil); sent.Held {
			t.Errorf("after a restart %s is held: %+v", session, sent.OCIP)
		}
	}
	var list api.SessionListResult
	gina.must("session.list", map[string]any{}, &list)
	for _, s := range list.Sessions {
		if s.AgentID != "gina" || s.ChannelID != "telegram" || !strings.HasPrefix(s.Key, "telegram:90") {
			t.Errorf("she is shown %+v", s)
		}
	}
	if list.Total != 3 {
		t.Errorf("she is shown %+v", list)
	}
}

// A stranger who claims to be one of our agents is still bound by the rules for strangers.
func TestUnconfirmedAgentIsAStrangerToo(t *testing.T) {
	h := plot(t, strings.Replace(acme, "max_rounds: 3}", "max_rounds: 3, max_classification_unknown: public}", 1))
	h.flags = map[string]any{"ocip.unknown.max_messages": 2}
	h.start()
	t.Cleanup(h.stop)
	telegram, alice := h.channel("@acme/telegram", "telegram"), h.agent("@acme/alice")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign("conv-1", 1, "acme-corp")}}, nil)
	internal := map[string]any{"exchange": map[string]any{"new": true, "classification": "internal"}}
	if code := ocipCode(t, alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:zed", "content": "Hello", "metadata": internal})); code != string(ocip.ClassificationViolation) {
		t.Errorf("what strangers may not be told is refused as %s", code)
	}
	for range 2 {
		alice.dispatch("telegram:zed", "Hello", fresh(nil))
	}
	alice.held(ocip.BudgetExceeded, "telegram:zed", "Hello", fresh(nil))
}

// No interceptor sees a text under an agent's key before it is clear that its app may bring it.
func TestUnbroughtTextIsNotIntercepted(t *testing.T) {
	h := build(t, acme+`
access:
  apps:
    "@sec/dlp": {intercepts: ["*"], observes: ["*"]}
    "@acme/telegram": {channels: [telegram]}
`)
	dlp := h.register("@sec/dlp", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}, Intercepts: []string{"message_received", "message_sending"}}})
	dlp.must("hook.subscribe", map[string]any{"events": []string{"message_received", "message_sending"}}, nil)
	dlp.must("app.ready", nil, nil)
	stranger := h.register("@some/stranger", api.Capabilities{})
	stranger.must("app.ready", nil, nil)
	e := stranger.refuse(api.Forbidden, "agent.queue", map[string]any{"sessionKey": "agent:alice:main", "text": "unbrought", "metadata": map[string]any{"ocip": foreign("conv-1", 1, "acme-corp")}})
	if code := ocipCode(t, e); code != string(ocip.SourceMismatch) {
		t.Errorf("it is refused as %s", code)
	}
	dlp.silent("hook:message_received")
}

// A session's name is the caller's choice and arrives with the message, so it is checked
// like any other text.
func TestNamesAreWeighed(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@acme/telegram", "telegram")
	alice := h.agent("@acme/alice")
	h.agent("@acme/bob")
	for _, key := range []string{"agent:bob:AKIAIOSFODNN7REALKEY", "telegram:AKIAIOSFODNN7REALKEY"} {
		if code := ocipCode(t, alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": key, "content": "Hello", "metadata": fresh(nil)})); code != string(ocip.ClassificationViolation) {
			t.Errorf("%s is refused as %s", key, code)
		}
	}
	alice.held(ocip.CommitmentRequiresHuman, "agent:bob:I promise to pay", "Hello", fresh(nil))
	for _, key := range []string{"telegram:dave", "telegram:alice", "telegram:nobody"} { // declared, the owner, and nobody
		// In this order: a refused conversation leaves an ended exchange with its name.
		for _, secret := range []map[string]any{
			{"accountId": "AKIAIOSFODNN7REALKEY"},
			{"exchange": map[string]any{"type": "information_query", "id": "AKIAIOSFODNN7REALKEY"}},
			{"exchange": map[string]any{"type": "information_query", "conversationId": "AKIAIOSFODNN7REALKEY"}},
		} {
			if code := ocipCode(t, alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": key, "content": "Hello", "metadata": secret})); code != string(ocip.ClassificationViolation) {
				t.Errorf("%v to %s is refused as %s", secret, key, code)
			}
		}
	}
	// Nor does an envelope bring it in as an unconfirmed name.
	for _, name := range []string{"user_id", "org_unit", "tenant_id"} {
		source := map[string]any{"instance_id": "agent-dave-1", "user_id": "dave", "org_unit": "engineering", "tenant_id": "acme-corp"}
		source[name] = "AKIAIOSFODNN7REALKEY"
		telegram.refuse(api.Forbidden, "agent.queue", map[string]any{"sessionKey": "telegram:dave", "text": "Hello", "metadata": map[string]any{"ocip": map[string]any{
			"version": "1.0", "message_type": "agent-generated", "classification": "internal", "conversation_id": name, "source_agent": source,
			"exchange_round": 1, "max_rounds": 3, "capabilities": map[string]any{"can_commit": false, "can_share": []string{"public", "internal"}},
			"reply_policy": "agent-ok", "requires_commitment": false, "expires_at": "2099-03-14T10:00:00.000Z",
		}}})
	}
	// Nor does the log contain it.
	for _, r := range h.records(audit.Filter{}) {
		if strings.Contains(fmt.Sprintf("%+v", r.Record), "AKIAIOSFODNN7REALKEY") {
			t.Errorf("on record: %+v", r.Record)
		}
	}
}

// A request shows the address of a message: the room of the question, whatever the name of its session.
func TestApprovalShowsTheAddress(t *testing.T) {
	h := build(t, onIRC)
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	irc.must("agent.queue", map[string]any{"sessionKey": "irc:direct:friend", "text": "Will you?", "metadata": map[string]any{
		"channelId": "irc", "from": "friend", "target": "#team", "senderNick": "friend", "isGroup": true,
	}}, nil)
	held := alice.held(ocip.CommitmentRequiresHuman, "irc:direct:friend", "I promise, room", nil)
	if got := h.shown(held.ApprovalID); got.Address.Channel != "irc" || got.Address.Target != "#team" || !got.Group {
		t.Errorf("it is shown to go to %+v, many: %v", got.Address, got.Group)
	}
}
