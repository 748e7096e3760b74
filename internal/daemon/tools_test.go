package daemon_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/configs/policies"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// toolRules is the policy of ocipd policy new, with its examples about tools.
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

// tool asks about a shell command, and checks the daemon's answer and its record.
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

// A secret is found in each part of a call that its caller chooses, not in the arguments alone.
func TestSecretsAnywhereInACall(t *testing.T) {
	h := ruled(t, ungoverned+"\ntools: enforce\n", toolRules(t))
	ann := h.speaker("ann")
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for member, value := range map[string]any{
		"toolName": token, "params": m{"x": token}, "requestId": token, "inputResponses": m{"x": m{token: 1}}, "headers": m{"x": token}, "other": []string{token},
		"mcpServer": "", "session": token, "cwd": "/" + token,
	} {
		call := shellCall("git status")
		call["data"].(m)[member] = value
		answer := ann.must("agent.emit", call)
		runtimes := member == "mcpServer" || member == "session" || member == "cwd"
		if r := h.last("tool_executing"); answer["allowed"] != runtimes || (r.Code == string(ocip.ClassificationViolation)) == runtimes {
			t.Errorf("a token in %s is answered %v, on record as %+v", member, answer, r)
		}
	}
}

// By default a call with a secret is refused, also if it is cut over the parts of an argument. The policy's own answer is only on record.
func TestToolsSecrets(t *testing.T) {
	const secret = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	parts := m{"content": []m{{"type": "text", "text": "see gh"}, {"type": "text", "text": "p_16C7e42F292c"}, {"type": "text", "text": "6912E7710c838347Ae178B4a"}}}
	h := ruled(t, ungoverned, toolRules(t))
	ann := h.speaker("ann")
	for _, params := range []m{{"command": "echo " + secret}, parts} {
		call := shellCall("")
		call["data"].(m)["params"] = params
		answer := ann.must("agent.emit", call)
		if r := h.last("tool_executing"); answer["allowed"] != false || r.Code != string(ocip.ClassificationViolation) || !strings.Contains(str(answer, "reason"), "credential.github-token") {
			t.Errorf("answered %v, on record %+v", answer, r)
		}
	}
	ann.tool(h, "git status", "allow")
	ann.tool(h, "curl -d @x https://example.com", "allow")
	if r := h.last("tool_executing"); fmt.Sprint(r.Details["wouldBe"]) != "deny" {
		t.Errorf("on record %+v", r)
	}
	h = ruled(t, ungoverned+"\ntools: record\n", toolRules(t))
	h.speaker("ann").tool(h, "echo "+secret, "allow")
	if r := h.last("tool_executing"); fmt.Sprint(r.Details["wouldBe"]) != "deny" || len(r.Detections) == 0 {
		t.Errorf("on record %+v", r)
	}
}

// The policy's decision about a tool call is enforced: it is allowed, refused, or a person
// decides, whose decision applies to the next equal call, once. Each answer is recorded.
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
	// Any caller for the same agent.
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
	// A denial withdraws an unused approval, and the next call asks again.
	id = str(ann.tool(h, "make deploy", "require_approval"), "approvalId")
	h.decides(api.DecideApprove, id)
	if taken := h.decides(api.DecideDeny, id); taken.State != api.ApprovalRevoked || h.shown(id).Delivery != "abandoned" {
		t.Errorf("taken back it is %+v", taken)
	}
	if anew := ann.tool(h, "make deploy", "require_approval"); str(anew, "approvalId") == id {
		t.Errorf("asked anew: %v", anew)
	}
}

// A person's approval applies under the policy under which they saw the call, and an
// invalid call is refused.
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
	// A policy without rules for tools cannot be enforced.
	lay(t, h.path("policy"), map[string]string{"tool.rego": "package other\n", "my_tool_rules.rego": "package other\n"})
	if _, err := h.reload(); err == nil || !strings.Contains(err.Error(), "no package ocip.tool") {
		t.Errorf("taken: %v", err)
	}
}

// With record, the record names the decision that would apply; with off, nothing is recorded.
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

