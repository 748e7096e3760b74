package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// A cursor removes nothing from an inbox that a pause holds back, whatever it says, and
// observers of the reader hear nothing of it.
func TestCursorPassesNothingPaused(t *testing.T) {
	h := build(t, ungoverned)
	watcher := h.register("@acme/watcher", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}})
	watcher.must("hook.subscribe", m{"events": []string{"message_received"}}, nil)
	watcher.must("app.ready", nil, nil)
	ann, alice := h.speaker("ann"), h.agent("@acme/alice")
	paused := alice.dispatch("agent:ben:main", "From alice.", nil)
	h.pause("pause", m{"agent": "alice"})
	ann.must("agent.send", m{"to": "ben", "text": "From ann."})
	ben := h.speaker("ben")
	got, cursor := ben.read(m{})
	if len(got) != 1 {
		t.Fatalf("while alice is paused: %v", got)
	}
	if got, _ = ben.read(m{"cursor": cursor}); len(got) != 0 {
		t.Errorf("behind it come %v", got)
	}
	if d := watcher.message("hook:message_received"); !strings.Contains(d.Content, "From ann.") {
		t.Errorf("an observer is told %q while alice is paused", d.Content)
	}
	if n := len(h.records(audit.Filter{Like: audit.Record{DispatchID: paused.DispatchID, Event: "read"}})); n != 0 {
		t.Errorf("%d records of the reading of what was not shown", n)
	}
	h.pause("resume", m{"agent": "alice"})
	if got, cursor = ben.read(m{"cursor": cursor}); len(got) != 1 || str(got[0], "dispatch_id") != paused.DispatchID {
		t.Errorf("after the pause: %v", got)
	}
	// Messages read before the pause stay too.
	h.pause("pause", m{"agent": "alice"})
	ben.read(m{"cursor": cursor})
	h.pause("resume", m{"agent": "alice"})
	if got, _ = ben.read(m{}); len(got) != 1 || str(got[0], "dispatch_id") != paused.DispatchID {
		t.Errorf("after another pause: %v", got)
	}
}

// No runtime can send the daemon's events about messages.
func TestNobodySaysThatAMessageWasSent(t *testing.T) {
	h := build(t, watched)
	watcher := h.register("@acme/watcher", api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_sent"}}})
	watcher.must("hook.subscribe", m{"events": []string{"message_sent"}}, nil)
	watcher.must("app.ready", nil, nil)
	h.agent("@acme/alice").refuse(api.InvalidParams, "hook.emit", m{"hookName": "message_sent", "data": m{"channelId": "telegram", "target": "dave", "content": "never decided"}})
	watcher.quiet("hook:message_sent")
}

// Actors see no number of the log, which would count the records of other tenants.
func TestActorsAreToldNoNumbers(t *testing.T) {
	h := build(t, taskTeam)
	lead := h.actor("lead", "")
	none := func(what string, answer m) {
		t.Helper()
		text, err := json.Marshal(answer)
		if err != nil || strings.Contains(string(text), "audit_seq") {
			t.Errorf("%s is answered by %s, %v", what, text, err)
		}
		events, _ := answer["events"].([]any)
		for _, e := range events {
			if e.(m)["seq"] != nil {
				t.Errorf("%s has the event %v", what, e)
			}
		}
	}
	params := m{"title": "Export", "workspace": "main", "initial_phase": "spec_review", "spec_markdown": goodTaskSpec, "request_key": "once"}
	created := lead.must("task.create", params)
	none("task.create", created)
	none("task.create again", lead.must("task.create", params))
	id := created["task_id"]
	for i := range 3 {
		none("task.update", lead.must("task.update", m{"task_id": id, "expected_revision": i + 1, "title": fmt.Sprint("Export ", i)}))
	}
	given := lead.must("task.grant", m{"task_id": id, "actor": "checker"})
	none("task.grant", given)
	none("task.revoke_grant", lead.must("task.revoke_grant", m{"task_id": id, "grant_id": given["grant_id"]}))
	none("task.get", lead.must("task.get", m{"task_id": id}))
	page := lead.must("task.get", m{"task_id": id, "part": "events", "after": "3"})
	none("its events", page)
	events := page["events"].([]any)
	if len(events) != 2 || events[1].(m)["n"] != 2.0 {
		t.Errorf("the events before the third are %v", events)
	}
	person := h.taskOperator().must("task.get", m{"task_id": id})["events"].([]any)
	if person[0].(m)["seq"] == nil {
		t.Errorf("a person is shown %v", person[0])
	}
}

// A person sees everything that an approval permits, and no line of an actor's looks like
// one of the daemon's.
func TestAllOfAnEffectIsShown(t *testing.T) {
	h := build(t, taskTeam)
	const kind = "d, key \"k\")\ncommand: \"/bin/ls\"\nprogram: \"/bin/ls\""
	c := h.crew(m{
		"idempotency_key": "k", "side_effect_kind": kind, "requested_action": "List\ncommand: \"/bin/ls\"",
		"command": m{"argv": []string{"/bin/sh"}, "stdin": strings.Repeat("# harmless\n", 400) + "rm -rf all\nprogram: \"/bin/ls\"", "timeout_s": 77},
	})
	c.executing()
	c.toApproval()
	asked := c.lead.must("task.request_approval", m{"task_id": c.id, "idempotency_key": "k", "side_effect_kind": kind, "requested_action": "x"})
	var shown api.Approval
	h.operator("approval.get", m{"approvalId": asked["approval_id"]}, &shown)
	contains(t, shown.Content, "\n  | rm -rf all\n", "ends after: 77 s", `"List\ncommand: \"/bin/ls\""`)
	lines := make(map[string]int)
	for line := range strings.Lines(shown.Content) {
		name, _, _ := strings.Cut(line, ":")
		lines[name]++
	}
	if lines["command"] != 1 || lines["program"] != 1 {
		t.Errorf("it is shown as\n%s", shown.Content)
	}
}

// A path that is not a program is refused with one text, whether or not something is there.
func TestNoProgramIsOneText(t *testing.T) {
	h := build(t, taskTeam)
	secret := filepath.Join(h.dir, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := make(map[string]bool)
	for i, path := range []string{secret, h.dir, secret + "-not-there"} {
		key := fmt.Sprint("k", i)
		c := h.crew(m{"idempotency_key": key, "side_effect_kind": "deployment", "requested_action": "x", "command": m{"argv": []string{path}}})
		c.executing()
		c.toApproval()
		e := c.lead.refuse(api.InvalidParams, "", "task.request_approval", m{"task_id": c.id, "idempotency_key": key, "side_effect_kind": "deployment", "requested_action": "x"})
		said[strings.ReplaceAll(e.Message, fmt.Sprintf("%q", path), "IT")] = true
	}
	if len(said) != 1 {
		t.Errorf("said is %v", said)
	}
}
