package daemon_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/task"
)

// ungoverned is a company whose agents ann and ben have no app: they speak through grants.
const ungoverned = `
agents:
  - {id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal, max_rounds: 2}
  - {id: ben, instance_id: agent-ben-1, user_id: ben, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: gus, instance_id: agent-gus-1, user_id: gus, org_unit: sales, tenant_id: globex-inc, max_classification_shared: internal}
  - {id: yan, exe: /usr/bin/nothing, instance_id: agent-yan-1, user_id: yan, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
  - {instance_id: agent-eve-1, user_id: eve, org_unit: sales, tenant_id: globex-inc, accepts: [public], sessions: ["telegram:eve"]}
access: {apps: {"@acme/telegram": {channels: [telegram], tenants: [acme-corp]}, "@acme/watcher": {observes: [ben]}}}
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme-corp}
    - {name: foreign, role: orchestrator, tenant_id: globex-inc}
`

// speaker attaches with a fresh grant that names an agent.
func (h *harness) speaker(agent string) *taskCaller {
	h.t.Helper()
	granted := h.taskOperator().must("task.grant", m{"agent": agent})
	a := h.taskDial("run/kernel.sock", agent)
	a.must("task.attach", m{"token": granted["token"]})
	return a
}

// read reads an inbox, and returns the texts and the cursor after them.
func (a *taskCaller) read(params m) (messages []m, cursor string) {
	a.t.Helper()
	result := a.must("agent.read", params)
	for _, one := range result["messages"].([]any) {
		messages = append(messages, one.(m))
	}
	return messages, str(result, "cursor")
}

// An agent without an app writes to another under the rules for apps: the log has both
// sides, and read messages are gone.
func TestAgentsSpeakByGrants(t *testing.T) {
	h := build(t, ungoverned)
	ann, ben := h.speaker("ann"), h.speaker("ben")
	sent := ann.must("agent.send", m{"to": "ben", "text": "Is the build green?"})
	if str(sent, "status") != api.SentWaiting || sent["round"] != 1.0 || sent["max_rounds"] != 2.0 {
		t.Fatalf("sent %v", sent)
	}
	got, cursor := ben.read(m{})
	if len(got) != 1 || !strings.Contains(str(got[0], "text"), "Is the build green?") || !strings.Contains(str(got[0], "text"), "Sent by ann's assistant") ||
		str(got[0], "from") != "agent-ann-1" || str(got[0], "reply_to") != "agent:ann:main" || str(got[0], "dispatch_id") != str(sent, "dispatch_id") {
		t.Fatalf("read %v", got)
	}
	if again, _ := ben.read(m{}); len(again) != 1 {
		t.Errorf("without its cursor a read takes something out: %v", again)
	}
	if rest, _ := ben.read(m{"cursor": cursor}); len(rest) != 0 {
		t.Errorf("the cursor passes nothing: %v", rest)
	}
	if rest, _ := ben.read(m{"cursor": cursor}); len(rest) != 0 {
		t.Errorf("the cursor once more: %v", rest)
	}
	ben.must("agent.send", m{"to": str(got[0], "reply_to"), "text": "It is."})
	reply, _ := ann.read(m{"wait_s": 5})
	if len(reply) != 1 || reply[0]["round"] != 2.0 || str(reply[0], "exchange_id") != str(sent, "exchange_id") {
		t.Fatalf("the reply: %v", reply)
	}
	// The third round needs a person.
	held := ann.must("agent.send", m{"to": "ben", "text": "And now?"})
	if str(held, "status") != api.SentHeld || str(held, "code") != string(ocip.RoundLimit) {
		t.Fatalf("the third round: %v", held)
	}
	state := ann.must("agent.approval", m{"approval_id": held["approval_id"]})
	if str(state, "status") != api.ApprovalPending {
		t.Errorf("it waits: %v", state)
	}
	ben.refuse(api.NotFound, "", "agent.approval", m{"approval_id": held["approval_id"]})
	exchange := ann.must("agent.exchange", m{"exchange_id": sent["exchange_id"]})
	if len(exchange["exchanges"].([]any)) != 1 {
		t.Errorf("ann's side: %v", exchange)
	}
	for _, r := range h.records(audit.Filter{Like: audit.Record{DispatchID: str(sent, "dispatch_id")}}) {
		if r.Event == "read" && (r.AgentID != "agent-ben-1" || !strings.HasPrefix(r.Details["grant_id"].(string), ids.Grant)) ||
			r.Side == audit.SideSender && (r.AgentID != "agent-ann-1" || r.Details["grant_id"] == nil || r.AppID != "@ocipd/agent:ann") {
			t.Errorf("record %+v", r)
		}
	}
	if n := len(h.records(audit.Filter{Like: audit.Record{DispatchID: str(sent, "dispatch_id"), Event: "read"}})); n != 1 {
		t.Errorf("%d records of the reading", n)
	}
	h.verify()
}

