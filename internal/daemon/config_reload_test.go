package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon"
	"github.com/openclawos/ocipd/internal/ocip"
	"go.uber.org/zap"
)

// reloaded edits the configuration, reloads, and returns the result.
func (h *harness) reloaded(yaml string) api.ConfigReload {
	h.t.Helper()
	h.edit(yaml)
	result, err := h.reload()
	if err != nil {
		h.t.Fatal(err)
	}
	return result.Config
}

// status asks for kernel.status.
func (h *harness) status() (s api.Status) {
	h.t.Helper()
	h.operator("kernel.status", nil, &s)
	return s
}

// operatorClient connects to the operator socket.
func (h *harness) operatorClient() *client.Client {
	h.t.Helper()
	c, err := client.Dial(h.t.Context(), h.path("run/operator.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { c.Close() })
	return c
}

// configRecords are the records of configurations, except those of a start.
func (h *harness) configRecords() []audit.Entry {
	h.t.Helper()
	return slices.DeleteFunc(h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionConfigChange}}), func(e audit.Entry) bool { return e.Details["by"] == "start" })
}

// diffOf lists the differences in a record, a line for each value.
func diffOf(e audit.Entry) (lines []string) {
	list, _ := e.Details["diff"].([]any)
	for _, item := range list {
		d, _ := item.(map[string]any)
		lines = append(lines, fmt.Sprintf("%s: %v -> %v", d["key"], d["was"], d["now"]))
	}
	return lines
}

