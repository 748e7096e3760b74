package daemon_test

import (
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// moving are two tenants. The parts that moved gives to globex belong to acme here.
const moving = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: engineering, tenant_id: globex-inc}
access:
  apps:
    "@acme/telegram": {channels: [telegram], tenants: [acme-corp]}
    "@acme/dlp": {intercepts: [alice]}
    "@moved/dlp": {intercepts: [alice]}
    "@moved/watcher": {observes: [alice]}
    "@globex/telegram": {tenants: [globex-inc]}
`

// moved is moving with the channel, the second interceptor, the observer and the id bob
// given to globex.
var moved = strings.NewReplacer(
	`"@acme/telegram": {channels: [telegram], tenants: [acme-corp]}`, `"@acme/telegram": {channels: [irc], tenants: [acme-corp]}`,
	`"@moved/dlp": {intercepts: [alice]}`, `"@moved/dlp": {intercepts: [gina]}`,
	`"@moved/watcher": {observes: [alice]}`, `"@moved/watcher": {observes: [gina]}`,
	`"@globex/telegram": {tenants: [globex-inc]}`, `"@globex/telegram": {channels: [telegram], tenants: [globex-inc]}`,
	`{id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp}`,
	`{id: bob, app: "@globex/bob", instance_id: agent-bob-2, user_id: bea, org_unit: engineering, tenant_id: globex-inc}`,
).Replace(moving)

// withdrawn waits until nothing is queued, and checks the records of the withdrawn messages.
func (h *harness) withdrawn() {
	h.t.Helper()
	h.statusUntil("an empty queue", func(s api.Status) bool { return len(s.Queues) == 0 })
	if got := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery, Event: "withdrawn"}}); len(got) != 1 {
		h.t.Errorf("on record is %+v", got)
	}
}

// A message waiting for a channel's app does not go to an app that now owns the channel but
// does not serve the sender.
func TestWhatWaitsForAChannelStaysInTheTenant(t *testing.T) {
	h := build(t, moving)
	alice := h.agent("@acme/alice")
	if sent := alice.dispatch("telegram:zed", "of acme alone", nil); !sent.Waiting {
		t.Fatalf("it is sent: %+v", sent)
	}
	h.reloaded(moved)
	telegram := h.channel("@globex/telegram", "telegram")
	h.withdrawn()
	telegram.must("app.heartbeat", nil, nil)
	telegram.silent("hook:message_sending")
}

// If the configuration changes while an interceptor looks at a message, the new one decides the
// message: it reaches nobody else.
func TestWhatIsDecidedMeanwhileStaysInTheTenant(t *testing.T) {
	for name, to := range map[string]string{"a channel": "telegram:zed", "an agent": "agent:bob:main"} {
		t.Run(name, func(t *testing.T) {
			h := build(t, moving)
			alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
			done := alice.send(to, "of acme alone")
			asked := dlp.message("hook:message_sending")
			h.reloaded(moved)
			telegram, bob := h.channel("@globex/telegram", "telegram"), h.agent("@globex/bob")
			dlp.answer(asked.EventID, map[string]any{})
			if code, _ := codeOf(t, <-done); code != api.Forbidden {
				t.Errorf("it is answered %s", code)
			}
			for a, event := range map[*app]string{telegram: "hook:message_sending", bob: "hook:message_received"} {
				a.must("app.heartbeat", nil, nil)
				a.silent(event)
			}
		})
	}
}

// An app that loses its right to an agent's messages does not see one in progress: an
// observer hears nothing, and an interceptor's answer is ignored.
func TestWhoLostItsGrantIsShownNothing(t *testing.T) {
	h := build(t, moving)
	h.channel("@acme/telegram", "telegram")
	alice, dlp := h.agent("@acme/alice"), h.interceptor("@acme/dlp", true)
	watcher := h.register("@moved/watcher", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_sending", "message_sent"}}})
	watcher.must("hook.subscribe", map[string]any{"events": []string{"message_sending", "message_sent"}}, nil)
	watcher.must("app.ready", nil, nil)

	done := alice.send("agent:bob:main", "of acme alone")
	asked := dlp.message("hook:message_sending")
	h.reloaded(moved)
	dlp.answer(asked.EventID, map[string]any{})
	if code, _ := codeOf(t, <-done); code != api.Forbidden {
		t.Errorf("it is answered %s", code)
	}
	watcher.must("app.heartbeat", nil, nil)
	watcher.silent("hook:message_sending")

	h.reloaded(moving)
	second := h.interceptor("@moved/dlp", false)
	done = alice.send("telegram:zed", "of acme alone")
	asked = dlp.message("hook:message_sending")
	h.reloaded(moved)
	dlp.answer(asked.EventID, map[string]any{})
	if code, why := codeOf(t, <-done); code != api.Forbidden || why != string(ocip.InterceptorBlocked) {
		t.Errorf("it is answered %s, %s", code, why)
	}
	second.must("app.heartbeat", nil, nil)
	second.silent("hook:message_sending")
}

// An app loses a channel that the configuration gives to another tenant's app, however long
// it stays connected, and the other app hears nothing of it.
func TestChannelIsLeftToWhoMayHaveIt(t *testing.T) {
	h := build(t, moving)
	before := h.channel("@acme/telegram", "telegram")
	gina := h.agent("@globex/gina")
	h.reloaded(moved)
	telegram := h.channel("@globex/telegram", "telegram")
	gina.dispatch("telegram:zed", "of globex", nil)
	if m := telegram.message("hook:message_sending"); !strings.HasPrefix(m.Content, "of globex") {
		t.Errorf("the channel's app gets %q", m.Content)
	}
	before.must("app.heartbeat", nil, nil)
	before.silent("hook:message_sending")
	before.Close()
	h.statusUntil("the former app gone", func(s api.Status) bool { return len(s.Apps) == 2 })
	gina.dispatch("telegram:zed", "of globex too", nil)
	telegram.message("hook:message_sending")
}

// An app hears nothing of its requests for an agent once another app speaks for that agent.
func TestApprovalIsNotTheFormerAppsAnyMore(t *testing.T) {
	h := build(t, moving)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	held := bob.held(ocip.CommitmentRequiresHuman, "agent:alice:main", "I promise to look", fresh(nil))
	elsewhere := strings.NewReplacer(`id: bob, app: "@acme/bob"`, `id: bob, app: "@acme/new"`, `id: gina, app: "@globex/gina"`, `id: gina, app: "@acme/bob"`).Replace(moving)
	h.reloaded(elsewhere)
	bob.refuse(api.NotFound, "approval.get", map[string]any{"approvalId": held.ApprovalID})
	bob.refuse(api.NotFound, "approval.withdraw", map[string]any{"approvalId": held.ApprovalID})
	saw := h.shown(held.ApprovalID)
	params := decision(api.DecideApprove, &saw)
	params["note"] = "for bob of acme alone"
	h.operates().must("approval.resolve", params, nil)
	alice.message("hook:message_received")
	h.withdrawn()
	bob.must("app.heartbeat", nil, nil)
	bob.silent(api.ApprovalEvent)
}
