package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// twoHouses are the agents of two tenants in one daemon, with the rights of their apps.
const twoHouses = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: engineering, tenant_id: globex-inc, max_classification_shared: internal}
routes:
  - {session: "telegram:*", agent: alice}
  - {session: "irc:*", agent: gina}
access:
  apps:
    "@acme/telegram": {channels: [telegram], tenants: [acme-corp]}
    "@globex/irc": {channels: [irc], tenants: [globex-inc]}
    "@acme/dlp": {intercepts: [alice]}
    "@globex/watcher": {observes: [gina]}
    "@evil/all": {}
channels:
  telegram: {botToken: secret}
`

// Apps of one tenant neither hear, change, own nor read anything of the other's, whatever
// their manifests say.
func TestGrantsPartTenants(t *testing.T) {
	h := build(t, twoHouses)
	telegram := h.channel("@acme/telegram", "telegram")
	h.channel("@globex/irc", "irc")
	alice, gina := h.agent("@acme/alice"), h.agent("@globex/gina")
	everything := api.Capabilities{
		Channels: api.Provides{Provides: []string{"telegram", "junk"}},
		Hooks:    api.HookDeclaration{Subscribes: []string{"message_received", "message_sent", "session_start", "agent_starting"}, Intercepts: []string{"message_sending", "tool_executing"}},
	}
	evil := h.register("@evil/all", everything)
	var subscribed api.SubscribeResult
	hooks := map[string]any{"events": []string{"message_sending", "message_received", "message_sent", "session_start", "agent_starting", "tool_executing"}}
	evil.must("hook.subscribe", hooks, &subscribed)
	if len(subscribed.Subscribed) != 0 || len(subscribed.Denied) != 6 {
		t.Errorf("without a grant: %+v", subscribed)
	}
	for _, capability := range []map[string]any{
		{"type": "channel", "config": map[string]any{"channelId": "telegram"}},
		{"type": "channel", "config": map[string]any{"channelId": "junk"}},
	} {
		var got api.CapabilityResult
		if evil.must("capability.register", capability, &got); got.Granted || !strings.Contains(got.Reason, "access.apps") {
			t.Errorf("%v is %+v", capability, got)
		}
	}
	var value api.ConfigValue
	if evil.must("config.get", map[string]any{"path": "channels.telegram.botToken"}, &value); value.Value != nil {
		t.Errorf("it reads %v", value.Value)
	}
	if telegram.must("config.get", map[string]any{"path": "channels.telegram.botToken"}, &value); value.Value != "secret" {
		t.Errorf("the channel's app reads %v", value.Value)
	}
	evil.must("app.ready", nil, nil)

	// The other tenant's agent, interceptor and observer subscribe to their own.
	dlp, watcher := h.register("@acme/dlp", everything), h.register("@globex/watcher", everything)
	for _, a := range []*app{gina, dlp, watcher} {
		if a.must("hook.subscribe", hooks, &subscribed); a != gina && len(subscribed.Subscribed) == 0 {
			t.Errorf("%s subscribes to nothing", a.id)
		}
		a.must("app.ready", nil, nil)
	}
	alice.dispatch("telegram:stranger", "for acme alone", nil)
	contains(t, telegram.message("hook:message_sending").Content, "for acme alone")
	telegram.must("agent.queue", map[string]any{"sessionKey": "telegram:stranger", "text": "for alice alone"}, nil)
	alice.message("hook:message_received")
	if m := dlp.message("hook:message_sending"); m.Context.AgentID != "alice" {
		t.Errorf("the interceptor was asked about %+v", m.Context)
	}
	for _, a := range []*app{evil, gina, watcher} {
		a.must("app.heartbeat", nil, nil)
		for _, event := range []string{"hook:message_sending", "hook:message_received", "hook:message_sent", "hook:session_start", "hook:agent_starting"} {
			a.silent(event)
		}
	}
}

// silent fails if an app has been sent an event with a name, and keeps other events.
func (a *app) silent(event string) {
	a.t.Helper()
	var others []string
	for {
		select {
		case in := <-a.Events():
			others = append(others, in.Event)
			if in.Event == event {
				a.t.Errorf("%s was sent %s: %s (of %v)", a.id, event, in.Payload, others)
			}
			continue
		default:
		}
		return
	}
}

// News about an app goes only to the apps of its tenant.
func TestNewsOfAppsStayInTheTenant(t *testing.T) {
	h := build(t, twoHouses)
	telegram, gina, evil := h.channel("@acme/telegram", "telegram"), h.agent("@globex/gina"), h.register("@evil/all", api.Capabilities{})
	evil.must("app.ready", nil, nil)
	alice := h.agent("@acme/alice")
	alice.must("app.shutdown", map[string]any{"reason": "read this: AKIAIOSFODNN7SAMPLED"}, nil)
	in := telegram.next("app:left")
	contains(t, string(in.Payload), `"@acme/alice"`)
	if strings.Contains(string(in.Payload), "AKIA") {
		t.Errorf("it is told %s", in.Payload)
	}
	for _, a := range []*app{gina, evil} {
		a.must("app.heartbeat", nil, nil)
		a.silent("app:left")
	}
	h.leaves(evil)
	for _, a := range []*app{gina, telegram} {
		a.must("app.heartbeat", nil, nil)
		a.silent("app:lost")
	}
}

// An app loses a channel with the reload that withdraws it.
func TestChannelIsTakenAway(t *testing.T) {
	h := build(t, watched)
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	alice.dispatch("telegram:stranger", "one", nil)
	telegram.message("hook:message_sending")
	h.reloaded(strings.Replace(watched, `"@openclawos/telegram": {channels: [telegram]}`, `"@openclawos/telegram": {channels: [other]}`, 1))
	alice.dispatch("telegram:stranger", "two", nil)
	telegram.refuse(api.CapabilityDenied, "agent.queue", map[string]any{"sessionKey": "telegram:stranger", "text": "hi"})
	telegram.silent("hook:message_sending")
	h.reloaded(watched)
	for {
		// The first event may come again.
		if m := telegram.message("hook:message_sending"); strings.HasPrefix(m.Content, "two") {
			break
		}
	}
}

// An app that observes without a grant hears nothing, even if nothing is declared. The app
// of a channel hears of its channel, and an agent's app of its agent.
func TestObserversWithoutGrants(t *testing.T) {
	h := build(t, acme)
	observer := h.register("@acme/observer", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_sent", "message_received"}, Intercepts: []string{"message_sending"}}})
	var subscribed api.SubscribeResult
	observer.must("hook.subscribe", map[string]any{"events": []string{"message_sent", "message_received", "message_sending"}}, &subscribed)
	if len(subscribed.Denied) != 3 {
		t.Errorf("it subscribes: %+v", subscribed)
	}
	observer.must("app.ready", nil, nil)
	// Nor does an app that subscribed while it had the grant.
	telegram, alice := h.channel("@openclawos/telegram", "telegram"), h.agent("@acme/alice")
	alice.dispatch("telegram:stranger", "hello", nil)
	telegram.message("hook:message_sending")
	observer.must("app.heartbeat", nil, nil)
	observer.silent("hook:message_sent")
}

// A required interceptor is also asked if it owns the message's channel, and its silence
// blocks there too. While it is away, no tool runs and nothing comes in.
func TestRequiredInterceptorOwnsTheChannel(t *testing.T) {
	const required = acme + `