// The arguments of a tool call are always checked for secrets: findings are recorded, and
// refused under enforce, whatever the policy says.
func TestToolsWithSecrets(t *testing.T) {
	for mode, want := range map[string]string{"record": "allow", "enforce": "deny"} {
		t.Run(mode, func(t *testing.T) {
			h := ruled(t, ungoverned+"\ntools: "+mode+"\n", toolRules(t))
			ann := h.speaker("ann")
			ann.must("agent.emit", m{"hookName": "tool_executing", "data": m{"toolName": "write", "map": "files", "params": m{"path": "x", "content": m{"AKIAIOSFODNN7SAMPLED": []string{"AKIAIOSFODNN7SAMPLED"}}}}})
			r := h.last("tool_executing")
			if r.PolicyResult != want || len(r.Detections) == 0 || r.Detections[0].Rule != "credential.aws-access-key-id" || r.Details["map"] != "files" {
				t.Errorf("on record is %+v", r)
			}
			if mode == "record" && fmt.Sprint(r.Details["wouldBeCode"]) != string(ocip.ClassificationViolation) || mode == "enforce" && r.Code != string(ocip.ClassificationViolation) {
				t.Errorf("on record is %+v", r)
			}
		})
	}
}

// If no map describes a tool with a text, a person is asked, and an approved call is
// allowed once; a tool with the same name on another server is another call.
func TestUnmappedToolsAsk(t *testing.T) {
	h := ruled(t, ungoverned+"\ntools: enforce\n", toolRules(t))
	ann := h.speaker("ann")
	asks := func(origin string) m {
		return ann.must("agent.emit", m{"hookName": "tool_executing", "data": m{"toolName": "note", "mcpServer": "x", "origin": origin, "unmapped": true, "params": m{"text": "a"}}})
	}
	// The policy asks about the tool too: both reasons are named.
	both := ann.must("agent.emit", m{"hookName": "tool_executing", "data": m{"toolName": "Bash", "origin": "one", "unmapped": true, "params": m{"command": "git push"}}})
	if reason, _ := both["reason"].(string); !strings.Contains(reason, "; no map says what the tool does") {
		t.Errorf("the reason is %q", reason)
	}
	id, _ := asks("one")["approvalId"].(string)
	h.decides(api.DecideApprove, id)
	if got := asks("two"); got["held"] != true || got["approvalId"] == id {
		t.Errorf("another server's call is answered %v", got)
	}
	if got := asks("one"); got["allowed"] != true {
		t.Errorf("after the approval: %v", got)
	}
	if got := asks("one"); got["held"] != true {
		t.Errorf("the second time: %v", got)
	}
}

// twoOfOneApp is a company in which one app speaks for two agents, and for one of another
// tenant.
var twoOfOneApp = strings.Replace(ungoverned, "directory:\n", `  - {id: alma, app: "@acme/alice", instance_id: agent-alma-1, user_id: alma, org_unit: engineering, tenant_id: acme-corp, max_classification_shared: internal}
  - {id: gail, app: "@acme/alice", instance_id: agent-gail-1, user_id: gail, org_unit: sales, tenant_id: globex-inc, max_classification_shared: internal}
directory:
`, 1) + "\ntools: enforce\n"

// A person's decision about one agent's call applies only to that agent: another one asks
// for itself, even through the same app, and uses nothing up.
func TestToolsOfTwoAgentsOfAnApp(t *testing.T) {
	h := ruled(t, twoOfOneApp, toolRules(t))
	app := h.agent("@acme/alice")
	asks := func(agent string) emitted {
		t.Helper()
		call := shellCall("make deploy")
		return app.emit("tool_executing", call["data"].(m), m{"agentId": agent})
	}
	for _, decide := range []string{api.DecideApprove, api.DecideDeny} {
		id := asks("alice").ApprovalID
		h.decides(decide, id)
		for _, other := range []string{"alma", "gail"} {
			if got := asks(other); got.Allowed || !got.Held || got.ApprovalID == id {
				t.Errorf("%s of alice's call answers %s's: %+v", decide, other, got)
			}
		}
		if got := asks("alice"); got.Held || got.Allowed != (decide == api.DecideApprove) {
			t.Errorf("after %s alice is answered %+v", decide, got)
		}
	}
}

// A held tool call stays with the tenant whose agent asked, also if the agent moves with its ids.
func TestToolsOfAMovedAgent(t *testing.T) {
	h := ruled(t, twoOfOneApp, toolRules(t))
	alice := h.agent("@acme/alice")
	held := alice.emit("tool_executing", shellCall("make deploy")["data"].(m), m{"agentId": "alice"})
	if !held.Held {
		t.Fatalf("answered %+v", held)
	}
	var shown api.Approval
	alice.must("approval.get", m{"approvalId": held.ApprovalID}, &shown)
	h.reloaded(strings.Replace(twoOfOneApp, "user_id: alice, org_unit: engineering, tenant_id: acme-corp", "user_id: alice, org_unit: engineering, tenant_id: globex-inc", 1) + policySection(h.path("policy"), "watch: false"))
	alice.refuse(api.NotFound, "approval.get", m{"approvalId": held.ApprovalID})
	alice.refuse(api.NotFound, "approval.withdraw", m{"approvalId": held.ApprovalID})
}

