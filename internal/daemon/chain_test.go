package daemon_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// team is a company of many agents in this daemon.
func team(names ...string) string {
	var b strings.Builder
	b.WriteString("agents:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  - {id: %[1]s, app: \"@acme/%[1]s\", instance_id: agent-%[1]s-1, user_id: %[1]s, org_unit: engineering, tenant_id: acme-corp}\n", name)
	}
	return b.String()
}

// stopped sends a message that the causal chain must stop, and returns the reason.
func (a *app) stopped(session string) string {
	a.t.Helper()
	return a.held(ocip.ChainLimit, session, "Pass it on", fresh(nil)).OCIP.Reason
}

// Three agents that pass something around never use up the rounds of any pair. The chain
// stops them, even with a restart in between, until a person speaks to one of them.
func TestChainStopsThreeInACircle(t *testing.T) {
	h := build(t, team("ann", "ben", "cat")+"routes: [{session: \"chat:*\", agent: cat}]\n"+
		"directory: [{sessions: [\"chat:person\"], kind: person, user_id: pat, tenant_id: acme-corp}]\n")
	names := []string{"ann", "ben", "cat"}
	apps := make(map[string]*app)
	connect := func() {
		for _, name := range names {
			apps[name] = h.agent("@acme/" + name)
		}
	}
	connect()
	var first string
	hops := 0
	for hops < 24 {
		from, to := names[hops%3], names[(hops+1)%3]
		var result api.DispatchResult
		apps[from].must("message.dispatch", map[string]any{"sessionKey": "agent:" + to + ":main", "content": "Pass it on", "metadata": fresh(nil)}, &result)
		if result.Held {
			break
		}
		m := apps[to].message("hook:message_received")
		var chain ocip.Chain
		apps[to].decode(m.Metadata["ocipChain"], &chain)
		if hops++; hops == 1 {
			first = chain.ID
		}
		if chain.ID != first || chain.Hops != hops {
			t.Fatalf("message %d has chain %+v, want %s", hops, chain, first)
		}
		if hops == 5 {
			h.stop()
			h.start()
			connect()
		}
	}
	// ann is revisited by messages 3, 6 and 9; the third time exceeds the limit.
	if hops != 8 {
		t.Errorf("stopped after %d messages, want 8", hops)
	}
	reason := apps["cat"].stopped("agent:ann:main")
	contains(t, reason, first, "agent-ann-1 for the 3rd time", "agent-ann-1 → agent-ben-1 → agent-cat-1 → agent-ann-1")
	denied := h.records(audit.Filter{Like: audit.Record{PolicyResult: "require_approval", ActionType: audit.ActionExchange}})
	if r := denied[len(denied)-1]; r.ChainID != first || r.Hops != 9 || r.Outcome != "escalated" || r.Code != string(ocip.ChainLimit) {
		t.Errorf("the record says %+v", r.Record)
	}

	// A message that cat's own app presents as a person's begins no new chain, and nothing
	// goes between cat and ann before a person has settled the stopped message.
	apps["cat"].must("agent.queue", map[string]any{"sessionKey": "agent:cat:main", "text": "Ask ann about the weather"}, nil)
	apps["cat"].held(ocip.RoundLimit, "agent:ann:main", "How is the weather, ann?", fresh(nil))
	apps["ann"].held(ocip.RoundLimit, "agent:cat:main", "How is the weather, cat?", fresh(nil))

	// A person's message on a channel does: cat's next messages begin a new chain.
	chat := h.channel("@acme/chat", "chat")
	chat.must("agent.queue", map[string]any{"sessionKey": "chat:person", "text": "Ask ben about the weather"}, nil)
	apps["cat"].dispatch("agent:ben:other", "How is the weather?", fresh(nil))
	var chain ocip.Chain
	apps["ben"].decode(apps["ben"].message("hook:message_received").Metadata["ocipChain"], &chain)
	if chain.ID == first || chain.Hops != 1 {
		t.Errorf("after a person's word the chain is %+v", chain)
	}
}