// A promise waits for a person, and is sent after the approval.
func TestAgentsPromiseWaits(t *testing.T) {
	h := build(t, ungoverned)
	ann, ben := h.speaker("ann"), h.speaker("ben")
	params := m{"to": "ben", "text": "I promise to approve the contract.", "request_key": "once"}
	held := ann.must("agent.send", params)
	if str(held, "status") != api.SentHeld || str(held, "code") != string(ocip.CommitmentRequiresHuman) {
		t.Fatalf("%v", held)
	}
	if again := ann.must("agent.send", params); again["replayed"] != true || again["approval_id"] != held["approval_id"] {
		t.Errorf("asked again: %v", again)
	}
	var shown api.Approval
	h.operator("approval.get", m{"approvalId": held["approval_id"]}, &shown)
	h.operator("approval.resolve", m{"approvalId": held["approval_id"], "decision": "approve", "digest": shown.Digest}, nil)
	if again := ann.must("agent.send", params); again["replayed"] != true {
		t.Errorf("asked again after the decision: %v", again)
	}
	got, _ := ben.read(m{})
	if len(got) != 1 || str(got[0], "message_type") != "agent-assisted" {
		t.Errorf("%v", got)
	}
	if state := ann.must("agent.approval", m{"approval_id": held["approval_id"]}); str(state, "status") != api.ApprovalApproved {
		t.Errorf("%v", state)
	}
	ann.refuse(api.Conflict, "", "agent.send", m{"to": "ben", "text": "Something else.", "request_key": "once"})
}