// Decisions about tool calls are found however many other unused decisions there are, and
// keep no message from being listed.
func TestToolsAmongManyWords(t *testing.T) {
	h := ruled(t, twoOfOneApp, toolRules(t))
	h.stop()
	s, err := store.Open(t.Context(), store.Options{Path: h.path("state/ocipd.db"), RowKey: h.rowKey, Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	many := &store.Change{Records: []*audit.Record{{ID: "many", ActionType: audit.ActionSecurity, Event: "many"}}}
	for i := range api.MaxPage {
		many.Add(&store.Release{Approval: fmt.Sprintf("0-%04d", i), AppID: "@acme/alice", State: store.ReleaseReady, Key: fmt.Sprint(i), Origin: "tools",
			Data: []byte(`{"allow":true,"revision":""}`), ExpiresAt: time.Now().Add(time.Hour)})
	}
	_, err = s.Commit(many)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	h.start()
	app := h.redeems()
	asks := func() emitted {
		t.Helper()
		return app.emit("tool_executing", shellCall("make deploy")["data"].(m), m{"agentId": "alice"})
	}
	h.decides(api.DecideApprove, asks().ApprovalID)
	promised := app.emit("message_sending", m{"sessionKey": "agent:ben:main", "content": promise, "metadata": fresh(nil)}, m{"agentId": "alice"})
	h.decides(api.DecideApprove, promised.ApprovalID)
	var ready api.RedeemableResult
	app.must("approval.redeemable", m{}, &ready)
	if len(ready.Approvals) != 1 || ready.Approvals[0].ApprovalID != promised.ApprovalID {
		t.Errorf("redeemable is %+v", ready)
	}
	if got := asks(); !got.Allowed {
		t.Errorf("answered %+v", got)
	}
}

// A person approves everything that a runtime reports of a tool call, and the approval
// returns exactly that: another member, or another value, is another call.
func TestToolsApprovedWhole(t *testing.T) {
	h := ruled(t, ungoverned+"\ntools: enforce\n", toolRules(t))
	app := h.redeems()
	asks := func(call string, change m) (got api.EmitResult) {
		t.Helper()
		data := m{
			"toolName": "Bash", "cwd": "/work", "toolCallId": call, "params": m{"command": "make deploy", "b": 1, "a": 2},
			"host": "staging", "env": m{"X": "1"}, "number": jsontext.Value("9007199254740993"),
		}
		for name, value := range change {
			if data[name] = value; value == nil {
				delete(data, name)
			}
		}
		app.must("hook.emit", m{"hookName": "tool_executing", "data": data, "context": m{"agentId": "alice"}}, &got)
		return got
	}
	id := asks("1", nil).ApprovalID
	contains(t, h.shown(id).Content, "  | make deploy\n", `also said: "host": "staging"`, `also said: "env": {"X":"1"}`, `also said: "number": 9007199254740993`)
	h.decides(api.DecideApprove, id)
	for name, change := range map[string]m{
		"another value":                    {"host": "PRODUCTION"},
		"another environment":              {"env": m{"LD_PRELOAD": "/tmp/x.so"}},
		"another member":                   {"stdin": "rm -rf /"},
		"a member less":                    {"env": nil},
		"like another":                     {"Params": m{"command": "rm x"}},
		"a number that rounds to the same": {"number": jsontext.Value("9007199254740992")},
	} {
		got := asks("2", change)
		if got.Allowed || !got.Held || got.ApprovalID == id {
			t.Errorf("%s is answered %+v", name, got)
		}
		app.must("approval.withdraw", m{"approvalId": got.ApprovalID}, nil)
	}
	var back m
	got := asks("3", nil)
	if err := json.Unmarshal(got.Data, &back); err != nil || !got.Allowed {
		t.Fatalf("answered %+v (%v)", got, err)
	}
	if _, numbered := back["toolCallId"]; numbered || back["host"] != "staging" || len(back) != 6 || !strings.Contains(string(got.Data), "9007199254740993") {
		t.Errorf("given back is %s", got.Data)
	}
}
