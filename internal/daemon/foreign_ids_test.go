package daemon_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/ipc"
	"github.com/openclawos/ocipd/internal/task"
)

// bothTenants has apps, agents with grants and actors of tasks on both sides of the wall.
const bothTenants = `
agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: bob, app: "@acme/bob", instance_id: agent-bob-1, user_id: bob, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: vera, instance_id: agent-vera-1, user_id: vera, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: gina, app: "@globex/gina", instance_id: agent-gina-1, user_id: gina, org_unit: engineering, tenant_id: globex-inc, max_classification_shared: internal}
  - {id: gil, app: "@globex/gil", instance_id: agent-gil-1, user_id: gil, org_unit: engineering, tenant_id: globex-inc, max_classification_shared: internal}
  - {id: gus, instance_id: agent-gus-1, user_id: gus, org_unit: engineering, tenant_id: globex-inc, max_classification_shared: internal}
routes:
  - {session: "telegram:*", agent: alice}
  - {session: "irc:*", agent: gina}
access:
  apps:
    "@acme/telegram": {channels: [telegram], tenants: [acme-corp]}
    "@acme/tools": {tenants: [acme-corp]}
    "@globex/irc": {channels: [irc], tenants: [globex-inc]}
channels: {telegram: {botToken: secret}, irc: {nick: g}}
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme-corp}
    - {name: builder, role: executor, tenant_id: acme-corp}
    - {name: checker, role: spec_reviewer, tenant_id: acme-corp}
    - {name: critic, role: quality_reviewer, tenant_id: acme-corp}
    - {name: gate, role: lobster, tenant_id: acme-corp}
    - {name: chief, role: orchestrator, tenant_id: globex-inc}
    - {name: maker, role: executor, tenant_id: globex-inc}
    - {name: judge, role: spec_reviewer, tenant_id: globex-inc}
    - {name: porter, role: lobster, tenant_id: globex-inc}
  self_approval: true
  self_review: true
`

// namesNothing lists the methods by which nobody can name an id of another tenant, each with the
// reason.
var namesNothing = map[string]string{
	"app.register":        "an app is who the operating system says; a free id can be registered by whoever may be that app",
	"app.heartbeat":       "no id",
	"app.ready":           "no id",
	"app.shutdown":        "no id",
	"hook.subscribe":      "names of hooks alone",
	"hook.unsubscribe":    "names of hooks alone",
	"approval.redeemable": "no id",
	"task.attach":         "a token; any other than the caller's own is wrong",
	"task.list_ready":     "no id",
	"agent.read":          "a cursor that the daemon has sealed for the agent",
	"agent.contacts":      "no id",
	"agent.redeemable":    "no id",
	"agent.watch":         "no id",
	"kernel.describe":     "no id",
}

// naming is a request that names an id, written as %s.
type naming struct {
	by, method, kind, params string
	// walled requests send a message to the id. The refusal is the tenant wall's, which tells the
	// sender that the receiver belongs to another tenant (docs/security/not-yet.md), and no more.
	walled bool
	// allowed requests succeed for the caller. Of all others no one may.
	allowed bool
}

