package daemon_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/store/db"
)

// Rows of waiting messages are changed while the daemon is stopped: by an attacker who can
// write the database, and has the key of rows for one of them; the configuration by its
// owner. No app receives a text that was not decided for it, or that may no longer be sent.
func TestCanaryOfWhatWaits(t *testing.T) {
	const frank = "  - {instance_id: agent-frank-1, user_id: frank, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: [\"telegram:frank\"]}\n"
	yaml := strings.Replace(declaredTenants, "directory:\n", "directory:\n"+frank, 1)
	channel := standing{id: "@acme/telegram", tenant: "acme-corp", owns: []string{"telegram"}}
	sender := standing{id: "@acme/bob", tenant: "acme-corp", speaks: "bob"}
	c := newCanary(t, yaml, false, channel)
	telegram := c.apps[0]
	leaves := func(s *scout) {
		s.conn.Close()
		<-s.ended
		c.waitGone(s.id)
		c.late = append(c.late, s)
	}

	// For alice, who is away.
	brings := func(session, text string) {
		t.Helper()
		telegram.get("agent.queue", `{"sessionKey":"`+session+`","text":"`+text+`"}`)
	}
	brings("telegram:dave", c.mark(telegram, "agent.queue text"))
	brings("telegram:frank", c.never(telegram, "agent.queue text", "frank is of another tenant by now"))
	session := "telegram:" + c.mark(telegram, "agent.queue sessionKey")
	brings(session, c.mark(telegram, "agent.queue text"))
	leaves(telegram)

	// For the channel, whose app has gone.
	bob := c.dialScout(sender)
	bob.enlist()
	says := func(session, text string, exchange object) {
		t.Helper()
		if sent := bob.says(session, text, exchange); !sent.Waiting {
			t.Fatalf("sent as %+v", sent)
		}
	}
	anew := object{"new": true}
	says("telegram:dave", c.mark(bob, "message.dispatch content"), anew)
	edited := c.mark(bob, "message.dispatch content")
	says("telegram:dave", edited, anew)
	says("telegram:dave", c.never(bob, "message.dispatch content", "a person has ended its exchange"), object{"id": "ended"})
	c.operator("exchange.resolve", object{"exchangeId": "ended", "outcome": "resolved"}, nil)
	dropped := bob.says("agent:alice:main", c.never(bob, "message.dispatch content", "a person has dropped it"), object{"id": "dropped"})
	c.operator("queue.drop", object{"dispatchIds": []string{dropped.DispatchID}}, nil)
	leaves(bob)

	c.stop()
	written := c.never(bob, "message.dispatch content", "somebody has written it into the database")
	c.rewriteRows(func(w *db.Writer) error {
		_, err := w.Amend("a message", "outbox", func(v []db.Value) { v[5] = db.Text(strings.Replace(v[5].String(), edited, written, 1)) }, "true")
		return err
	})
	c.configure(strings.Replace(yaml, frank, strings.Replace(frank, "acme-corp", "globex-inc", 1), 1))
	c.start()

	returns := func() {
		c.late, c.apps = append(c.late, c.apps...), nil
		for _, like := range []standing{
			channel, sender,
			{id: "@acme/alice", tenant: "acme-corp", speaks: "alice"}, {id: "@globex/chat", tenant: "globex-inc", owns: []string{"chat"}},
			{id: "@globex/gina", tenant: "globex-inc", speaks: "gina"}, {id: "@acme/watcher", tenant: "acme-corp", observes: []string{"alice", "bob"}},
		} {
			s := c.dialScout(like)
			s.enlist()
			c.apps = append(c.apps, s)
		}
	}
	c.apps = nil
	returns()
	alice := c.speaker("alice")
	alice.done(alice.ask("exchange.get", `{"exchangeId":"dropped"}`))
	bounded := object{"id": "bounded", "maxRounds": 1}
	c.speaker("bob").says("telegram:dave", c.mark(bob, "message.dispatch content"), bounded)
	c.settle()
	c.listens("message.dispatch content", "agent.queue text")

	// An exchange at its limit is set back: the daemon refuses to start.
	c.stop()
	c.editRows(`UPDATE exchanges SET state = replace(state, '"round":1', '"round":0') WHERE id = 'bounded'`)
	if err := c.tryStart(); err == nil || !strings.Contains(err.Error(), "exchange bounded of agent agent-bob-1: the row says round 0, record") {
		t.Fatalf("the start: %v", err)
	}
	c.editRows(`UPDATE exchanges SET state = replace(state, '"round":0', '"round":1') WHERE id = 'bounded'`)
	c.start()
	returns()
	c.speaker("bob").says("telegram:dave", c.never(bob, "message.dispatch content", "it is one round too many"), bounded)
	c.settle()
	c.operator("exchange.resolve", object{"exchangeId": "bounded", "outcome": "resolved"}, nil)

	// A person approves the shown text, and the row contains another.
	holds := func(why string) api.Approval {
		text := c.mark(bob, "message.dispatch content")
		if why != "" {
			text = c.never(bob, "message.dispatch content", why)
		}
		sent := c.speaker("bob").says("telegram:dave", "I promise to look "+text, anew)
		if !sent.Held {
			t.Errorf("a promise is not held: %+v", sent)
			return api.Approval{}
		}
		return c.shown(sent.ApprovalID)
	}
	approves := func(id string, saw *api.Approval) {
		params := decision(api.DecideApprove, saw)
		params["approvalId"] = id
		_ = c.operates().call("approval.resolve", params, nil)
	}
	saw, other := holds(""), holds("the person has approved another message")
	approves(other.ApprovalID, &saw)
	approves(saw.ApprovalID, &saw)
	moved := holds("the receiver is not whom the person saw")
	c.reloaded(strings.Replace(yaml, "user_id: dave", "user_id: dora", 1))
	approves(moved.ApprovalID, &moved)

	// From now on approvals have to be signed. A session is moved to another tenant by an
	// attacker without the key of rows.
	c.stop()
	c.editRows(`UPDATE sessions SET agent_id = 'gina', identified = 'globex-inc/agent-gina-1' WHERE key = '` + session + `'`)
	c.allow(listed(t, "carol", ""))
	c.configure(strings.Replace(yaml, "approvals: {", "approvals: {allowed_signers: "+strconv.Quote(c.path("signers"))+", ", 1))
	c.start()
	returns()
	unsigned := holds("nobody has signed the approval")
	approves(unsigned.ApprovalID, &unsigned)

	gina := c.speaker("gina")
	gina.done(gina.ask("session.get", `{"key":"`+session+`"}`))

	// An impostor claims to be alice's app, without its token.
	impostor := c.dialScout(standing{id: "an impostor"})
	c.late = append(c.late, impostor)
	impostor.token = "wrong"
	var l line
	var registered api.RegisterResult
	if json.Unmarshal([]byte(impostor.done(impostor.ask("app.register", wants("@acme/alice")))), &l, json.MatchCaseInsensitiveNames(true)) == nil && l.Success && json.Unmarshal(l.Result, &registered) == nil {
		impostor.token = registered.Token
		impostor.done(impostor.ask("hook.subscribe", `{"events":["message_received"]}`))
		impostor.done(impostor.ask("app.ready", `{}`))
	}
	c.speaker("bob").says("agent:alice:main", c.mark(bob, "message.dispatch content"), anew)
	c.settle()
	impostor.done(impostor.ask("app.heartbeat", `{}`))
	c.judge()
}
