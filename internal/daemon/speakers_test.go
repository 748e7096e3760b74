package daemon_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// overheard brings in a message from an IRC room, which is refused because of the tenant wall.
func (a *app) overheard(nick, place string, more map[string]any) {
	a.t.Helper()
	metadata := map[string]any{"channelId": "irc", "from": nick, "target": place, "senderNick": nick, "isGroup": true}
	maps.Copy(metadata, more)
	e := a.refuse(api.Forbidden, "agent.queue", map[string]any{"sessionKey": "irc:direct:" + nick, "text": "Hello all", "metadata": metadata})
	if code := ocipCode(a.t, e); code != "CROSS_ENTERPRISE_BLOCKED" {
		a.t.Fatalf("%s in %s is refused as %s", nick, place, code)
	}
}

// walled checks that a message is refused because of another tenant's counterparty, about
// which its sender learns nothing.
func (a *app) walled(key string, metadata map[string]any) {
	a.t.Helper()
	e := a.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": key, "content": "Hello", "metadata": metadata})
	if code := ocipCode(a.t, e); code != "CROSS_ENTERPRISE_BLOCKED" {
		a.t.Errorf("a message to %s is refused as %s: %s", key, code, e.Message)
	}
	contains(a.t, e.Message, "ocipd contacts forget "+key)
	for _, told := range []string{"rival", "globex", "zed"} {
		if strings.Contains(e.Message, told) {
			a.t.Errorf("the sender is told %q", e.Message)
		}
	}
}

func (h *harness) forgets(key string) (got api.ContactForgetResult) {
	h.t.Helper()
	h.operator("contact.forget", map[string]any{"sessionKey": key}, &got)
	return got
}

// A speaker in a room is one of its readers, also under other sessions, and even if the
// speaker's message was refused.
func TestForeignSpeakerIsRememberedForTheRoom(t *testing.T) {
	h := build(t, onIRC)
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	alice.dispatch("irc:#team", "Hello", nil)
	irc.goesTo("#team")
	waits := alice.held("COMMITMENT_REQUIRES_HUMAN", "irc:#team", promise, nil)
	irc.overheard("rival", "#team", nil)
	irc.says("dana", "#Team", "Anybody?")
	for range 2 {
		for _, key := range []string{"irc:#team", "irc:#TEAM", "irc:direct:dana"} {
			alice.walled(key, nil)
		}
		alice.dispatch("irc:#elsewhere", "Hello", nil)
		irc.goesTo("#elsewhere")
		// The same is true from the store.
		h.restart()
		alice, irc = h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	}
	if err := h.operatorClient().Call(t.Context(), "approval.resolve", map[string]any{"approvalId": waits.ApprovalID, "decision": api.DecideApprove, "digest": h.shown(waits.ApprovalID).Digest}, nil); err == nil {
		t.Error("what was held before goes where another tenant reads by now")
	}
	irc.says("dana", "dana", "And you?")
	alice.dispatch("irc:direct:dana", "Fine.", nil)
	irc.goesTo("dana")

	if r := h.records(audit.Filter{Like: audit.Record{SessionKey: "irc:#team", Code: "CROSS_ENTERPRISE_BLOCKED"}}); len(r) != 2 || r[0].Counterparty.InstanceID != "agent-rival-1" {
		t.Errorf("on record are %d refusals: %+v", len(r), r)
	}
	if got := h.forgets("irc:#team"); !got.Changed || got.InstanceID != "agent-rival-1" {
		t.Errorf("forgotten is %+v", got)
	}
	alice.dispatch("irc:#team", "Hello again", nil)
	irc.goesTo("#team")
	h.verify()
}