// A grant gives an agent no further rights, and refusals are recorded.
func TestAgentsByGrantsStayWithin(t *testing.T) {
	own := fmt.Sprintf("{id: alice, uid: %d, ", os.Getuid())
	h := build(t, strings.NewReplacer("{id: alice, ", own, "agents:\n",
		"agents:\n  - {id: zoe, uid: 64001, instance_id: agent-zoe-1, user_id: zoe, org_unit: engineering, tenant_id: acme-corp}\n").Replace(ungoverned))
	ann := h.speaker("ann")
	for _, c := range []struct{ to, text, code string }{
		{"gus", "Hello.", "CROSS_ENTERPRISE_BLOCKED"},
		{"ben", "The key is AKIAIOSFODNN7SAMPLED, the secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYSAMPLEDKEY", "CLASSIFICATION_VIOLATION"},
	} {
		e := ann.refuse(api.Forbidden, "", "agent.send", m{"to": c.to, "text": c.text})
		if got := ocipCode(t, e); got != c.code {
			t.Errorf("to %s: %s", c.to, got)
		}
	}
	ann.refuse(api.InvalidParams, "", "agent.send", m{"to": "ann", "text": "To myself."})
	ann.refuse(api.NotFound, "", "agent.send", m{"to": "nobody", "text": "Hello."})
	ann.refuse(api.InvalidParams, "", "agent.send", m{"to": "ben", "text": "Hello.", "metadata": m{"ocip": m{}}})
	ann.refuse(api.Forbidden, task.NotPermitted, "task.list_ready", m{})
	ann.refuse(api.AppNotRegistered, "", "message.dispatch", m{"sessionKey": "agent:ben:main", "content": "Hello."})
	contacts := ann.must("agent.contacts", m{})
	var sessions []string
	for _, c := range contacts["contacts"].([]any) {
		sessions = append(sessions, str(c.(m), "session"))
	}
	if want := []string{"agent:zoe:main", "agent:ben:main", "agent:alice:main", "agent:yan:main", "telegram:dave"}; !slices.Equal(sessions, want) {
		t.Errorf("contacts %v, want %v", sessions, want)
	}
	nobody := h.taskDial("run/kernel.sock", "nobody")
	nobody.refuse(api.AppNotRegistered, "", "agent.read", m{})
	lead := h.actor("lead", "")
	lead.refuse(api.Forbidden, task.NotPermitted, "agent.read", m{})
	lead.refuse(api.Forbidden, task.NotPermitted, "task.grant", m{"agent": "ann"})
	operator := h.taskOperator()
	operator.refuse(api.Forbidden, "", "task.grant", m{"agent": "alice"})
	operator.refuse(api.NotFound, "", "task.grant", m{"agent": "nobody"})
	operator.refuse(api.InvalidParams, "", "task.grant", m{"agent": "ann", "actor": "foreign"})
	operator.refuse(api.InvalidParams, "", "task.grant", m{"agent": "ann", "tools": []string{"task_get"}})
	operator.refuse(api.Forbidden, "", "agent.read", m{})
	// The process must be the agent's.
	h.speaker("zoe").refuse(api.Forbidden, "", "agent.read", m{})
	h.speaker("yan").refuse(api.Forbidden, "", "agent.send", m{"to": "ben", "text": "Hello."})
	if n := len(h.records(audit.Filter{Like: audit.Record{Event: "binding_refused"}})); n != 2 {
		t.Errorf("%d records of processes that are not the agent's", n)
	}
	// A grant for both an actor and an agent, with some of its tools.
	both := operator.must("task.grant", m{"actor": "lead", "agent": "ann", "tools": []string{"task_create", "messages_read"}})
	second := h.taskDial("run/kernel.sock", "both")
	attached := second.must("task.attach", m{"token": both["token"]})
	if str(attached, "agent") != "ann" || len(attached["tools"].([]any)) != 2 {
		t.Errorf("attached %v", attached)
	}
	second.refuse(api.CapabilityDenied, task.ToolDenied, "agent.send", m{"to": "ben", "text": "Hello."})
	second.must("agent.read", m{})
	operator.must("task.revoke_grant", m{"grant_id": both["grant_id"]})
	second.refuse(api.Unauthorized, "", "agent.read", m{})
}

// The configuration gives an inbox either to an app or to a reader, and a pause loses nothing.
func TestInboxIsOnes(t *testing.T) {
	h := build(t, ungoverned)
	ann := h.speaker("ann")
	alice := h.agent("@acme/alice")
	alice.dispatch("agent:ben:main", "From alice.", nil)
	var paused api.PauseResult
	h.operator("sending.pause", m{"agent": "alice", "note": "to look"}, &paused)
	ann.must("agent.send", m{"to": "ben", "text": "From ann."})
	ben := h.speaker("ben")
	got, cursor := ben.read(m{})
	if len(got) != 1 || str(got[0], "from") != "agent-ann-1" {
		t.Fatalf("while alice is paused: %v", got)
	}
	h.operator("sending.resume", m{"agent": "alice"}, nil)
	got, cursor = ben.read(m{"cursor": cursor})
	if len(got) != 1 || str(got[0], "from") != "agent-alice-1" {
		t.Fatalf("what was kept back: %v", got)
	}
	if got, _ = ben.read(m{"cursor": cursor}); len(got) != 0 {
		t.Fatalf("left: %v", got)
	}
	ann.must("agent.send", m{"to": "ben", "text": "Once more."})
	if got, _ = ben.read(m{}); len(got) != 1 {
		t.Fatalf("read: %v", got)
	}
	// From here on the agent has an app, and a reader gets nothing any more.
	h.configure(strings.Replace(ungoverned, "{id: ben, ", `{id: ben, app: "@acme/ben", `, 1))
	h.operator("policy.reload", m{}, nil)
	ben.refuse(api.Forbidden, "", "agent.read", m{})
	app := h.agent("@acme/ben")
	if d := app.message("hook:message_received"); !strings.Contains(d.Content, "Once more.") {
		t.Errorf("the app gets %+v", d)
	}
}