// A daemon that was started without a configuration file loads the first one as soon as it
// appears in its usual place, and every later one.
func TestFirstConfigurationIsTaken(t *testing.T) {
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &harness{t: t, dir: dir}
	env := map[string]string{"XDG_CONFIG_HOME": h.path("config"), "XDG_STATE_HOME": h.path("state"), "XDG_RUNTIME_DIR": dir}
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	cfg, err := config.Load(config.Options{Env: list, Flags: map[string]any{"ipc.socket": h.path("run/kernel.sock"), "ipc.apps_may_operate": true}})
	if err != nil {
		t.Fatal(err)
	}
	h.daemon, err = daemon.New(daemon.Options{Config: cfg, Getenv: func(name string) string { return env[name] }, Version: "test", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.daemon.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.stop)
	if agents := h.status().Agents; len(agents) != 0 {
		t.Fatalf("agents before there is a configuration: %v", agents)
	}
	if err := os.MkdirAll(h.path("config/openclawos"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, yaml := range []string{acme, strings.Replace(acme, "{id: bob,", "{id: robert,", 1)} {
		want, err := config.Parse("wanted", []byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.path("config/openclawos/ocipd.yaml"), []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		h.statusUntil("the file's agents", func(s api.Status) bool {
			return slices.EqualFunc(s.Agents, want.Agents, func(has api.AgentStatus, wants config.Agent) bool { return has.ID == wants.ID })
		})
	}
	if records := h.configRecords(); len(records) != 2 {
		t.Errorf("%d records of the two files", len(records))
	}
}

// A change in the file applies to the next message, is recorded first, and is reported; a
// key that needs a restart keeps its value and is named.
func TestConfigReload(t *testing.T) {
	h := build(t, acme+"\npolicy: {watch: false}\n")
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	secret := map[string]any{"sessionKey": "telegram:dave", "content": "x", "metadata": fresh(map[string]any{"classification": "confidential"})}
	alice.refuse(api.Forbidden, "message.dispatch", secret)

	edited := strings.Replace(acme, "max_classification_shared: internal, max_rounds: 3", "max_classification_shared: confidential, max_rounds: 2", 1) +
		"\npolicy: {watch: false, data: {max_classification_shared: confidential}}\n" +
		"audit: {keep: 48h, rotate: {age: 1h}}\nstore: {commit_timeout: 3s}\nlog: {level: debug, format: console}\n" +
		"channels: {telegram: {botToken: first}}\n"
	edited = strings.Replace(edited, "accepts: [public, internal], sessions: [\"telegram:dave\"]", "accepts: [public, internal, confidential], sessions: [\"telegram:dave\"]", 1)
	got := h.reloaded(edited)
	pending := []string{"store.commit_timeout", "audit.rotate.age", "log.format"}
	if !slices.Equal(got.PendingRestart, pending) || got.ChangeCount != len(got.Changes) || got.ChangeCount != 7 {
		t.Errorf("the answer is %+v", got)
	}
	if s := h.status(); !slices.Equal(s.PendingRestart, pending) || s.Config.Refusal != "" {
		t.Errorf("pending are %q; %+v", s.PendingRestart, s.Config)
	}
	var sent api.DispatchResult
	alice.must("message.dispatch", secret, &sent)
	if sent.OCIP.MaxRounds != 2 {
		t.Errorf("the exchange has %d rounds", sent.OCIP.MaxRounds)
	}

	records := h.configRecords()
	last := records[len(records)-1]
	want := []string{
		"agents.alice.max_classification_shared: internal -> confidential", "agents.alice.max_rounds: 3 -> 2",
		"directory.agent-dave-1.accepts: [public internal] -> [public internal confidential]",
		"policy.data.max_classification_shared: internal -> confidential", "audit.keep: 0s -> 48h0m0s",
		"channels.telegram.botToken: <nil> -> ***", "log.level: info -> debug",
	}
	var all []string
	for _, r := range records {
		if r.Event != "loaded" {
			t.Errorf("record %d is %s", r.Seq, r.Event)
		}
		all = append(all, diffOf(r)...)
	}
	// The watch of the file may have loaded everything except the policy before.
	for _, line := range want {
		if !slices.Contains(all, line) {
			t.Errorf("not on record: %s, in\n%s", line, strings.Join(all, "\n"))
		}
	}
	if len(all) != len(want) || last.Details["by"] != "operator" || last.Details["file"] != h.path("ocipd.yaml") || last.Details["uid"] != float64(os.Getuid()) ||
		fmt.Sprint(last.Details["needsRestart"]) != fmt.Sprint(pending) {
		t.Errorf("on record is %+v", last.Record)
	}

	// A repetition changes nothing, and makes no record.
	if again := h.reloaded(edited + "# nothing\n"); again.ChangeCount != 0 || len(again.Changes) != 0 || !slices.Equal(again.PendingRestart, pending) {
		t.Errorf("nothing changed, and the answer is %+v", again)
	}
	if now := h.configRecords(); len(now) != len(records) {
		t.Errorf("nothing changed, and on record is %+v", now[len(now)-1].Record)
	}

	// A key that no longer waits for a restart is recorded too, and a restart applies those that wait.
	h.reloaded(strings.Replace(edited, ", format: console", "", 1))
	if now := h.configRecords(); fmt.Sprint(now[len(now)-1].Details["needsRestart"]) != "[store.commit_timeout audit.rotate.age]" || len(diffOf(now[len(now)-1])) != 0 {
		t.Errorf("on record is %+v", now[len(now)-1].Record)
	}
	h.stop()
	h.start()
	if s := h.status(); len(s.PendingRestart) != 0 || s.PendingRestart == nil {
		t.Errorf("after a restart, pending are %q", s.PendingRestart)
	}
	h.verify()
}

// The effect of a reload, or its faults, can be shown beforehand.
func TestConfigDiff(t *testing.T) {
	h := build(t, acme+"\npolicy: {watch: false}\n")
	diff := func() (d api.ConfigDiffResult) {
		t.Helper()
		h.operator("config.diff", nil, &d)
		return d
	}
	before := h.policyStatus().Revision
	if d := diff(); d.ChangeCount != 0 || d.PolicyChanged || d.PolicyRevision != before || d.File != h.path("ocipd.yaml") || d.Changes == nil || d.PendingRestart == nil {
		t.Errorf("nothing changed, and the difference is %+v", d)
	}
	h.edit(acme + "\npolicy: {watch: false, data: {cross_org: true}}\nstore: {commit_timeout: 3s}\n")
	d := diff()
	if d.ChangeCount != 1 || d.Changes[0] != (api.ConfigDifference{Key: "policy.data.cross_org", Was: false, Now: true}) || !d.PolicyChanged || d.PolicyRevision == before {
		t.Errorf("the difference is %+v", d)
	}
	if len(d.PendingRestart) != 1 || d.PendingRestart[0] != (api.ConfigDifference{Key: "store.commit_timeout", Was: "10s", Now: "3s"}) {
		t.Errorf("pending are %+v", d.PendingRestart)
	}
	if now := h.policyStatus().Revision; now != before {
		t.Errorf("to look changed the policy to %s", now)
	}
	h.edit("agnets: []")
	operator := h.operatorClient()
	var refused *api.Error
	if err := operator.Call(t.Context(), "config.diff", map[string]any{}, nil); !errors.As(err, &refused) || refused.Code != api.Conflict {
		t.Fatalf("got %v", err)
	}
	contains(t, refused.Message, h.path("ocipd.yaml")+`:1:1: unknown key "agnets"`)
}

// A configuration with any invalid part changes nothing at all.
func TestConfigIsRefusedAsAWhole(t *testing.T) {
	list := filepath.Join(t.TempDir(), "signers")
	for _, tt := range []struct{ name, text, says string }{
		{"a pattern", "ocip: {max_rounds: 9, content: {patterns: [{name: x, regexp: \"(\", level: internal}]}}", "ocip.content.patterns[0].regexp"},
		{"a cue", "ocip: {max_rounds: 9, commitment: {families: {mony: off}}}", `did you mean "money"?`},
		{"signers", "ocip: {max_rounds: 9}\napprovals: {allowed_signers: \"" + list + "\"}", "cannot read approvals.allowed_signers"},
		{"redaction", "ocip: {max_rounds: 9}\naudit: {redact: {patterns: [\"(\"]}}", "audit.redact.patterns[0]"},
		{"a policy", "ocip: {max_rounds: 9}\npolicy: {path: \"" + list + "\"}", "cannot read policy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := build(t, acme+"\npolicy: {watch: false}\n")
			h.channel("@openclawos/telegram", "telegram")
			alice := h.agent("@acme/alice")
			// Without a watch, so that the operator's request comes first.
			for range 2 {
				h.edit(strings.Replace(acme, "max_rounds: 3", "max_rounds: 9", 1) + "\n" + tt.text + "\n")
				_, err := h.reload()
				var refused *api.Error
				if !errors.As(err, &refused) || refused.Code != api.Conflict {
					t.Fatalf("got %v", err)
				}
				contains(t, refused.Message, tt.says)
			}
			if sent := alice.dispatch("telegram:dave", "x", fresh(nil)); sent.OCIP.MaxRounds != 3 {
				t.Errorf("a refused configuration gives %d rounds", sent.OCIP.MaxRounds)
			}
			s := h.status()
			if says := s.Config.Refusal + s.Policy.Refusal; !strings.Contains(says, tt.says) {
				t.Errorf("the status says %q", says)
			}
			refusals := 0
			for _, r := range h.records(audit.Filter{}) {
				if r.Event == "refused" && r.Details["by"] == "operator" {
					refusals++
					contains(t, r.PolicyReason, tt.says)
				}
				if r.ActionType == audit.ActionConfigChange && r.Event == "loaded" && r.Details["by"] != "start" {
					t.Errorf("on record is %+v", r.Record)
				}
			}
			if refusals != 2 {
				t.Errorf("%d refusals are on record", refusals)
			}
			h.reloaded(acme + "\npolicy: {watch: false}\n")
			if s := h.status(); s.Config.Refusal+s.Policy.Refusal != "" {
				t.Errorf("after all is well again, the status says %+v %+v", s.Config, s.Policy)
			}
		})
	}
}

// Exchanges in progress keep their rounds and their expiry when limits change, and never get more.
func TestOpenExchangesKeepTheirLimits(t *testing.T) {
	at := func(rounds int) string {
		return strings.Replace(acme, "max_rounds: 3", fmt.Sprintf("max_rounds: %d", rounds), 1)
	}
	h := build(t, at(3)+"\nocip: {max_rounds: 3, expires_after: 2h}\n")
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	first := alice.dispatch("telegram:dave", "x", fresh(nil)).OCIP
	get := func() api.Exchange {
		t.Helper()
		var got api.ExchangeResult
		alice.must("exchange.get", map[string]any{"exchangeId": first.ExchangeID}, &got)
		return got.Exchanges[0]
	}
	expires := get().ExpiresAt

	h.reloaded(at(9) + "\nocip: {max_rounds: 9, expires_after: 1h}\n")
	next := alice.dispatch("telegram:dave", "x", map[string]any{"exchange": map[string]any{"id": first.ExchangeID, "classification": "public"}}).OCIP
	if next.Round != 2 || next.MaxRounds != 3 || get().ExpiresAt != expires {
		t.Errorf("an open exchange has round %d of %d, and ends at %d instead of %d", next.Round, next.MaxRounds, get().ExpiresAt, expires)
	}
	if other := alice.dispatch("telegram:dave", "x", fresh(nil)).OCIP; other.MaxRounds != 9 {
		t.Errorf("a new exchange has %d rounds", other.MaxRounds)
	}
	// A lower limit applies from the next message, also to open exchanges.
	h.reloaded(at(2) + "\nocip: {max_rounds: 9, expires_after: 1h}\n")
	held := alice.held(ocip.RoundLimit, "telegram:dave", "x", map[string]any{"exchange": map[string]any{"id": first.ExchangeID, "classification": "public"}})
	if held.OCIP.MaxRounds != 2 {
		t.Errorf("held at %d rounds", held.OCIP.MaxRounds)
	}
}

// An agent that is removed from the file neither speaks nor hears; its waiting messages can
// still be ended. After it is restored, everything continues.
func TestAgentIsTakenOut(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	waiting := bob.held(ocip.CommitmentRequiresHuman, "agent:alice:main", "I approve the budget.", fresh(nil))
	without := acme[:strings.Index(acme, "  - {id: bob")] + acme[strings.Index(acme, "directory:"):]

	h.reloaded(without)
	contains(t, bob.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "agent:alice:main", "content": "x", "metadata": fresh(nil)}).Message, "speaks for no agent")
	contains(t, alice.refuse(api.NotFound, "message.dispatch", map[string]any{"sessionKey": "agent:bob:main", "content": "x", "metadata": fresh(nil)}).Message, `no agent "bob"`)
	operator := h.operatorClient()
	var shown api.Approval
	h.operator("approval.get", map[string]any{"approvalId": waiting.ApprovalID}, &shown)
	err := operator.Call(t.Context(), "approval.resolve", map[string]any{"approvalId": waiting.ApprovalID, "decision": "approve", "digest": shown.Digest}, nil)
	var refused *api.Error
	if !errors.As(err, &refused) || refused.Code != api.Conflict {
		t.Fatalf("a message of an agent that is no more: %v", err)
	}
	contains(t, refused.Message, "no longer configured")
	if err := operator.Call(t.Context(), "approval.resolve", map[string]any{"approvalId": waiting.ApprovalID, "decision": "deny"}, nil); err != nil {
		t.Error(err)
	}
	h.reloaded(acme)
	bob.dispatch("agent:alice:main", "x", fresh(nil))
	alice.message("hook:message_received")
}

// A message decided for an agent does not reach another one that gets its id.
func TestAgentIsAnotherOne(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	if sent := alice.dispatch("agent:bob:main", "for bob of acme-corp alone", fresh(nil)); !sent.Waiting {
		t.Fatalf("sent as %+v", sent)
	}
	begin := strings.Index(acme, "  - {id: bob")
	end := begin + strings.Index(acme[begin:], "\n")
	h.reloaded(acme[:begin] + `  - {id: bob, app: "@evil/bob", instance_id: agent-evil-1, user_id: mallory, org_unit: sales, tenant_id: evil-corp}` + acme[end:] +
		`access: {apps: {"@openclawos/telegram": {channels: [telegram], tenants: [acme-corp]}}}`)
	evil := h.agent("@evil/bob")
	evil.must("app.heartbeat", nil, nil)
	h.statusUntil("an empty queue", func(s api.Status) bool { return len(s.Queues) == 0 })
	if got := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionDelivery}}); len(got) != 1 || got[0].Event != "withdrawn" || got[0].Details["isNow"] != "evil-corp/agent-evil-1" {
		t.Errorf("on record is %+v", got)
	}
}