// named are the rows of the table. Later rows may take an id into use that earlier ones need free.
var named = []naming{
	{by: "gina", method: "capability.register", kind: "channel", params: `{"type":"channel","config":{"channelId":"%s"}}`, allowed: true},
	{by: "gina", method: "capability.unregister", kind: "capability", params: `{"capabilityId":"%s"}`, allowed: true},
	{by: "irc", method: "hook.result", kind: "event", params: `{"eventId":"%s","result":{"delivered":true}}`, allowed: true},
	{by: "irc", method: "app.acknowledge", kind: "event", params: `{"id":"%s"}`, allowed: true},
	{by: "gina", method: "config.get", kind: "channel", params: `{"path":"channels.%s"}`, allowed: true},
	{by: "gina", method: "config.watch", kind: "channel", params: `{"paths":["channels.%s"]}`, allowed: true},
	{by: "gina", method: "session.get", kind: "session", params: `{"key":"%s"}`, allowed: true},
	{by: "irc", method: "session.get", kind: "session", params: `{"key":"%s"}`, allowed: true},
	{by: "gina", method: "session.list", kind: "agent", params: `{"filter":{"agentId":"%s"}}`, allowed: true},
	{by: "gina", method: "session.list", kind: "channel", params: `{"filter":{"channelId":"%s"}}`, allowed: true},
	{by: "gina", method: "stream.cancel", kind: "stream", params: `{"requestId":"%s"}`, allowed: true},
	{by: "gina", method: "agent.complete", kind: "run", params: `{"runId":"%s","success":true}`},

	{by: "gina", method: "agent.queue", kind: "agent", params: `{"sessionKey":"agent:%s:main","text":"hello"}`},
	{by: "irc", method: "agent.queue", kind: "agent", params: `{"sessionKey":"agent:%s:main","text":"hello"}`},
	{by: "irc", method: "agent.queue", kind: "agent", params: `{"sessionKey":"agent:%s:main","text":"hello","metadata":{"ocip":` + envelope("c", "agent-zed-9", "globex-inc") + `}}`},
	{by: "irc", method: "agent.queue", kind: "agent", params: `{"sessionKey":"agent:%s:main","text":"hello","metadata":{"ocip":` + envelope("c", "agent-zed-9", "acme-corp") + `}}`},
	{by: "irc", method: "agent.queue", kind: "agent", params: `{"sessionKey":"agent:%s:main","text":"hello","metadata":{"ocip":` + envelope("c", "agent-gina-1", "globex-inc") + `,"ocipChain":7}}`},
	{by: "gina", method: "agent.queue", kind: "session", params: `{"sessionKey":"%s","text":"hello"}`},
	{by: "irc", method: "agent.queue", kind: "session", params: `{"sessionKey":"%s","text":"hello"}`},
	{by: "gina", method: "agent.queue", kind: "task", params: `{"sessionKey":"agent:gina:main","text":"hello","metadata":{"task":{"id":"%s"}}}`},
	{by: "irc", method: "agent.queue", kind: "task", params: `{"sessionKey":"irc:q","text":"hello","metadata":{"task":{"id":"%s"}}}`},

	{by: "gina", method: "hook.emit", kind: "agent", params: `{"hookName":"message_received","context":{"agentId":"%s"},"data":{"sessionKey":"irc:q","content":"hello"}}`},
	{by: "gina", method: "hook.emit", kind: "agent", params: `{"hookName":"message_received","context":{"agentId":"%s"},"data":{"sessionKey":"telegram:q","content":"hello"}}`},
	{by: "gina", method: "hook.emit", kind: "agent", params: `{"hookName":"message_received","data":{"sessionKey":"agent:%s:main","content":"hello"}}`},
	{by: "irc", method: "hook.emit", kind: "agent", params: `{"hookName":"message_received","context":{"agentId":"%s"},"data":{"sessionKey":"irc:q","content":"hello"}}`},
	{by: "irc", method: "hook.emit", kind: "agent", params: `{"hookName":"message_received","data":{"sessionKey":"agent:%s:main","content":"hello","metadata":{"ocip":` + envelope("c", "agent-zed-9", "globex-inc") + `}}}`},
	{by: "irc", method: "hook.emit", kind: "both", params: `{"hookName":"message_received","context":{"agentId":"alice"},"data":{"sessionKey":"irc:q","content":"hello","metadata":{"task":{"id":"%s"}}}}`},
	{by: "gina", method: "hook.emit", kind: "task", params: `{"hookName":"message_received","data":{"sessionKey":"agent:gina:main","content":"hello","metadata":{"task":{"id":"%s"}}}}`, allowed: true},
	{by: "gina", method: "hook.emit", kind: "session", params: `{"hookName":"message_received","data":{"sessionKey":"%s","content":"hello"}}`},
	{by: "gina", method: "hook.emit", kind: "agent", params: `{"hookName":"message_sending","context":{"agentId":"%s"},"data":{"sessionKey":"irc:q","content":"hello"}}`},
	{by: "gina", method: "hook.emit", kind: "agent", params: `{"hookName":"tool_executing","context":{"agentId":"%s"},"data":{"toolName":"t"}}`},
	{by: "gina", method: "hook.emit", kind: "session", params: `{"hookName":"tool_executing","context":{"agentId":"gina","sessionKey":"%s"},"data":{"toolName":"t"}}`},
	{by: "gina", method: "hook.emit", kind: "task", params: `{"hookName":"message_sending","data":{"sessionKey":"agent:gil:main","content":"hello","metadata":{"task":{"id":"%s"}}}}`, allowed: true},

	{by: "gina", method: "exchange.get", kind: "exchange", params: `{"exchangeId":"%s"}`},
	{by: "gina", method: "exchange.list", kind: "instance", params: `{"agent":"%s"}`},
	{by: "gina", method: "exchange.list", kind: "instance", params: `{"agent":"agent-gina-1","counterparty":"%s"}`, allowed: true},
	{by: "gina", method: "exchange.list", kind: "exchange", params: `{"agent":"agent-gina-1","before":"%s"}`, allowed: true},
	{by: "gina", method: "exchange.resolve", kind: "exchange", params: `{"exchangeId":"%s","outcome":"resolved"}`},
	{by: "gina", method: "exchange.resolve", kind: "exchange", params: `{"exchangeId":"%s","agent":"agent-alice-1","outcome":"resolved"}`},
	{by: "gina", method: "approval.get", kind: "approval", params: `{"approvalId":"%s"}`},
	{by: "gina", method: "approval.redeem", kind: "approval", params: `{"approvalId":"%s"}`},
	{by: "gina", method: "approval.confirm", kind: "approval", params: `{"claim":"%s","outcome":"sent"}`},
	{by: "gina", method: "approval.confirm", kind: "claim", params: `{"claim":"%s","outcome":"sent"}`},
	{by: "gina", method: "approval.confirm", kind: "dispatch", params: `{"dispatchId":"%s","outcome":"sent"}`},
	{by: "gina", method: "approval.withdraw", kind: "approval", params: `{"approvalId":"%s"}`},

	{by: "gus", method: "agent.exchange", kind: "exchange", params: `{"exchange_id":"%s"}`},
	{by: "gus", method: "agent.approval", kind: "approval", params: `{"approval_id":"%s"}`},
	{by: "gus", method: "agent.redeem", kind: "approval", params: `{"approvalId":"%s"}`},
	{by: "gus", method: "agent.confirm", kind: "approval", params: `{"claim":"%s","outcome":"sent"}`},
	{by: "gus", method: "agent.confirm", kind: "claim", params: `{"claim":"%s","outcome":"sent"}`},
	{by: "gus", method: "agent.confirm", kind: "dispatch", params: `{"dispatchId":"%s","outcome":"sent"}`},
	{by: "gus", method: "agent.withdraw", kind: "approval", params: `{"approvalId":"%s"}`},
	{by: "gus", method: "agent.emit", kind: "session", params: `{"hookName":"message_received","data":{"sessionKey":"%s","content":"hello"}}`},
	{by: "gus", method: "agent.emit", kind: "agent", params: `{"hookName":"message_received","data":{"sessionKey":"agent:%s:main","content":"hello"}}`},
	{by: "gus", method: "agent.emit", kind: "task", params: `{"hookName":"message_received","data":{"sessionKey":"agent:gus:main","content":"hello","metadata":{"task":{"id":"%s"}}}}`, allowed: true},
	{by: "gus", method: "agent.send", kind: "session", params: `{"to":"%s","text":"hello"}`},
	{by: "gus", method: "agent.send", kind: "task", params: `{"to":"gil","text":"hello","task_id":"%s"}`},
	{by: "gus", method: "agent.send", kind: "agent", params: `{"to":"%s","text":"hello"}`, walled: true},
	{by: "gus", method: "agent.send", kind: "exchange", params: `{"to":"gil","text":"hello","exchange_id":"%s","new_exchange":true}`, allowed: true},

	{by: "gina", method: "message.dispatch", kind: "session", params: `{"sessionKey":"%s","content":"hello"}`},
	{by: "gina", method: "message.dispatch", kind: "agent", params: `{"sessionKey":"irc:q","content":"hello","metadata":{"agentId":"%s"}}`},
	{by: "gina", method: "message.dispatch", kind: "task", params: `{"sessionKey":"agent:gil:main","content":"hello","metadata":{"task":{"id":"%s"}}}`},
	{by: "gina", method: "message.dispatch", kind: "agent", params: `{"sessionKey":"agent:%s:main","content":"hello"}`, walled: true},
	{by: "gina", method: "message.dispatch", kind: "exchange", params: `{"sessionKey":"agent:gil:main","content":"hello","metadata":{"exchange":{"id":"%s","new":true}}}`, allowed: true},
}