// A restart between reading and cursor neither loses nor doubles anything.
func TestInboxOverRestart(t *testing.T) {
	h := build(t, ungoverned)
	ann := h.speaker("ann")
	for _, text := range []string{"One.", "Two."} {
		ann.must("agent.send", m{"to": "ben", "text": text})
	}
	granted := h.taskOperator().must("task.grant", m{"agent": "ben"})
	ben := h.taskDial("run/kernel.sock", "ben")
	ben.must("task.attach", m{"token": granted["token"]})
	first, cursor := ben.read(m{"limit": 1})
	h.stop()
	h.start()
	ben = h.taskDial("run/kernel.sock", "ben")
	ben.must("task.attach", m{"token": granted["token"]})
	again, same := ben.read(m{"limit": 1})
	if len(first) != 1 || len(again) != 1 || str(first[0], "dispatch_id") != str(again[0], "dispatch_id") || same != cursor {
		t.Fatalf("before %v, after %v", first, again)
	}
	second, cursor := ben.read(m{"cursor": cursor})
	if len(second) != 1 || !strings.Contains(str(second[0], "text"), "Two.") {
		t.Fatalf("then %v", second)
	}
	if rest, _ := ben.read(m{"cursor": cursor}); len(rest) != 0 {
		t.Errorf("left: %v", rest)
	}
}

// A cursor passes everything that its reader has had, even if some of it, including its
// last message, is gone meanwhile; and nothing newer.
func TestCursorPassesWhatIsGone(t *testing.T) {
	h := build(t, ungoverned)
	ann, ben := h.speaker("ann"), h.speaker("ben")
	for _, text := range []string{"One.", "Two.", "Three."} {
		ann.must("agent.send", m{"to": "ben", "text": text, "new_exchange": true})
	}
	got, cursor := ben.read(m{})
	if len(got) != 3 {
		t.Fatalf("it reads %v", got)
	}
	// A message that the reader has is kept while the reader is there, and counts as
	// delivered after that.
	drop := func() m {
		return h.taskOperator().must("queue.drop", m{"dispatchIds": []any{got[2]["dispatch_id"]}})
	}
	if kept := drop()["kept"].([]any); len(kept) != 1 {
		t.Error("what its reader has is dropped")
	}
	ben.c.Close()
	result := drop()
	for len(result["dropped"].([]any)) == 0 { // until its end is noticed
		result = drop()
	}
	if given := result["dropped"].([]any)[0].(m)["given"]; given != true {
		t.Errorf("%v is dropped", result)
	}
	if r := h.records(audit.Filter{Like: audit.Record{Event: "dropped"}}); len(r) != 1 || r[0].Details["given"] != true {
		t.Errorf("on record is %+v", r)
	}
	ben = h.speaker("ben")
	ann.must("agent.send", m{"to": "ben", "text": "Four.", "new_exchange": true})
	for range 2 {
		if rest, _ := ben.read(m{"cursor": cursor}); len(rest) != 1 || !strings.Contains(str(rest[0], "text"), "Four.") {
			t.Errorf("left: %v", rest)
		}
	}
	if had := h.records(audit.Filter{Like: audit.Record{Event: "read"}}); len(had) != 2 {
		t.Errorf("%d messages were read", len(had))
	}
}

