package daemon_test

import (
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Seeds 1: "Blocked unconditionally … enforced before any other checks." No interceptor sees
// a message to another tenant or is waited for, and none of its caller's wishes is read.
func TestSeeds01TheWallComesFirst(t *testing.T) {
	h := build(t, acme+"hooks: {answer: 60s, apps: {\"@acme/dlp\": {required: true}}}\n")
	alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
	for _, wishes := range []map[string]any{nil, {"type": "banana"}, {"id": "case\u202e"}, {"messageType": "human"}} {
		began := time.Now()
		e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:eve", "content": "compare notes?", "metadata": map[string]any{"exchange": wishes}})
		if code := ocipCode(t, e); code != string(ocip.CrossEnterpriseBlocked) {
			t.Errorf("%v: got %s", wishes, code)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%v: it took %s", wishes, took)
		}
	}
	// The interceptor first sees the message to a colleague.
	done := alice.send("telegram:dave", "hello")
	if m := dlp.message("hook:message_sending"); m.Content != "hello" {
		t.Errorf("the interceptor saw %q", m.Content)
	}
	dlp.Close()
	<-done
}

// Seeds 6: "Every message in the conversation increments exchange_round." So a
// conversation has one exchange, and a second one that names it is refused.
func TestSeeds06OneExchangeAConversation(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	first := alice.dispatch("telegram:dave", "one", map[string]any{"exchange": map[string]any{"id": "x1", "conversationId": "talk"}})
	alice.refuse(api.Conflict, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "two", "metadata": map[string]any{"exchange": map[string]any{"id": "x2", "conversationId": "talk"}}})
	next := alice.dispatch("telegram:dave", "two", map[string]any{"exchange": map[string]any{"conversationId": "talk"}})
	if next.OCIP.ExchangeID != first.OCIP.ExchangeID || next.OCIP.Round != 2 {
		t.Errorf("the conversation goes on as %+v", next.OCIP)
	}
}

// Seeds 9: "Each exchange records dataShared and dataWithheld." Seeds 10: a record also
// says so if there is none.
func TestSeeds09And10DataOfAnExchange(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	sent := alice.dispatch("agent:bob:main", "see the table", fresh(map[string]any{"data": []map[string]any{
		{"source": "crm", "fields": []string{"name"}, "classification": "public", "description": "names"},
		{"source": "hr", "fields": []string{"salary"}, "classification": "restricted", "description": "what ann earns"},
	}}))
	bob.message("hook:message_received")
	for _, side := range []struct {
		app       *app
		described string
	}{{alice, "what ann earns"}, {bob, "above the message's level"}} {
		var got api.ExchangeResult
		side.app.must("exchange.get", map[string]any{"exchangeId": sent.OCIP.ExchangeID}, &got)
		e := got.Exchanges[0]
		if len(e.DataShared) != 1 || e.DataShared[0].Source != "crm" || len(e.DataWithheld) != 1 || e.DataWithheld[0].Description != side.described {
			t.Errorf("%s is told %+v and %+v", side.app.id, e.DataShared, e.DataWithheld)
		}
	}
	plain := alice.dispatch("telegram:dave", "nothing declared", fresh(nil))
	if r := h.records(audit.Filter{Like: audit.Record{DispatchID: plain.DispatchID}}); r[0].DataShared == nil || r[0].DataWithheld == nil {
		t.Errorf("the record has %v and %v, want empty lists", r[0].DataShared, r[0].DataWithheld)
	}
}

// Seeds 11: the record of a message to a counterparty that is not an agent has the
// conversation of its envelope.
func TestSeeds11ConversationOfAPerson(t *testing.T) {
	h := build(t, acme)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	sent := alice.dispatch("telegram:4711", "hello", nil)
	got := telegram.message("hook:message_sending")
	conversation := got.envelope(t).ConversationID
	if r := h.records(audit.Filter{Like: audit.Record{DispatchID: sent.DispatchID}}); r[0].ConversationID != conversation || conversation == "" {
		t.Errorf("the record has conversation %q, the envelope %q", r[0].ConversationID, conversation)
	}
}

// Seeds 12 to 14: an observer of a sender sees its messages to an agent of this daemon, from
// the sender's side; the account is included, and the channel of agent:bob:irc:1 is irc.
func TestSeeds12To14WhatObserversSee(t *testing.T) {
	h := build(t, acme+"access: {apps: {\"@acme/watch\": {observes: [alice]}, \"@openclawos/telegram\": {channels: [telegram]}}}\n")
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	watch := h.register("@acme/watch", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_sending"}}})
	watch.must("hook.subscribe", map[string]any{"events": []string{"message_sending"}}, nil)
	watch.must("app.ready", nil, nil)
	alice.dispatch("agent:bob:irc:1", "hello", map[string]any{"accountId": "work"})
	seen := watch.message("hook:message_sending")
	if seen.RunID != "" || seen.ReplyTo != "" || seen.ChannelID == "" || seen.Target == "" || seen.Context.AgentID != "alice" || seen.Context.ChannelID != "irc" {
		t.Errorf("an observer of the sender sees %+v in %+v", seen, seen.Context)
	}
	got := bob.message("hook:message_received")
	if got.Context.AccountID != "work" || got.Context.ChannelID != "irc" {
		t.Errorf("the receiver's context is %+v", got.Context)
	}
	var list api.SessionListResult
	if bob.must("session.list", map[string]any{"filter": map[string]any{"channelId": "irc"}}, &list); list.Total != 1 {
		t.Errorf("sessions of channel irc: %+v", list)
	}
}
