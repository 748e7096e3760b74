package daemon_test

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
)

// says has an app send a message, and returns the answer.
func (s *scout) says(session, content string, exchange object) (result api.DispatchResult) {
	s.t.Helper()
	return s.saysWith(session, content, object{"exchange": exchange})
}

func (s *scout) saysWith(session, content string, metadata object) (result api.DispatchResult) {
	s.t.Helper()
	params, err := json.Marshal(object{"sessionKey": session, "content": content, "metadata": metadata})
	if err != nil {
		s.t.Fatal(err)
	}
	var l line
	if text := s.done(s.ask("message.dispatch", string(params))); json.Unmarshal([]byte(text), &l, json.MatchCaseInsensitiveNames(true)) == nil && l.Success {
		_ = json.Unmarshal(l.Result, &result) // a refusal has no result
	}
	return result
}

// sayForbidden has apps send texts that may reach nobody; each is forbidden by exactly one rule.
func (c *canary) sayForbidden() {
	anew := object{"new": true}
	alice, bob := c.speaker("alice"), c.speaker("bob")
	targets := []string{"telegram:dave", "telegram:777", "agent:bob:main"}

	// Somebody else's name.
	for _, s := range c.apps {
		for _, other := range []string{"alice", "bob", "gina"} {
			if s.speaks == other || c.speaker(other) == nil || s.byGrant() {
				continue
			}
			for _, session := range []string{"telegram:777", "chat:7", "agent:alice:main", "agent:bob:main"} {
				text := c.never(s, "message.dispatch content", "its app does not speak for agent "+other)
				s.saysWith(session, "hello "+text, object{"agentId": other, "exchange": anew})
			}
		}
		// Somebody else's run.
		for _, other := range c.apps {
			other.mu.Lock()
			runs := other.runs
			other.mu.Unlock()
			if other.id == s.id || len(runs) == 0 {
				continue
			}
			s.done(s.ask("agent.complete", `{"runId":"`+runs[0]+`","success":false,"error":"`+c.never(s, "agent.complete error", "the run is of "+other.id)+`"}`))
		}
	}

	// More than the sender may share.
	for _, session := range targets {
		alice.says(session, c.never(alice, "message.dispatch content", "it is above what the agent may share"), object{"new": true, "classification": "confidential"})
	}

	// A promise that nobody approves.
	for _, session := range targets {
		alice.says(session, "I promise to pay by Friday "+c.never(alice, "message.dispatch content", "nobody has approved it"), anew)
	}

	// In an exchange that has ended.
	ended := object{"id": "ended" + c.unused("x")}
	alice.says("telegram:dave", c.mark(alice, "message.dispatch content"), ended)
	c.operator("exchange.resolve", object{"exchangeId": ended["id"], "outcome": "resolved"}, nil)
	alice.says("telegram:dave", c.never(alice, "message.dispatch content", "its exchange has ended"), ended)

	// While sending is paused.
	for _, scope := range []object{{"agent": "alice"}, {}} {
		c.operator("sending.pause", scope, nil)
		for _, session := range targets {
			alice.says(session, c.never(alice, "message.dispatch content", "it was said during a pause"), anew)
		}
		c.operator("sending.resume", scope, nil)
	}

	// An interceptor says no.
	for _, s := range c.apps {
		if !slices.Contains(s.intercepts, "alice") {
			continue
		}
		for _, session := range targets {
			s.mu.Lock()
			s.rejoin = []string{`{"block":true}`}
			s.mu.Unlock()
			alice.says(session, c.never(alice, "message.dispatch content", s.id+" has blocked it"), anew)
		}
	}

	// An envelope of another agent than the one in the session.
	telegram, envelope := c.apps[0], c.envelope("dave")
	envelope["source_agent"] = plus(envelope["source_agent"].(object), object{"instance_id": "agent-zed-9"})
	params, err := json.Marshal(object{"sessionKey": "telegram:dave", "text": c.never(telegram, "agent.queue text", "it names another agent than the one that is there"), "metadata": object{"ocip": envelope}})
	if err != nil {
		c.t.Fatal(err)
	}
	telegram.done(telegram.ask("agent.queue", string(params)))

	// A message approved for one receiver, sent to another. The marks are beside the text,
	// because within it their digits would be a sum of money.
	promises := func(session string, exchange object, mark string) api.DispatchResult {
		return bob.saysWith(session, "I promise to look", object{"ref": mark, "exchange": exchange})
	}
	granted := object{"id": "granted" + c.unused("g"), "classification": "public"}
	held := promises("telegram:dave", granted, c.mark(bob, "message.dispatch metadata.ref"))
	if held.Held {
		saw := c.shown(held.ApprovalID)
		c.operates().must("approval.resolve", withExchange(&saw, saw.Exchange), nil)
		if sent := promises("telegram:dave", granted, c.mark(bob, "message.dispatch metadata.ref")); sent.Held || !sent.Queued {
			c.t.Errorf("what was approved beforehand is not sent: %+v", sent)
		}
	}
	promises("agent:alice:main", object{"new": true, "classification": "public"}, c.never(bob, "message.dispatch metadata.ref", "it was approved for another receiver"))

	// One round past the limit. It comes last, because it stops the two agents.
	bounded := object{"id": "bounded" + c.unused("b"), "maxRounds": 1}
	alice.says("telegram:dave", c.mark(alice, "message.dispatch content"), bounded)
	alice.says("telegram:dave", c.never(alice, "message.dispatch content", "it is one round too many"), bounded)
}