// An agent bound to another app belongs to that app from then on: its waiting messages, its
// new ones, and its speech.
func TestAgentGetsAnotherApp(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	other := h.agent("@acme/other")
	alice.dispatch("agent:bob:main", "first", fresh(nil))
	if got := bob.message("hook:message_received"); !strings.HasPrefix(got.Content, "first") {
		t.Errorf("bob gets %q", got.Content)
	}
	h.reloaded(strings.Replace(acme, "@acme/bob", "@acme/other", 1))
	alice.dispatch("agent:bob:main", "second", fresh(nil))
	for {
		// Messages that the former app has not read yet may come again.
		if got := other.message("hook:message_received"); strings.HasPrefix(got.Content, "second") {
			break
		}
	}
	contains(t, bob.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "agent:alice:main", "content": "x", "metadata": fresh(nil)}).Message, "speaks for no agent")
	other.dispatch("agent:alice:main", "x", fresh(nil))
}

// If another program or user must speak for an agent, the app is refused from its next call
// on, and gets nothing more. Once it is permitted again, it continues.
func TestBindingIsLookedAtAgain(t *testing.T) {
	h := build(t, acme)
	alice, bob := h.agent("@acme/alice"), h.agent("@acme/bob")
	bound := strings.Replace(acme, `app: "@acme/bob"`, `app: "@acme/bob", exe: /usr/bin/nothing-of-the-kind`, 1)
	h.reloaded(bound)
	for _, method := range []string{"app.heartbeat", "session.list"} {
		contains(t, bob.refuse(api.Forbidden, method, map[string]any{}).Message, "bound to /usr/bin/nothing-of-the-kind")
	}
	sent := alice.dispatch("agent:bob:main", "while away", fresh(nil))
	if !sent.Waiting {
		t.Errorf("a message for an app that may not run is %+v", sent)
	}
	if got := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}}); !slices.ContainsFunc(got, func(e audit.Entry) bool {
		return e.Event == "binding_refused" && e.AppID == "@acme/bob" && e.Details["connected"] == true
	}) {
		t.Error("that an app may run no more is not on record")
	}
	h.reloaded(acme)
	if got := bob.message("hook:message_received"); !strings.HasPrefix(got.Content, "while away") {
		t.Errorf("bob gets %q", got.Content)
	}
	bob.must("app.heartbeat", nil, nil)
}

