package daemon_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/configs/policies"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// toolRules is the policy that ocipd policy new writes, with its examples about tools.
func toolRules(t testing.TB) map[string]string {
	t.Helper()
	files, err := policies.Starter()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(files, func(name, _ string) bool {
		return strings.HasSuffix(name, "_test.rego") || strings.HasPrefix(name, "my_") && name != "my_tool_rules.rego"
	})
	return files
}

func shellCall(command string) m {
	return m{"hookName": "tool_executing", "data": m{"toolName": "Bash", "cwd": "/work", "toolCallId": time.Now().String(), "params": m{"command": command}}}
}

// tool asks about a shell command, and demands what the daemon answers and has on record.
func (a *taskCaller) tool(h *harness, command, want string) (answer m) {
	a.t.Helper()
	before := len(h.records(audit.Filter{Like: audit.Record{Event: "tool_executing"}}))
	answer = a.must("agent.emit", shellCall(command))
	got := "deny"
	switch {
	case answer["allowed"] == true:
		got = "allow"
	case answer["held"] == true:
		got = "require_approval"
	}
	r := h.last("tool_executing")
	if n := len(h.records(audit.Filter{Like: audit.Record{Event: "tool_executing"}})); got != want || r.PolicyResult != want || n != before+1 || r.AgentID != "agent-ann-1" || r.ContentDigest == "" {
		a.t.Fatalf("%q: answered %s, want %s (%v), with %d records, the last %+v", command, got, want, answer, n-before, r)
	}
	return answer
}

// What the policy says of a tool call holds: it is allowed, refused, or a person is asked,
// whose word is taken by the next call that is the same, once. Each answer is on record.
func TestToolsEnforced(t *testing.T) {
	h := ruled(t, ungoverned+"\ntools: enforce\n", toolRules(t))
	ann := h.speaker("ann")
	ann.tool(h, "git status", "allow")
	if r := h.last("tool_executing"); r.PolicyApplied != "ocip.tool" || r.PolicyRevision == "" {
		t.Errorf("on record %+v", r)
	}
	denied := ann.tool(h, "curl -d @x https://example.com", "deny")
	if !strings.Contains(str(denied, "reason"), "curl") || str(denied["ocip"].(m), "code") != string(ocip.PolicyDenied) {
		t.Errorf("denied as %v", denied)
	}

	held := ann.tool(h, "make deploy", "require_approval")
	id := str(held, "approvalId")
	if again := ann.tool(h, "make deploy", "require_approval"); str(again, "approvalId") != id {
		t.Errorf("asked anew: %v", again)
	}
	shown := h.shown(id)
	contains(t, shown.Content, "  | make deploy\n", `folder: "/work"`, `tool: "Bash"`)
	if shown.Kind != api.ApprovalOfPermission || shown.Summary != "Bash: make deploy" || shown.Agent != "agent-ann-1" {
		t.Errorf("a person is shown %+v", shown.ApprovalSummary)
	}
	h.decides(api.DecideApprove, id)
	if got := ann.must("agent.approval", m{"approval_id": id}); got["status"] != api.ApprovalApproved {
		t.Errorf("it is told %v", got)
	}
	if got := ann.must("agent.redeemable", m{})["approvals"].([]any); len(got) != 0 {
		t.Errorf("a tool call is redeemable as a message: %v", got)
	}
	ann.refuse(api.NotFound, "", "agent.redeem", m{"approvalId": id})
	ann.tool(h, "make deploy ", "require_approval")
	// Whoever asks, of the same agent.
	h.speaker("ann").tool(h, "make deploy", "allow")
	if r := h.last("tool_executing"); r.ApprovalID != id {
		t.Errorf("on record %+v", r)
	}
	next := ann.tool(h, "make deploy", "require_approval")
	if str(next, "approvalId") == id {
		t.Error("it was approved once and let go twice")
	}
	h.operates().must("approval.resolve", decision(api.DecideDeny, new(h.shown(str(next, "approvalId")))), nil)
	refused := ann.tool(h, "make deploy", "deny")
	if !strings.Contains(str(refused, "reason"), "a person has denied") {
		t.Errorf("refused as %v", refused)
	}
	ann.tool(h, "make deploy", "require_approval")
}

// What a person approved holds for the policy under which they saw it, and a call that is no
// call is refused.
func TestToolsUnderAnotherPolicy(t *testing.T) {
	rules := toolRules(t)
	h := ruled(t, ungoverned+"\ntools: enforce\n", rules)
	ann := h.speaker("ann")
	id := str(ann.tool(h, "make deploy", "require_approval"), "approvalId")
	h.decides(api.DecideApprove, id)
	rules["my_tool_rules.rego"] += "\n# Another revision.\n"
	h.enact(rules)
	second := str(ann.tool(h, "make deploy", "require_approval"), "approvalId")
	if second == id {
		t.Error("what was approved under another policy is asked about as the same")
	}
	rules["my_tool_rules.rego"] += "\ndenials contains \"no deployments today\" if contains(input.tool.command, \"deploy\")\n"
	h.enact(rules)
	h.operates().refuse(api.Conflict, "approval.resolve", decision(api.DecideApprove, new(h.shown(second))))
	ann.tool(h, "make deploy", "deny")
	for _, data := range []m{{}, {"toolName": 7}, {"toolName": "Bash", "params": "x"}, {"toolName": "Bash", "cwd": 1}} {
		if got := ann.must("agent.emit", m{"hookName": "tool_executing", "data": data}); got["allowed"] != false || got["held"] == true {
			t.Errorf("%v is answered %v", data, got)
		}
	}
	ann.must("agent.withdraw", m{"approvalId": second, "note": "not wanted"})
	// A policy that does not judge tools is none to enforce.
	lay(t, h.path("policy"), map[string]string{"tool.rego": "package other\n", "my_tool_rules.rego": "package other\n"})
	if _, err := h.reload(); err == nil || !strings.Contains(err.Error(), "no package ocip.tool") {
		t.Errorf("taken: %v", err)
	}
}

// An answer that is only recorded says what it would have been; without tools nothing is.
func TestToolsRecordedAndOff(t *testing.T) {
	h := ruled(t, ungoverned, toolRules(t))
	ann := h.speaker("ann")
	for command, want := range map[string]string{"curl x": "deny", "make deploy": "require_approval"} {
		ann.tool(h, command, "allow")
		if r := h.last("tool_executing"); fmt.Sprint(r.Details["wouldBe"]) != want {
			t.Errorf("%s is on record as %+v", command, r)
		}
	}
	if n := len(h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval}})); n != 0 {
		t.Errorf("%d people were asked", n)
	}
	before := len(h.records(audit.Filter{}))
	h.configure(strings.Replace(ungoverned, "{id: ann,", "{id: ann, tools: off,", 1) + policySection(h.path("policy"), "watch: false"))
	if _, err := h.reload(); err != nil {
		t.Fatal(err)
	}
	reloaded := len(h.records(audit.Filter{}))
	if got := ann.must("agent.emit", shellCall("curl x")); got["allowed"] != true {
		t.Errorf("answered %v", got)
	}
	if after := len(h.records(audit.Filter{})); after != reloaded || reloaded == before {
		t.Errorf("%d records became %d", reloaded, after)
	}
}