// A cursor tells its reader nothing about others' activity. An invented one, or one of an
// earlier version, removes nothing.
func TestCursorSaysNothing(t *testing.T) {
	h := build(t, ungoverned)
	ann, ben, gus := h.speaker("ann"), h.speaker("ben"), h.speaker("gus")
	said := func() (string, string) {
		t.Helper()
		ann.must("agent.send", m{"to": "ben", "text": "Hello.", "new_exchange": true})
		got, cursor := ben.read(m{})
		if len(got) != 1 {
			t.Fatalf("%v", got)
		}
		return cursor, str(got[0], "dispatch_id")
	}
	first, id := said()
	record := h.records(audit.Filter{Like: audit.Record{DispatchID: id}})[0].Seq
	raw, err := base64.RawURLEncoding.DecodeString(first)
	// A short number occurs in some random texts. Eight bytes and the form SEQ.ID do not.
	if err != nil || strings.HasPrefix(first, fmt.Sprint(record)+".") || bytes.Contains(raw, binary.BigEndian.AppendUint64(nil, record)) {
		t.Errorf("the cursor %s behind record %d, %v", first, record, err)
	}
	for _, made := range []string{"17." + id, id, "999999999." + id, first[:len(first)-1], first + "AAAA"} {
		if got, _ := ben.read(m{"cursor": made}); len(got) != 1 {
			t.Errorf("%s leaves %v", made, got)
		}
	}
	if got, _ := gus.read(m{"cursor": first}); len(got) != 0 {
		t.Errorf("another agent's cursor gives %v", got)
	}
	if got, _ := ben.read(m{"cursor": first}); len(got) != 0 {
		t.Errorf("it passes nothing: %v", got)
	}
}

// A waiting reader gets new messages, and only one process reads for an agent.
func TestInboxIsWaitedFor(t *testing.T) {
	h := build(t, ungoverned)
	ann, ben := h.speaker("ann"), h.speaker("ben")
	if got, _ := ben.read(m{}); len(got) != 0 {
		t.Fatalf("%v", got)
	}
	came := make(chan []m, 1)
	go func() {
		got, _ := ben.read(m{"wait_s": 20})
		came <- got
	}()
	ann.must("agent.send", m{"to": "ben", "text": "Wake up."})
	select {
	case got := <-came:
		if len(got) != 1 {
			t.Errorf("%v", got)
		}
	case <-time.After(patience):
		t.Error("nobody woke the reader")
	}
}