// A message in between begins a new chain if the directory knows a person there. A stranger
// may be a bot that answers everything, which would keep two agents going forever.
func TestChainBegunAnewByWhomTheDirectoryKnows(t *testing.T) {
	for key, want := range map[string]int{"chat:person": 12, "chat:owner": 12, "chat:stranger": 4, "chat:group:lobby": 4} {
		t.Run(key, func(t *testing.T) {
			h := build(t, team("ann", "ben")+"ocip: {chain: {max_hops: 4}}\nroutes: [{session: \"chat:*\", agent: ben}]\ndirectory:\n"+
				"  - {kind: person, user_id: pat, tenant_id: acme-corp, sessions: [\"chat:person\"]}\n"+
				"  - {kind: person, user_id: ben, tenant_id: acme-corp, sessions: [\"chat:owner\"]}\n")
			apps := [...]*app{h.agent("@acme/ann"), h.agent("@acme/ben")}
			chat := h.channel("@acme/chat", "chat")
			passed := 0
			for passed < 12 {
				from, to := apps[passed%2], [...]string{"ben", "ann"}[passed%2]
				if from == apps[1] {
					chat.must("agent.queue", map[string]any{"sessionKey": key, "text": "ok"}, nil)
				}
				var result api.DispatchResult
				from.must("message.dispatch", map[string]any{"sessionKey": "agent:" + to + ":main", "content": "Pass it on", "metadata": fresh(nil)}, &result)
				if result.Held {
					break
				}
				passed++
			}
			if passed != want {
				t.Errorf("%d messages passed, want %d", passed, want)
			}
		})
	}
}

// A person who resolves an escalated chain lets the agent begin anew.
func TestChainResolvedByAPerson(t *testing.T) {
	h := build(t, team("ann", "ben")+"ocip: {chain: {max_hops: 2}}\n")
	ann, ben := h.agent("@acme/ann"), h.agent("@acme/ben")
	ann.dispatch("agent:ben:main", "Hello", nil)
	ben.dispatch("agent:ann:main", "Hello", nil)
	got := ann.held(ocip.ChainLimit, "agent:ben:main", "Hello", nil)
	contains(t, got.OCIP.Reason, "has come to message 3, the limit is 2")
	var list api.ExchangeResult
	h.operator("exchange.list", map[string]any{"outcome": "escalated"}, &list)
	if len(list.Exchanges) != 1 {
		t.Fatalf("escalated: %+v", list)
	}
	h.operator("exchange.resolve", map[string]any{"exchangeId": list.Exchanges[0].ExchangeID, "outcome": "resolved"}, nil)
	ann.dispatch("agent:ben:main", "Hello again", nil)
}

// Two agents that open a new exchange for every message, so that no round counter moves,
// are stopped as well; an agent that consults many in turn is not.
func TestChainOfFreshExchanges(t *testing.T) {
	h := build(t, team("ann", "ben", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"))
	ann, ben := h.agent("@acme/ann"), h.agent("@acme/ben")
	for range 2 {
		ann.dispatch("agent:ben:main", "ping", fresh(nil))
		ben.dispatch("agent:ann:main", "pong", fresh(nil))
	}
	ann.dispatch("agent:ben:main", "ping", fresh(nil))
	contains(t, ben.stopped("agent:ann:main"), "agent-ann-1 for the 3rd time")

	ann.must("agent.queue", map[string]any{"sessionKey": "agent:ann:main", "text": "Ask everybody"}, nil)
	for i := 1; i <= 8; i++ {
		other := h.agent(fmt.Sprintf("@acme/c%d", i))
		ann.dispatch(fmt.Sprintf("agent:c%d:main", i), "How far are you?", nil)
		other.dispatch(other.message("hook:message_received").ReplyTo, "Done", nil)
		ann.message("hook:message_received")
	}
}

// Off and monitor let messages pass; monitor records what it would have stopped.
func TestChainEnforcement(t *testing.T) {
	for enforcement, want := range map[string]int{"off": 0, "monitor": 1} {
		h := build(t, team("ann", "ben")+"ocip: {chain: {max_hops: 1, enforcement: "+enforcement+"}}\n")
		ann, ben := h.agent("@acme/ann"), h.agent("@acme/ben")
		ann.dispatch("agent:ben:main", "ping", nil)
		ben.dispatch("agent:ann:main", "pong", nil)
		seen := 0
		for _, r := range h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionExchange}}) {
			for _, d := range r.Detections {
				if d.Rule == "chain.hops" && d.Shadow && r.Side == audit.SideSender {
					seen++
				}
			}
		}
		if seen != want {
			t.Errorf("%s: %d shadow detections, want %d", enforcement, seen, want)
		}
	}
}

// foreign is the envelope of an agent of another installation.
func foreign(conversation string, round int, tenant string) map[string]any {
	return map[string]any{
		"version": "1.0", "message_type": "agent-generated", "classification": "internal",
		"source_agent":    map[string]any{"instance_id": "agent-zed-9", "user_id": "zed", "org_unit": "engineering", "tenant_id": tenant},
		"conversation_id": conversation, "exchange_round": round, "max_rounds": 3,
		"capabilities": map[string]any{"can_commit": false, "can_share": []string{"public", "internal"}},
		"reply_policy": "agent-ok", "requires_commitment": false, "expires_at": "2100-01-01T00:00:00.000Z",
	}
}