hooks: {answer: 300ms, apps: {"@openclawos/telegram": {required: true}}}
`
	h := build(t, required)
	alice := h.agent("@acme/alice")
	tool := func() (got struct {
		Allowed bool   `json:"allowed"`
		Reason  string `json:"reason"`
	}) {
		t.Helper()
		alice.must("hook.emit", map[string]any{"hookName": "tool_executing", "data": map[string]any{"toolName": "shell"}}, &got)
		return got
	}
	if got := tool(); got.Allowed || !strings.Contains(got.Reason, "required") {
		t.Errorf("without the required interceptor a tool is %+v", got)
	}
	chat := h.channel("@openclawos/chat", "chat")
	in := map[string]any{"sessionKey": "chat:me", "text": "hi"}
	h.reloaded(required + "default_agent: alice\n")
	chat.refuse(api.Forbidden, "agent.queue", in)

	telegram := h.register("@openclawos/telegram", api.Capabilities{
		Channels: api.Provides{Provides: []string{"telegram"}}, Hooks: api.HookDeclaration{Intercepts: []string{"message_sending", "message_received"}},
	})
	telegram.must("capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": "telegram"}}, nil)
	telegram.must("hook.subscribe", map[string]any{"events": []string{"message_sending", "message_received"}}, nil)
	telegram.must("app.ready", nil, nil)
	if got := tool(); !got.Allowed {
		t.Errorf("with it a tool is %+v", got)
	}
	done := alice.send("telegram:stranger", "hello")
	telegram.message("hook:message_sending")
	if code, ocipCode := codeOf(t, <-done); code != api.Timeout || ocipCode != string(ocip.InterceptorTimeout) {
		t.Errorf("its silence is %s, %s", code, ocipCode)
	}
	done = alice.send("telegram:stranger", "hello")
	telegram.answer(telegram.message("hook:message_sending").EventID, map[string]any{})
	if err := <-done; err != nil {
		t.Error(err)
	}
	contains(t, telegram.message("hook:message_sending").Content, "hello")

	// It is asked about incoming messages, and may stop them.
	for _, block := range []bool{false, true} {
		queued := make(chan error, 1)
		go func() { queued <- chat.call("agent.queue", in, nil) }()
		m := telegram.message("hook:message_received")
		telegram.answer(m.EventID, map[string]any{"block": block, "reason": "an injection"})
		if err := <-queued; (err != nil) != block {
			t.Errorf("blocked %t: %v", block, err)
		}
	}
	alice.message("hook:message_received")
	alice.must("app.heartbeat", nil, nil)
	alice.silent("hook:message_received")
	r := h.records(audit.Filter{Like: audit.Record{Code: string(ocip.InterceptorBlocked)}})
	if !slices.ContainsFunc(r, func(e audit.Entry) bool { return e.Side == audit.SideReceiver && e.Details["cause"] == "an injection" }) {
		t.Errorf("on record is %+v", r)
	}
}