// envelope is the annotation of an agent elsewhere.
func envelope(conversation, instance, tenant string) string {
	e := foreign(conversation, 1, tenant)
	e["source_agent"].(map[string]any)["instance_id"] = instance
	text, _ := json.Marshal(e, json.Deterministic(true))
	return string(text)
}

// taskNaming are the parameters of each method of tasks, with ids of the kinds of [ids].
func taskNaming() map[string][]string {
	const zero = `"sha256:0000000000000000000000000000000000000000000000000000000000000000"`
	return map[string][]string{
		"task.create":            {`{"title":"t","spec_markdown":"## Goal\nx","workspace":"w","initial_phase":"spec_draft","depends_on":["tsk_"]}`},
		"task.get":               {`{"task_id":"tsk_"}`},
		"task.transition":        {`{"task_id":"tsk_","from_phase":"spec_draft","to_phase":"spec_review","actor":"chief","actor_role":"orchestrator","reason":"r"}`},
		"task.start_attempt":     {`{"task_id":"tsk_","phase":"executing","actor":"chief","runtime":"local","executor_kind":"builder"}`},
		"task.record_checkpoint": {`{"task_id":"tsk_","attempt_id":"att_","checkpoint_type":"progress","payload":{}}`, `{"task_id":"tsk_","attempt_id":"att_","checkpoint_type":"heartbeat","payload":{}}`},
		"task.record_artifact":   {`{"task_id":"tsk_","attempt_id":"att_","kind":"other","uri":"https://x","produced_by":"maker","digest":` + zero + `}`, `{"task_id":"tsk_","attempt_id":"att_","kind":"other","uri":"out.txt","produced_by":"maker"}`},
		"task.append_review":     {`{"task_id":"tsk_","attempt_id":"att_","review_type":"spec","reviewer_ref":"judge","verdict":"blocked","findings":[{"severity":"major","message":"x"}]}`},
		"task.request_approval":  {`{"task_id":"tsk_","attempt_id":"att_","idempotency_key":"ops","requested_action":"Tell","side_effect_kind":"notification","params":{"to":"ops"},"requested_by":"chief"}`},
		"task.resolve_approval":  {`{"task_id":"tsk_","approval_id":"apr_","resolution":"rejected","resolved_by":"chief"}`},
		"task.open_circuit":      {`{"task_id":"tsk_","actor":"chief","reason":"r","latest_attempt_id":"att_"}`},
		"task.claim":             {`{"task_id":"tsk_","lease_s":0}`},
		"task.update":            {`{"task_id":"tsk_","expected_revision":99,"depends_on":["tsk_"]}`},
		"task.finish_attempt":    {`{"task_id":"tsk_","attempt_id":"att_","outcome":"succeeded"}`},
		"task.plan_effect":       {`{"task_id":"tsk_","idempotency_key":"ops","side_effect_kind":"notification","params":{"to":"ops"}}`},
		"task.run_effect":        {`{"task_id":"tsk_","effect_id":"eff_","request_digest":` + zero + `}`, `{"task_id":"tsk_","idempotency_key":"ops","request_digest":` + zero + `}`},
		"task.finish_effect":     {`{"task_id":"tsk_","effect_id":"eff_","run":1,"run_token":"x","outcome":"done"}`},
		"task.settle_effect":     {`{"task_id":"tsk_","effect_id":"eff_","outcome":"done","note":"x"}`},
		"task.cancel_effect":     {`{"task_id":"tsk_","effect_id":"eff_"}`},
		"task.kill_effect":       {`{"task_id":"tsk_","effect_id":"eff_","reason":"x"}`},
		"task.close_circuit":     {`{"task_id":"tsk_","to_phase":"spec_draft","reason":"r"}`},
		"task.ask_permission":    {`{"task_id":"tsk_","attempt_id":"att_","tool_call":{"kind":"read","in_workspace":true},"options":[]}`},
		"task.grant":             {`{"task_id":"tsk_","actor":"maker","attempt_id":"att_"}`, `{"task_id":"tsk_","actor":"builder","attempt_id":"att_"}`},
		"task.revoke_grant":      {`{"task_id":"tsk_","grant_id":"grt_"}`, `{"grant_id":"grt_"}`, `{"grant_id":"grt_alone"}`},
		"task.grants":            {`{"task_id":"tsk_","after":"grt_"}`},
		"task.list":              {`{"after":"tsk_"}`},
		"task.import":            {`{"origin":"v1:x","title":"t","phase":"spec_draft","workspace":"w","depends_on":["tsk_"]}`},
	}
}