// Another installation can lengthen a chain by its claims, and never shorten it. A message
// without a claim counts as an answer to the last message sent there.
func TestChainFromElsewhere(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	queue := func(conversation string, round int, chain any) error {
		metadata := map[string]any{"ocip": foreign(conversation, round, "acme-corp")}
		if chain != nil {
			metadata["ocipChain"] = chain
		}
		return telegram.call("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": metadata}, nil)
	}
	heard := func() ocip.Chain {
		t.Helper()
		alice.message("hook:message_received")
		var chain ocip.Chain
		r := h.records(audit.Filter{Like: audit.Record{Side: audit.SideReceiver}})
		chain.ID, chain.Hops = r[len(r)-1].ChainID, r[len(r)-1].Hops
		return chain
	}
	if err := queue("conv-1", 1, nil); err != nil {
		t.Fatal(err)
	}
	one := heard()
	alice.dispatch("telegram:zed", "Hi", nil)
	// It opens its own conversation and says nothing of the chain.
	if err := queue("conv-2", 1, nil); err != nil {
		t.Fatal(err)
	}
	if three := heard(); three.ID != one.ID || three.Hops != 3 {
		t.Errorf("got %+v, want message 3 of %s", three, one.ID)
	}
	alice.dispatch("telegram:zed", "Hi", nil)
	// It claims that its message begins a chain.
	short := map[string]any{"id": "x", "hops": 1, "path": []string{"agent-zed-9", "agent-alice-1"}, "startedAt": time.Now().UTC().Format(time.RFC3339)}
	if err := queue("conv-3", 1, short); err != nil {
		t.Fatal(err)
	}
	if five := heard(); five.ID != one.ID || five.Hops != 5 {
		t.Errorf("got %+v, want message 5 of %s", five, one.ID)
	}
	// It says that the chain is long.
	err := queue("conv-4", 1, map[string]any{"id": "y", "hops": 25, "path": []string{"agent-zed-9", "agent-alice-1"}, "startedAt": time.Now().UTC().Format(time.RFC3339)})
	if e := api.AsError(err); e.Code != api.Forbidden || ocipCode(t, e) != string(ocip.ChainLimit) {
		t.Errorf("a long chain: %v", err)
	}
	err = queue("conv-5", 1, map[string]any{"id": "y", "hops": 0})
	if e := api.AsError(err); e.Code != api.Forbidden || ocipCode(t, e) != string(ocip.MalformedEnvelope) {
		t.Errorf("a malformed chain: %v", err)
	}
}

// After an envelope was seen in a session, its counterparty is an agent: rounds are
// counted, and the tenant wall applies.
func TestSeenAgents(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	if got := alice.dispatch("telegram:zed", "Hello", nil); got.OCIP.ExchangeID != "" {
		t.Errorf("a stranger has an exchange: %+v", got.OCIP)
	}
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign("conv-1", 1, "acme-corp")}}, nil)
	h.stop()
	h.start()
	telegram, alice = h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	if got := alice.dispatch("telegram:zed", "Hello", nil).OCIP; got == nil || got.ConversationID != "conv-1" || got.Round != 2 {
		t.Errorf("an agent that was seen: got %+v, want round 2 of conv-1", got)
	}

	// A claim of another tenant stops only that message: otherwise anybody who can write
	// there could cut the agent off from the whole session.
	alice.dispatch("telegram:group", "Hello", nil)
	e := telegram.refuse(api.Forbidden, "agent.queue", map[string]any{"sessionKey": "telegram:group", "text": "Hello", "metadata": map[string]any{"ocip": foreign("conv-2", 1, "globex-inc")}})
	if code := ocipCode(t, e); code != string(ocip.CrossEnterpriseBlocked) {
		t.Errorf("got %s", code)
	}
	alice.dispatch("telegram:group", "Hello", nil)
	// A borrowed name identifies nobody: nothing said here counts as said to its owner.
	borrowed := foreign("conv-4", 1, "acme-corp")
	borrowed["source_agent"] = map[string]any{"instance_id": "agent-dave-1", "user_id": "dave", "org_unit": "engineering", "tenant_id": "acme-corp"}
	e = telegram.refuse(api.Forbidden, "agent.queue", map[string]any{"sessionKey": "telegram:thief", "text": "Hello", "metadata": map[string]any{"ocip": borrowed}})
	if code := ocipCode(t, e); code != string(ocip.SourceMismatch) {
		t.Errorf("got %s", code)
	}
	if got := alice.dispatch("telegram:thief", "Hello", nil); got.OCIP.ExchangeID != "" {
		t.Errorf("a thief has an exchange: %+v", got.OCIP)
	}
}