// seizeHeld has every app ask for messages that were approved for others, and finally the
// owner for its own.
func (c *canary) seizeHeld() {
	emit := func(s *scout) (id string) {
		method, context := "hook.emit", object{"agentId": s.speaks}
		if s.byGrant() {
			method, context = "agent.emit", object{}
		}
		for _, params := range c.calls(s, method, object{brief: true, "hookName": "message_sending", "context": context, "data": object{
			"sessionKey": map[bool]string{true: "chat:eve", false: "telegram:dave"}[s.tenant == "globex-inc"], "content": free("I promise to look."), "metadata": object{"exchange": object{"new": true}},
		}}) {
			var l line
			var held api.EmitResult
			if json.Unmarshal([]byte(s.done(s.ask(method, params))), &l, json.MatchCaseInsensitiveNames(true)) == nil && l.Success && json.Unmarshal(l.Result, &held) == nil && held.Held {
				id = held.ApprovalID
			}
		}
		return id
	}
	method := func(s *scout, name string) string {
		if s.byGrant() {
			return "agent." + strings.Replace(name, "get", "approval", 1)
		}
		return "approval." + name
	}
	params := func(s *scout, id string) string {
		if s.byGrant() {
			return `{"approval_id":"` + id + `"}`
		}
		return `{"approvalId":"` + id + `"}`
	}
	given := make(map[string]int)
	for _, owner := range c.apps {
		if owner.speaks == "" {
			continue
		}
		id := emit(owner)
		if id == "" {
			c.t.Errorf("nothing of %s is held", owner.id)
			continue
		}
		ask := func(s *scout) {
			s.done(s.ask(method(s, "get"), params(s, id)))
			s.done(s.ask(method(s, "redeemable"), `{}`))
			if strings.Contains(s.done(s.ask(method(s, "redeem"), `{"approvalId":"`+id+`"}`)), `"claim"`) {
				given[id]++
			}
		}
		for _, approved := range []bool{false, true} {
			if approved {
				c.decides(api.DecideApprove, id)
			}
			for _, s := range c.apps {
				if s.id != owner.id {
					ask(s)
				}
			}
		}
		ask(owner)
		ask(owner)
	}
	for id, times := range given {
		if times > 1 {
			c.t.Errorf("noticed: the message of approval %s is given out %d times", id, times)
		}
	}
	if len(given) == 0 && !c.single {
		c.t.Error("nothing that was approved is given out")
	}
}