// variable are the parts of an answer that differ between any two.
var variable = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|("timestamp":)[0-9]+|("requestId":)"q[0-9]+"|("expiresAt":)[0-9]+`)

// answer is the line of an answer without ids and times.
func (w *wire) answer(method, params string, ids ...string) (line string, allowed bool) {
	w.t.Helper()
	got := w.ask(method, params)
	text := jsontext.Value(got.line)
	if err := text.Canonicalize(); err != nil {
		w.t.Fatal(err)
	}
	line = string(text)
	for _, id := range ids {
		line = strings.ReplaceAll(line, id, "ID")
	}
	return variable.ReplaceAllString(line, "$1$2$3~"), got.Success && !strings.Contains(line, `"allowed":false`)
}

// attached is a raw connection with a grant.
func (h *harness) attached(params m) *wire {
	h.t.Helper()
	w := h.dialWire("kernel.sock")
	w.grant("task.attach", `{"token":"`+str(h.taskOperator().must("task.grant", params), "token")+`"}`)
	return w
}

// A second tenant's apps, agents and actors get the same bytes for an id of the first tenant, in
// whichever state, as for an id that nobody has. Every method that they may call is in the table or
// has a reason not to be.
func TestForeignIDsAreAnsweredAsUnknown(t *testing.T) {
	h := build(t, bothTenants)
	c := h.crew(m{"idempotency_key": "ops", "side_effect_kind": "notification", "requested_action": "Tell", "params": m{"to": "ops"}})
	c.executing()
	granted := h.taskOperator().must("task.grant", m{"task_id": c.id, "actor": "builder"})
	c.toApproval()
	asked := h.actor("gate", c.id).must("task.request_approval", m{"task_id": c.id, "idempotency_key": "ops", "requested_action": "Tell", "side_effect_kind": "notification", "requested_by": "gate"})
	alone := h.taskOperator().must("task.grant", m{"actor": "lead"})
	theirs, none := h.firstTenant(), unknownIDs()
	theirs["task"] = []string{c.id}
	theirs["both"] = theirs["task"]
	h.pause("pause", m{"agent": "bob"})

	callers := map[string]*wire{
		"gina": h.registered("@globex/gina", `{}`), "irc": h.registered("@globex/irc", `{"channels":{"provides":["irc"]},"hooks":{"subscribes":["message_sending"]}}`), "gus": h.attached(m{"agent": "gus"}),
	}
	callers["irc"].grant("capability.register", `{"type":"channel","config":{"channelId":"irc"}}`)
	callers["irc"].grant("hook.subscribe", `{"events":["message_sending"]}`)
	callers["gina"].grant("app.ready", "{}")
	h.agent("@globex/gil")
	listed := make(map[string]bool)
	for _, row := range named {
		listed[row.method] = true
		unknown := none[row.kind]
		want, allowed := callers[row.by].answer(row.method, fmt.Sprintf(row.params, unknown), unknown)
		if allowed && !row.allowed {
			t.Errorf("%s by %s %s: an unknown id is allowed: %s", row.method, row.by, row.params, want)
		}
		for i, id := range theirs[row.kind] {
			got, _ := callers[row.by].answer(row.method, fmt.Sprintf(row.params, id), id)
			if row.walled && i == 0 {
				want = got
			}
			if got != want {
				t.Errorf("%s by %s %s:\nof %s %s\n%s\nof another\n%s", row.method, row.by, row.params, row.kind, id, got, want)
			}
		}
	}
	h.foreignTasks(map[string]string{
		"tsk_": c.id, "att_": c.attempt, "eff_": str(asked, "effect_id"), "apr_": str(asked, "approval_id"), "grt_": str(granted, "grant_id"), "grt_alone": str(alone, "grant_id"),
	}, listed)
	for _, row := range daemon.MethodTable() {
		if row.Access != ipc.AccessOperator && !listed[row.Name] && namesNothing[row.Name] == "" {
			t.Errorf("%s is in no table of requests that name an id: add it to named, or to namesNothing with a reason", row.Name)
		}
		delete(namesNothing, row.Name)
	}
	for name := range namesNothing {
		t.Errorf("there is no method %s", name)
	}
}

// foreignTasks asks each method of tasks, as every kind of actor of the second tenant, about ids of the
// first.
func (h *harness) foreignTasks(theirs map[string]string, listed map[string]bool) {
	t := h.t
	t.Helper()
	chief := h.taskDial("run/kernel.sock", "chief")
	chief.must("task.attach", m{"token": h.taskOperator().must("task.grant", m{"actor": "chief"})["token"]})
	own := str(chief.must("task.create", m{"title": "Own", "spec_markdown": goodTaskSpec, "workspace": t.TempDir(), "initial_phase": "spec_review"}), "task_id")
	const nobodys = "01a1fe46-d68f-77d6-9611-d5a7674802c7"
	prefixes := []string{"att_", "eff_", "apr_", "grt_", "grt_alone"}
	for method, requests := range taskNaming() {
		listed[method] = true
		for _, name := range []string{"chief", "maker", "judge", "porter"} {
			w := h.attached(m{"actor": name})
			for _, params := range requests {
				fill := func(id string, foreign bool) string {
					text := strings.ReplaceAll(params, `"tsk_"`, `"`+id+`"`)
					for _, prefix := range prefixes {
						of := strings.TrimSuffix(prefix, "alone") + nobodys
						if foreign {
							of = theirs[prefix]
						}
						text = strings.ReplaceAll(text, `"`+prefix+`"`, `"`+of+`"`)
					}
					return text
				}
				ask := func(id string, foreign bool) string {
					line, _ := w.answer(method, fill(id, foreign), id)
					if strings.Contains(line, `"code":"INVALID_PARAMS","details":[`) {
						t.Errorf("%s %s: %s", method, fill(id, foreign), line)
					}
					return line
				}
				want := ask("tsk_"+nobodys, false)
				got := []string{ask(theirs["tsk_"], true), ask(theirs["tsk_"], false), ask("tsk_"+nobodys, true)}
				if slices.ContainsFunc(prefixes, func(p string) bool { return strings.Contains(params, p) }) && strings.Contains(params, "task_id") {
					// Of the caller's own task.
					if a, b := ask(own, true), ask(own, false); a != b {
						t.Errorf("%s by %s %s:\nwith an id of another tenant's task\n%s\nwith one of nobody\n%s", method, name, params, a, b)
					}
				}
				for _, line := range got {
					if line != want {
						t.Errorf("%s by %s %s:\nof another tenant's\n%s\nof nobody's\n%s", method, name, params, line, want)
					}
				}
			}
			w.conn.Close()
		}
	}
	if now := chief.must("task.get", m{"task_id": own}); now["phase"] == string(task.Failed) {
		t.Errorf("the own task is %v", now["phase"])
	}
}

// unknownIDs are ids that nothing has, by their kind.
func unknownIDs() map[string]string {
	const id = "01a1fe46-d68f-77d6-9611-d5a7674802c7"
	return map[string]string{
		"agent": "nobody", "instance": "agent-nobody-1", "session": "telegram:nobody", "channel": "matrix", "exchange": "no-exchange", "approval": id, "claim": id + "." + id, "dispatch": id,
		"run": id, "event": id, "capability": id, "stream": "no-stream", "task": "tsk_" + id, "both": "tsk_" + id,
	}
}

// firstTenant gives the first tenant one of everything, in several states, and returns the ids by
// their kind.
func (h *harness) firstTenant() map[string][]string {
	t := h.t
	t.Helper()
	telegram, bob := h.channel("@acme/telegram", "telegram"), h.agent("@acme/bob")
	alice := h.redeems()
	var capability api.CapabilityResult
	telegram.must("capability.register", m{"type": "channel", "config": m{"channelId": "telegram"}}, &capability)
	tools := h.registered("@acme/tools", `{}`)
	tools.write(tools.request("their-stream", "config.watch", `{}`) + "\n")
	tools.grant("app.heartbeat", "{}")

	for _, id := range []string{"open", "ended"} {
		alice.dispatch("agent:bob:main", "hello", m{"exchange": m{"id": id, "new": true}})
	}
	alice.must("exchange.resolve", m{"exchangeId": "ended", "outcome": "resolved"}, nil)
	pending := alice.emitHeld(m{"sessionKey": "agent:bob:main", "content": promise, "metadata": m{"exchange": m{"id": "waits", "new": true}}}).ApprovalID
	ready, taken := h.approved(alice), h.approved(alice)
	denied := alice.emitHeld(m{"sessionKey": "agent:bob:main", "content": promise + " too", "metadata": m{"exchange": m{"new": true}}}).ApprovalID
	h.decides(api.DecideDeny, denied)
	claim := alice.redeem(taken).Claim
	carried := alice.emit("message_sending", m{"sessionKey": "agent:bob:main", "content": "by itself", "metadata": m{"exchange": m{"new": true}}}, nil)
	alice.dispatch("telegram:dave", "hello", nil)
	var run api.QueueResult
	telegram.must("agent.queue", m{"sessionKey": "telegram:zoe", "text": "hello"}, &run)
	return map[string][]string{
		"agent": {"alice", "vera", "bob"}, "instance": {"agent-alice-1", "agent-bob-1"}, "session": {"telegram:dave", "telegram:zoe"}, "channel": {"telegram"},
		"exchange": {"open", "ended", "waits"}, "approval": {pending, ready, taken, denied}, "claim": {claim}, "dispatch": {carried.Data.DispatchID}, "run": {run.RunID},
		"event": {bob.message("hook:message_received").EventID, telegram.message("hook:message_sending").EventID}, "capability": {capability.CapabilityID}, "stream": {"their-stream"},
	}
}