// A message about a task has at least the task's level, goes to nobody outside its tenant,
// and its record names the task. Nothing is revealed about others' tasks.
func TestMessagesAboutTasks(t *testing.T) {
	h := build(t, strings.NewReplacer("agents:\n", "agents:\n  - {id: gina, app: \"@globex/gina\", instance_id: agent-gina-1, user_id: gina, org_unit: sales, tenant_id: globex-inc}\n",
		"routes:\n", "  - {kind: group, sessions: [\"telegram:-7\"], members: [agent-dave-1]}\n  - {kind: group, sessions: [\"telegram:-8\"], members: [agent-dave-1, \"telegram:99\"]}\nroutes:\n").Replace(taskTeam)+
		"access: {apps: {\"@acme/telegram\": {channels: [telegram], tenants: [acme-corp]}}}\n")
	create := func(tenant, level string) string {
		return str(h.taskOperator().must("task.create", m{
			"title": "Export", "spec_markdown": goodTaskSpec, "workspace": "main", "initial_phase": "spec_draft", "tenant_id": tenant, "classification": level,
		}), "task_id")
	}
	open := create("acme-corp", "public")
	ours, secret, others := create("acme-corp", "internal"), create("acme-corp", "confidential"), create("globex-inc", "internal")
	about := func(id string) map[string]any { return m{"task": m{"id": id}, "exchange": m{"new": true}} }
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	sent := alice.dispatch("agent:bob:main", "How far is it?", about(ours))
	if got := bob.message("hook:message_received"); string(got.Metadata["task"]) != `{"id":"`+ours+`"}` {
		t.Errorf("metadata %s", got.Metadata["task"])
	}
	records := h.records(audit.Filter{Like: audit.Record{TaskID: ours, DispatchID: sent.DispatchID}})
	if len(records) != 2 {
		t.Errorf("%d records of the message have the task", len(records))
	}
	refused := func(code ocip.Code, method string, params any) {
		t.Helper()
		if got := ocipCode(t, alice.refuse(api.Forbidden, method, params)); got != string(code) {
			t.Errorf("%s %v: %s, want %s", method, params, got, code)
		}
	}
	dispatch := func(session, id string) m {
		return m{"sessionKey": session, "content": "How far is it?", "metadata": about(id)}
	}
	refused(ocip.ClassificationViolation, "message.dispatch", dispatch("agent:bob:main", secret))
	refused(ocip.TaskRefused, "message.dispatch", dispatch("agent:bob:main", others))
	refused(ocip.TaskRefused, "message.dispatch", dispatch("agent:bob:main", "tsk_01890000-0000-7000-8000-000000000000"))
	refused(ocip.TaskRefused, "message.dispatch", dispatch("telegram:12", ours))
	refused(ocip.CrossEnterpriseBlocked, "message.dispatch", dispatch("agent:gina:main", ours))
	// All members of a group must belong to the tenant, not only the one whose rules apply.
	refused(ocip.TaskRefused, "message.dispatch", dispatch("telegram:-8", open))
	alice.dispatch("telegram:-7", "How far is it?", about(open))
	refused(ocip.TaskRefused, "agent.queue", m{"sessionKey": "agent:alice:main", "text": "hello", "metadata": m{"task": m{"id": others}}})
	alice.refuse(api.InvalidParams, "message.dispatch", m{"sessionKey": "agent:bob:main", "content": "x", "metadata": m{"task": m{"id": ours, "note": "more"}}})
	// A text that is not a task's id is the caller's own.
	alice.dispatch("agent:bob:main", "Hello.", m{"task": m{"id": "ENG-1"}, "exchange": m{"new": true}})
	alice.dispatch("agent:bob:main", "Hello.", m{"task": "later", "exchange": m{"new": true}})
	held := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", "I promise to approve it.", about(ours))
	var shown api.Approval
	h.operator("approval.get", m{"approvalId": held.ApprovalID}, &shown)
	if shown.TaskID != ours {
		t.Errorf("held with task %q", shown.TaskID)
	}
	h.operator("approval.resolve", m{"approvalId": held.ApprovalID, "decision": "approve", "digest": shown.Digest}, nil)
	if n := len(h.records(audit.Filter{Like: audit.Record{TaskID: ours, ApprovalID: held.ApprovalID}})); n < 4 {
		t.Errorf("%d records of the held message have the task", n)
	}
	emitted := m{"hookName": "message_sending", "data": m{"sessionKey": "agent:bob:main", "content": "By itself.", "metadata": about(others)}, "context": m{"agentId": "alice"}}
	var result api.EmitResult
	alice.must("hook.emit", emitted, &result)
	if result.Allowed {
		t.Error("hook.emit lets a message about another tenant's task go")
	}
}