// A stranger's claim of another tenant stops only that message, and a claim that contradicts
// the directory has no effect. One of the own tenant brings the rules for agents to the room.
func TestForeignEnvelopeInARoom(t *testing.T) {
	h := build(t, onIRC)
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	irc.overheard("zed", "#team", map[string]any{"ocip": foreign("conv-1", 1, "globex-inc")})
	alice.dispatch("irc:#team", "Hello", nil)
	irc.goesTo("#team")
	alice.dispatch("irc:direct:zed", "Hello", nil)
	irc.goesTo("zed")
	// A claim that contradicts the directory has no effect.
	forged := foreign("conv-2", 1, "globex-inc")
	forged["source_agent"] = map[string]any{"instance_id": "agent-friend-1", "user_id": "friend", "org_unit": "engineering", "tenant_id": "globex-inc"}
	irc.overheard("zed", "#other", map[string]any{"ocip": forged})
	alice.dispatch("irc:#other", "Hello", nil)
	irc.goesTo("#other")
	// A claim of the own tenant is only a stranger's as well: it neither removes the rules
	// for strangers nor brings those for agents, with which it could lock the room.
	irc.must("agent.queue", map[string]any{"sessionKey": "irc:direct:yan", "text": "Hello", "metadata": map[string]any{
		"target": "#third", "senderNick": "yan", "isGroup": true, "ocip": foreign("conv-3", 1, "acme-corp"),
	}}, nil)
	if got := alice.dispatch("irc:#third", "Hello", nil).OCIP; got.ExchangeID != "" {
		t.Errorf("a message where a stranger called itself an agent has %+v", got)
	}
	// An observation never outranks the configuration.
	h.reloaded(strings.Replace(onIRC, "default_agent", `  - {kind: group, sessions: ["irc:#team"], members: [agent-friend-1]}`+"\ndefault_agent", 1))
	irc.goesTo("#third")
	alice.dispatch("irc:#team", "Hello", nil)
	irc.goesTo("#team")
}

// A room belongs to the account that reads it. A sender's statement about the account has no effect.
func TestRoomsOfTwoAccounts(t *testing.T) {
	h := build(t, onIRC)
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	irc.overheard("rival", "#team", map[string]any{"accountId": "oftc"})
	irc.must("agent.queue", map[string]any{"sessionKey": "irc:direct:dana", "text": "Hello", "metadata": map[string]any{"target": "#team", "senderNick": "dana", "accountId": "libera"}}, nil)
	alice.dispatch("irc:direct:dana", "Hello", nil)
	irc.goesTo("#team")
	alice.walled("irc:#team", nil)
	alice.walled("irc:#team", map[string]any{"accountId": "libera"})
}

// An app without known address members may send to any of the names in a message.
func TestRoomOfAnUnknownChannel(t *testing.T) {
	h := build(t, strings.ReplaceAll(onIRC, "irc:", "chat:"))
	alice, chat := h.agent("@acme/alice"), h.channel("@acme/chat", "chat")
	e := chat.refuse(api.Forbidden, "agent.queue", map[string]any{"sessionKey": "chat:direct:rival", "text": "Hello", "metadata": map[string]any{
		"chatId": "team", "sender": "rival", "isGroup": true,
	}})
	if code := ocipCode(t, e); code != "CROSS_ENTERPRISE_BLOCKED" {
		t.Fatalf("refused as %s", code)
	}
	for _, key := range []string{"chat:team", "chat:group:team"} {
		alice.walled(key, nil)
	}
	if got := h.forgets("chat:team"); !got.Changed {
		t.Errorf("forgotten is %+v", got)
	}
	alice.dispatch("chat:team", "Hello", nil)
}

// A room in which agents of the own tenant spoke can contain another unit's.
func TestSpeakersOfAnotherUnit(t *testing.T) {
	h := build(t, strings.Replace(onIRC, "default_agent", `  - {instance_id: agent-sue-1, user_id: sue, org_unit: sales, tenant_id: acme-corp, sessions: ["irc:direct:sue"]}`+"\ndefault_agent", 1))
	alice, irc := h.agent("@acme/alice"), h.channel("@openclawos/irc", "irc")
	irc.says("friend", "#team", "Hello")
	irc.says("sue", "#team", "Hello")
	if e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "irc:#team", "content": "Hello", "metadata": map[string]any{"exchange": map[string]any{"classification": "confidential"}}}); e == nil {
		t.Fatal()
	}
	r := h.records(audit.Filter{Like: audit.Record{SessionKey: "irc:#team"}})
	if last := r[len(r)-1]; last.Counterparty.InstanceID != "agent-sue-1" {
		t.Errorf("it is decided as for %+v", last.Counterparty)
	}
}