// A counterparty that turns out to belong to another tenant is behind the wall at once.
func TestTenantWallMoves(t *testing.T) {
	h := build(t, acme)
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	open := alice.dispatch("telegram:dave", "x", fresh(nil)).OCIP
	h.reloaded(strings.Replace(acme, "user_id: dave, org_unit: engineering, tenant_id: acme-corp", "user_id: dave, org_unit: engineering, tenant_id: globex-inc", 1))
	for _, metadata := range []map[string]any{fresh(nil), {"exchange": map[string]any{"id": open.ExchangeID}}} {
		e := alice.refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "x", "metadata": metadata})
		if code := ocipCode(t, e); code != string(ocip.CrossEnterpriseBlocked) {
			t.Errorf("got %s", code)
		}
	}
}

// A configuration that cannot be recorded is not in force, neither its policy nor anything
// else. Here the record would be too large, because it contains every file's name.
func TestConfigThatCannotBeRecorded(t *testing.T) {
	dir := lay(t, t.TempDir(), rego(true, "first"))
	h := build(t, acme+policySection(dir, "watch: false"))
	h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	files := make(map[string]string)
	for n := range 200 {
		files[fmt.Sprintf("%d.rego", n)] = fmt.Sprintf("package filler%d\n", n)
	}
	lay(t, filepath.Join(dir, strings.Repeat(strings.Repeat("\x01", 240)+"/", 4)), files)
	h.edit(strings.Replace(acme, "max_rounds: 3", "max_rounds: 2", 1) + policySection(dir, "watch: true"))
	_, err := h.reload()
	var failure *api.Error
	if !errors.As(err, &failure) || failure.Code != api.InternalError || ocipCode(t, failure) != string(ocip.AuditWriteFailed) {
		t.Fatalf("got %v", err)
	}
	if sent := alice.dispatch("telegram:dave", "x", fresh(nil)); sent.OCIP.MaxRounds != 3 {
		t.Errorf("what is not on record gives %d rounds", sent.OCIP.MaxRounds)
	}
	if err := os.RemoveAll(filepath.Join(dir, strings.Repeat("\x01", 240))); err != nil {
		t.Fatal(err)
	}
	if _, err := h.reload(); err != nil {
		t.Fatal(err)
	}
	if sent := alice.dispatch("telegram:dave", "x", fresh(nil)); sent.OCIP.MaxRounds != 2 {
		t.Errorf("what is on record gives %d rounds", sent.OCIP.MaxRounds)
	}
}