// A waiting reader gets no message that comes after its grant has ended, or for another
// agent that now has the id.
func TestWhoWaitsIsAskedAgain(t *testing.T) {
	for name, change := range map[string]func(h *harness, grant any){
		"a grant that is revoked": func(h *harness, grant any) {
			h.taskOperator().must("task.revoke_grant", m{"grant_id": grant})
			h.speaker("ben").must("agent.send", m{"to": "ann", "text": "For ann."})
		},
		"an id of another tenant": func(h *harness, _ any) {
			h.configure(strings.Replace(ungoverned, "{id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme-corp",
				"{id: ann, instance_id: agent-ann-2, user_id: anna, org_unit: sales, tenant_id: globex-inc", 1))
			h.operator("policy.reload", m{}, nil)
			h.speaker("gus").must("agent.send", m{"to": "ann", "text": "For ann of globex."})
			if got, _ := h.speaker("ann").read(m{}); len(got) != 1 {
				h.t.Errorf("who has the id now reads %v", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, ungoverned)
			granted := h.taskOperator().must("task.grant", m{"agent": "ann"})
			ann := h.taskDial("run/kernel.sock", "ann")
			ann.must("task.attach", m{"token": granted["token"]})
			type answer struct {
				got m
				err error
			}
			came := make(chan answer, 1)
			go func() {
				got, err := ann.call("agent.read", m{"wait_s": 20})
				came <- answer{got, err}
			}()
			ann.must("agent.contacts", m{})
			change(h, granted["grant_id"])
			select {
			case a := <-came:
				if a.err == nil {
					t.Errorf("it is given %v", a.got)
				}
			case <-time.After(patience):
				t.Error("it waits on")
			}
		})
	}
}

// A grant that is revoked while an interceptor looks at an act permits the act no more, and the act
// is not on record as allowed.
func TestActThatWaitsEndsWithItsGrant(t *testing.T) {
	for name, act := range map[string]struct {
		hook, method string
		params       m
	}{
		"a message":             {"message_sending", "agent.send", m{"to": "ben", "text": "Hello."}},
		"a message with a key":  {"message_sending", "agent.send", m{"to": "ben", "text": "Hello.", "request_key": "once"}},
		"an own delivery":       {"message_sending", "agent.emit", m{"hookName": "message_sending", "data": m{"sessionKey": "agent:ben:main", "content": "Hello."}}},
		"a message from others": {"message_received", "agent.emit", m{"hookName": "message_received", "data": m{"sessionKey": "mail:pat", "content": "Hello."}}},
		"a tool call":           {"tool_executing", "agent.emit", shellCall("make")},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, ungoverned+`
hooks: {answer: 20s, apps: {"@acme/filter": {required: true}}}
`)
			hooks := []string{"message_sending", "message_received", "tool_executing"}
			filter := h.register("@acme/filter", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: hooks, Intercepts: hooks}})
			filter.must("hook.subscribe", m{"events": hooks}, nil)
			filter.must("app.ready", nil, nil)
			granted := h.taskOperator().must("task.grant", m{"agent": "ann"})
			ann := h.taskDial("run/kernel.sock", "ann")
			ann.must("task.attach", m{"token": granted["token"]})
			acts := func(meanwhile func()) error {
				done := make(chan error, 1)
				go func() {
					_, err := ann.call(act.method, act.params)
					done <- err
				}()
				asked := filter.message("hook:" + act.hook)
				meanwhile()
				filter.answer(asked.EventID, m{})
				return <-done
			}
			allowed := func() (n int) {
				for _, r := range h.records(audit.Filter{Like: audit.Record{AgentID: "agent-ann-1", PolicyResult: string(ocip.Allow)}}) {
					if r.SessionKey != "" || r.Event == act.hook {
						n++
					}
				}
				return n
			}
			if act.params["request_key"] == nil {
				if err := acts(func() {}); err != nil {
					t.Fatal(err)
				}
			}
			before := allowed()
			if before == 0 && act.params["request_key"] == nil {
				t.Error("the act is not on record")
			}
			err := acts(func() { h.taskOperator().must("task.revoke_grant", m{"grant_id": granted["grant_id"]}) })
			if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.Unauthorized {
				t.Errorf("%v", err)
			}
			if n := allowed(); n != before {
				t.Errorf("%d more acts are on record as allowed", n-before)
			}
			h.verify()
		})
	}
}
