package daemon_test

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// onIRC are people and agents of two tenants on one network.
const onIRC = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
directory:
  - {instance_id: agent-friend-1, user_id: friend, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["irc:direct:friend"]}
  - {instance_id: agent-rival-1, user_id: rival, org_unit: sales, tenant_id: globex-inc, sessions: ["irc:direct:rival"]}
  - {kind: person, user_id: dana, sessions: ["irc:direct:dana"]}
  - {kind: group, sessions: ["irc:#mixed"], members: [agent-friend-1, agent-rival-1]}
default_agent: alice
`

// says brings in a message as the stock IRC app does.
func (a *app) says(nick, place, text string) {
	a.t.Helper()
	a.must("agent.queue", map[string]any{"sessionKey": "irc:direct:" + nick, "text": text, "metadata": map[string]any{
		"channelId": "irc", "from": nick, "target": place, "senderNick": nick, "isGroup": place[0] == '#',
	}}, nil)
}

// goesTo checks that the app's next message is for a target, in every member that a
// channel's app reads.
func (a *app) goesTo(target string) delivered {
	a.t.Helper()
	m := a.message("hook:message_sending")
	if in, _ := api.Text(m.Metadata["target"]); m.Target != target || in != target {
		a.t.Fatalf("%q goes to %q, and the app reads %q; want %q", m.Content, m.Target, in, target)
	}
	return m
}

// The address of a message is part of the decision: neither a member of its metadata nor
// capital letters can redirect it to another tenant.
func TestClients01And02TheAddressIsTheDaemons(t *testing.T) {
	h := build(t, onIRC)
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	ask := func(key string, metadata map[string]any) map[string]any {
		return map[string]any{"sessionKey": key, "content": "Our roadmap, internal", "metadata": metadata}
	}
	alice.dispatch("irc:direct:friend", "How far is it?", nil)
	irc.goesTo("friend")
	alice.dispatch("irc:direct:friend", "How far is it now?", map[string]any{"target": "FRIEND"})
	irc.goesTo("friend")
	for _, target := range []any{"rival", "#team", []string{"rival"}, map[string]any{"toString": "rival"}} {
		e := alice.refuse(api.Forbidden, "message.dispatch", ask("irc:direct:friend", map[string]any{"target": target}))
		if code := ocipCode(t, e); code != "RECIPIENT_MISMATCH" {
			t.Errorf("target %v is refused as %s: %s", target, code, e.Message)
		}
	}
	for _, key := range []string{"irc:direct:rival", "irc:direct:RIVAL", "irc:rival", "irc:group:Rival", "irc:#mixed"} {
		e := alice.refuse(api.Forbidden, "message.dispatch", ask(key, nil))
		if code := ocipCode(t, e); code != "CROSS_ENTERPRISE_BLOCKED" {
			t.Errorf("%s is refused as %s: %s", key, code, e.Message)
		}
	}
	for _, key := range []string{"irc:direct:rival,friend", "irc:direct:rival@irc.example", `irc:direct:\x72ival`, "irc:direct:rival\u200b", "irc:direct:friend "} {
		alice.refuse(api.InvalidParams, "message.dispatch", ask(key, nil))
	}
	alice.held("LOOKS_LIKE_KNOWN", "irc:direct:r\u0456val", "Compare notes?", nil)
	refused := h.records(audit.Filter{Like: audit.Record{PolicyResult: "deny"}})
	if len(refused) != 9 || refused[0].Address.Target != "friend" || refused[0].Code != "RECIPIENT_MISMATCH" {
		t.Errorf("%d refusals are on record, the first %+v", len(refused), refused[0].Record)
	}
	irc.silence(t, alice, "irc:direct:dana")
}

// An answer goes to the place of the question, and not to a channel in which another tenant
// reads along.
func TestClients10AnswersGoWhereTheyWereAsked(t *testing.T) {
	h := build(t, onIRC)
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	irc.says("dana", "#team", "How far are you?")
	alice.message("hook:message_received")
	alice.dispatch("irc:direct:dana", "Nearly there.", nil)
	irc.goesTo("#team")
	e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "irc:direct:dana", "content": "Only for you.", "metadata": map[string]any{"target": "dana"}})
	if code := ocipCode(t, e); code != "RECIPIENT_MISMATCH" {
		t.Errorf("an answer elsewhere is refused as %s", code)
	}
	contains(t, e.Message, "metadata.target", `which is "#team"`)
	// After she has also written in private, each message is answered in its own place.
	irc.says("dana", "dana", "And the budget?")
	alice.dispatch("irc:direct:dana", "It will do.", nil)
	irc.goesTo("dana")
	alice.dispatch("irc:direct:dana", "Nearly there, all.", map[string]any{"target": "#team"})
	irc.goesTo("#team")
	// If another tenant reads along, nobody gets an answer.
	irc.says("dana", "#mixed", "Anybody?")
	e = alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "irc:direct:dana", "content": "Here."})
	if code := ocipCode(t, e); code != "CROSS_ENTERPRISE_BLOCKED" {
		t.Errorf("an answer where a rival reads is refused as %s", code)
	}
	// Another tenant's agent is behind the wall even without an envelope, in every place.
	for _, place := range []string{"rival", "#team"} {
		e = irc.refuse(api.Forbidden, "agent.queue", map[string]any{"sessionKey": "irc:direct:Rival", "text": "Hello", "metadata": map[string]any{"target": place, "senderNick": "Rival"}})
		if code := ocipCode(t, e); code != "CROSS_ENTERPRISE_BLOCKED" {
			t.Errorf("a rival's message from %s is refused as %s", place, code)
		}
	}
}

// Only the channel's app determines the address of an answer, and a held message goes to
// its original address.
func TestNobodyRedirectsAnAnswer(t *testing.T) {
	h := build(t, onIRC)
	alice, bob, irc := h.agent("@acme/alice"), h.agent("@acme/bob"), h.channel("@openclawos/irc", "irc")
	irc.says("dana", "dana", "Can you do it?")
	waits := alice.held("COMMITMENT_REQUIRES_HUMAN", "irc:direct:dana", promise, nil)
	irc.says("dana", "#team", "Hello all")
	// A report of bob's app about the session is for bob, and tells alice nothing.
	_ = bob.call("agent.queue", map[string]any{"sessionKey": "irc:direct:dana", "text": "x", "metadata": map[string]any{"agentId": "bob", "target": "mallory"}}, nil)
	h.decides(api.DecideApprove, waits.ApprovalID)
	irc.goesTo("dana")
	alice.dispatch("irc:direct:dana", "Hello to you.", nil)
	irc.goesTo("#team")
}

// Strangers who read along with an agent are told no more than strangers are.
func TestStrangersReadAlong(t *testing.T) {
	h := build(t, strings.Replace(onIRC, "max_classification_shared: internal}", "max_classification_shared: confidential}", 1)+"policy: {data: {max_classification_shared: confidential}}\n")
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	secret := map[string]any{"exchange": map[string]any{"classification": "confidential", "new": true}}
	alice.dispatch("irc:direct:friend", "The figures.", secret)
	irc.goesTo("friend")
	irc.says("friend", "#team", "The figures?")
	e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "irc:direct:friend", "content": "The figures.", "metadata": secret})
	if code := ocipCode(t, e); code != "CLASSIFICATION_VIOLATION" {
		t.Errorf("refused as %s: %s", code, e.Message)
	}
}

// All spellings of a session's key share one budget.
func TestOneBudgetForAPlace(t *testing.T) {
	h := plot(t, onIRC)
	h.flags = map[string]any{"ocip.unknown.max_messages": 2}
	h.start()
	t.Cleanup(h.stop)
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	for _, key := range []string{"irc:direct:zoe", "irc:direct:ZOE"} {
		alice.dispatch(key, "Hello", nil)
		irc.message("hook:message_sending")
	}
	for _, key := range []string{"irc:zoe", "irc:dm:Zoe", "irc:group:zoE"} {
		alice.held("BUDGET_EXCEEDED", key, "Hello", nil)
	}
}