// A change of the signers applies from the next decision on.
func TestSignersAreReloaded(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	h.agent("@acme/bob")
	waiting := alice.held(ocip.CommitmentRequiresHuman, "agent:bob:main", "I approve the budget.", fresh(nil))
	list := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(list, []byte("carol@acme ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2jPWbFp8lqXKLEPWZ2s4qN3sCnyrFyCGb9r2p1rq0d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.reloaded(acme + "\napprovals: {allowed_signers: \"" + list + "\"}\n")
	operator := h.operatorClient()
	var shown api.Approval
	h.operator("approval.get", map[string]any{"approvalId": waiting.ApprovalID}, &shown)
	approve := map[string]any{"approvalId": waiting.ApprovalID, "decision": "approve", "digest": shown.Digest}
	var refused *api.Error
	if err := operator.Call(t.Context(), "approval.resolve", approve, nil); !errors.As(err, &refused) || refused.Code != api.Forbidden {
		t.Fatalf("without a signature: %v", err)
	}
	h.reloaded(acme)
	if err := operator.Call(t.Context(), "approval.resolve", approve, nil); err != nil {
		t.Error(err)
	}
}

// The limits of connections and requests are those of the current file.
func TestLimitsAreReloaded(t *testing.T) {
	h := build(t, acme)
	alice := h.agent("@acme/alice")
	long := map[string]any{"path": strings.Repeat("x", 4000)}
	alice.must("config.get", long, nil)
	h.reloaded(acme + "\nipc: {max_line_bytes: 2048, max_queue_bytes: 65536}\nocip: {max_annotation_bytes: 1024}\n")
	// A connection keeps its limit for a line.
	alice.must("config.get", long, nil)
	later := h.agent("@acme/bob")
	later.refuse(api.InvalidRequest, "config.get", long)
}

// Under load, a reload loses no message. Each is decided by one configuration from
// beginning to end, and by none that was not recorded before.
func TestConfigReloadsUnderLoad(t *testing.T) {
	const conversations, edits = 64, 20
	policies := lay(t, t.TempDir(), map[string]string{
		"exchange.rego": "package ocip.agent_exchange\n\ndecision := {\"allow\": true, \"require_approval\": false, \"reason\": data.policy.word, \"constraints\": {}}\n",
		"cross.rego":    "package ocip.cross_org\n\ndecision := {\"allow\": false, \"require_approval\": false, \"reason\": \"other unit\", \"constraints\": {}}\n",
	})
	type side struct {
		word, level, disclosure string
		rounds                  int
	}
	sides := []side{{"even", "public", "suffix", 5}, {"odd", "internal", "prefix", 7}}
	text := func(s side) string {
		var b strings.Builder
		fmt.Fprintf(&b, "agents:\n  - {id: alice, app: \"@acme/alice\", instance_id: agent-alice-1, user_id: alice, org_unit: eng, tenant_id: acme, max_rounds: %d}\ndirectory:\n", s.rounds)
		for n := range conversations {
			fmt.Fprintf(&b, "  - {instance_id: peer-%d, user_id: u%d, org_unit: eng, tenant_id: acme, accepts: [public, internal], sessions: [\"irc:%d\"]}\n", n, n, n)
		}
		fmt.Fprintf(&b, "ocip: {max_rounds: %d, default_classification: %s, disclosure: %s}\n", s.rounds, s.level, s.disclosure)
		fmt.Fprintf(&b, "policy: {path: %q, timeout: 20s, data: {word: %s}}\n", policies, s.word)
		return b.String()
	}
	h := build(t, text(sides[0]))
	irc, alice := h.channel("@openclawos/irc", "irc"), h.agent("@acme/alice")

	var seen sync.Map
	var arrivals atomic.Int64
	another := make(chan struct{}, 1) // has arrived
	reading, stopReading := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			in, err := irc.Next(reading)
			if reading.Err() != nil {
				return
			}
			if err != nil {
				// A reload ends the connection of a channel with a message that is half written.
				irc = h.channelApp("@openclawos/irc", []string{"irc"}, client.WithToken(irc.Token()))
				continue
			}
			if in.Event != "hook:message_sending" {
				continue
			}
			var d delivered
			irc.decode(in.Payload, &d.HookEvent)
			irc.decode(d.Data, &d)
			if _, again := seen.Swap(d.DispatchID, strings.HasPrefix(d.Content, "Sent by")); !again {
				arrivals.Add(1)
			}
			select {
			case another <- struct{}{}:
			default:
			}
		}
	})

	done := make(chan struct{})
	var sent sync.Map
	var count atomic.Int64
	var senders sync.WaitGroup
	for n := range conversations {
		senders.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				var result api.DispatchResult
				params := map[string]any{"sessionKey": fmt.Sprintf("irc:%d", n), "content": "What is the status?", "metadata": map[string]any{"exchange": map[string]any{"new": true}}}
				if err := alice.call("message.dispatch", params, &result); err != nil {
					t.Errorf("a message was refused: %v", err)
					return
				}
				sent.Store(result.DispatchID, result.OCIP.MaxRounds)
				count.Add(1)
			}
		})
	}
	for n := range edits {
		before := h.policyStatus().Revision
		h.edit(text(sides[(n+1)%2]))
		if n%10 == 0 {
			h.takes(before) // by the watch of the file
			continue
		}
		if _, err := h.reload(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	senders.Wait()

	// Every allowed message arrives, with the marks of its configuration. A busy machine
	// may take long for all of them, but never for the next one.
	for late := false; arrivals.Load() < count.Load() && !late; {
		select {
		case <-another:
		case <-time.After(patience):
			late = true
		}
	}
	missing := 0
	sent.Range(func(id, rounds any) bool {
		prefixed, ok := seen.Load(id)
		if !ok {
			missing++
		} else if prefixed != (rounds == sides[1].rounds) {
			t.Errorf("message %v has %v rounds and the disclosure in front: %v", id, rounds, prefixed)
		}
		return true
	})
	if missing > 0 {
		t.Errorf("%d of %d messages did not arrive", missing, count.Load())
	}
	stopReading()
	readers.Wait()
	h.stop()

	announced := make(map[string]string) // by revision, the word
	words := make(map[string]int)
	taken := make(map[string]int) // out of the queue, by event and code
	configs, decided, word := 0, int64(0), sides[0].word
	mirror, err := os.Open(h.path("state/audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer mirror.Close()
	lines := bufio.NewScanner(mirror)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r, err := audit.Parse(slices.Clone(lines.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		switch r.ActionType {
		case audit.ActionConfigChange:
			if r.Details["by"] == "start" {
				continue
			}
			configs++
			word = sides[configs%2].word
			if !slices.Contains(diffOf(r), fmt.Sprintf("policy.data.word: %s -> %s", sides[(configs+1)%2].word, word)) {
				t.Fatalf("record %d lists %q", r.Seq, diffOf(r))
			}
		case audit.ActionPolicyChange:
			if was, known := announced[r.PolicyRevision]; known && was != word {
				t.Fatalf("record %d announces %s for %s", r.Seq, r.PolicyRevision, word)
			}
			announced[r.PolicyRevision] = word
		case audit.ActionDelivery:
			code, _ := r.Details["code"].(string)
			taken[strings.TrimSpace(r.Event+" "+code)]++
		case audit.ActionExchange:
			decided++
			words[r.PolicyReason]++
			i := slices.IndexFunc(sides, func(s side) bool { return s.word == r.PolicyReason })
			if i < 0 || r.MaxRounds != sides[i].rounds || r.Classification != sides[i].level || announced[r.PolicyRevision] != r.PolicyReason {
				t.Fatalf("record %d mixes configurations: %+v, announced were %v", r.Seq, r.Record, announced)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if configs != edits || decided != count.Load() || len(announced) != 2 || len(words) != 2 {
		t.Errorf("%d configurations, %d of %d messages on record, %d revisions, decided were %v", configs, decided, count.Load(), len(announced), words)
	}
	t.Logf("%d messages, %v, taken out were %v", decided, words, taken)
}

// The directory file is treated like the configuration: its edits are loaded and recorded
// by entry, and a broken line leaves the entries in force.
func TestDirectoryFileIsFollowed(t *testing.T) {
	h := plot(t, acme+"\ndirectory_file: contacts.jsonl\n")
	lay(t, h.path(""), map[string]string{"contacts.jsonl": "# nobody yet\n"})
	h.start()
	t.Cleanup(h.stop)
	entry := `{"instance_id":"agent-rival-1","user_id":"r","org_unit":"sales","tenant_id":"rival-inc","sessions":["telegram:rival"]}` + "\n"
	changed := func() []string {
		records := h.configRecords()
		if len(records) == 0 {
			return nil
		}
		return diffOf(records[len(records)-1])
	}
	lay(t, h.path(""), map[string]string{"contacts.jsonl": entry})
	h.statusUntil("the entry", func(api.Status) bool { return len(changed()) == 1 })
	if got := changed()[0]; !strings.HasPrefix(got, "directory_file.agent-rival-1: <nil> -> ") {
		t.Errorf("on record is %s", got)
	}
	// The record precedes the entry. This question waits for the end of the reload.
	h.operator("config.diff", nil, &api.ConfigDiffResult{})
	h.channel("@openclawos/telegram", "telegram")
	refused := h.agent("@acme/alice").refuse(api.Forbidden, "message.dispatch", map[string]any{"sessionKey": "telegram:rival", "content": "x"})
	if code := ocipCode(t, refused); code != string(ocip.CrossEnterpriseBlocked) {
		t.Errorf("the message is refused with %s", code)
	}

	lay(t, h.path(""), map[string]string{"contacts.jsonl": entry + "{\n"})
	s := h.statusUntil("the refusal", func(s api.Status) bool { return s.Config.Refusal != "" })
	if !strings.Contains(s.Config.Refusal, h.path("contacts.jsonl")+":2:2: cannot read JSON") {
		t.Errorf("the refusal is %s", s.Config.Refusal)
	}
	lay(t, h.path(""), map[string]string{"contacts.jsonl": strings.Replace(entry, "rival-inc", "acme-corp", 1)})
	h.statusUntil("the line that was mended", func(s api.Status) bool { return s.Config.Refusal == "" })
	if got := changed(); !slices.Equal(got, []string{"directory_file.agent-rival-1.tenant_id: rival-inc -> acme-corp"}) {
		t.Errorf("on record is %q", got)
	}
	h.verify()
}

// Observations about a session are listed, and forgotten when a person asks for it; the
// configuration's entries stay.
func TestContactsAreListedAndForgotten(t *testing.T) {
	h := build(t, acme)
	telegram := h.channel("@openclawos/telegram", "telegram")
	alice := h.agent("@acme/alice")
	err := telegram.call("agent.queue", map[string]any{
		"sessionKey": "telegram:zed", "text": "Hello", "metadata": map[string]any{"ocip": foreign("conv-1", 1, "acme-corp")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	alice.message("hook:message_received")
	alice.dispatch("telegram:dave", "x", fresh(nil))
	list := func() map[string]api.Contact {
		t.Helper()
		var page api.ContactListResult
		h.operator("contact.list", map[string]any{"agent": "alice"}, &page)
		by := map[string]api.Contact{}
		for _, c := range page.Contacts {
			by[c.SessionKey] = c
		}
		if len(by) != 2 || page.Total != 2 {
			t.Fatalf("listed are %+v", page)
		}
		return by
	}
	by := list()
	if zed := by["telegram:zed"]; !zed.Learned || zed.Kind != "agent" || zed.InstanceID != "agent-zed-9" || zed.TenantID != "acme-corp" || zed.MessageCount != 1 {
		t.Errorf("a stranger's agent is listed as %+v", zed)
	}
	if dave := by["telegram:dave"]; dave.Learned || dave.Kind != "agent" || dave.InstanceID != "agent-dave-1" {
		t.Errorf("a known agent is listed as %+v", dave)
	}
	var got api.ContactForgetResult
	h.operator("contact.forget", map[string]any{"sessionKey": "telegram:zed", "note": "not him"}, &got)
	if !got.Changed || got.InstanceID != "agent-zed-9" || got.AuditSeq == 0 {
		t.Errorf("the answer is %+v", got)
	}
	if zed := list()["telegram:zed"]; zed.Kind != "unknown" || zed.Learned || zed.InstanceID != "" {
		t.Errorf("once forgotten it is listed as %+v", zed)
	}
	records := h.records(audit.Filter{Like: audit.Record{ActionType: audit.ActionSecurity}})
	i := slices.IndexFunc(records, func(e audit.Entry) bool { return e.Event == "contact_forgotten" })
	if i < 0 || records[i].SessionKey != "telegram:zed" || records[i].Counterparty.InstanceID != "agent-zed-9" || records[i].Details["note"] != "not him" {
		t.Errorf("on record is %+v", records)
	}
	for _, session := range []string{"telegram:zed", "telegram:dave"} {
		again := api.ContactForgetResult{}
		if h.operator("contact.forget", map[string]any{"sessionKey": session}, &again); again.Changed {
			t.Errorf("of %s was forgotten %+v", session, again)
		}
	}
	h.verify()
}
