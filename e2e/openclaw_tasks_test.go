//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// seat is an actor of tasks, and the agent of the Gateway that plays it.
type seat struct{ actor, agent string }

var seats = []seat{{"lead", "main"}, {"builder", "coder"}, {"checker", "reader"}, {"critic", "tester"}}

// table is a task that agents of one Gateway work on.
type table struct {
	*gateway
	id string
}

// call has the agent of an actor call a tool of its own, and returns what its model is told, of which
// OpenClaw cuts a long answer.
func (g *table) call(actor, tool string, args map[string]any) string {
	g.t.Helper()
	for _, s := range seats {
		if s.actor != actor {
			continue
		}
		told := g.turnOf(s.agent, "ocipd-"+actor+"__"+tool, args)
		if !strings.Contains(told, `"mcpServer": "ocipd-`+actor+`"`) && !strings.Contains(told, `"name": "ocipd-`+actor+"__"+tool) || strings.Contains(told, `\"code\":\"`) {
			g.t.Fatalf("%s of %s: %s", tool, actor, told)
		}
		return told
	}
	g.t.Fatalf("nobody is %s", actor)
	return ""
}

// idIn is the first id with a prefix in a text.
func idIn(text, prefix string) string {
	return regexp.MustCompile(prefix + "[0-9a-f-]{36}").FindString(text)
}

// phase is the phase of the task.
func (g *table) phase() string {
	g.t.Helper()
	var v struct{ Phase string }
	if err := json.Unmarshal([]byte(g.operate("task", "show", g.id, "--json")), &v); err != nil {
		g.t.Fatal(err)
	}
	return v.Phase
}

func (g *table) move(from, to string) {
	g.t.Helper()
	g.call("lead", "task_transition", map[string]any{"task_id": g.id, "from_phase": from, "to_phase": to, "reason": "as it stands"})
}

func (g *table) review(actor, kind, attempt string) {
	g.t.Helper()
	g.call(actor, "task_get", map[string]any{"task_id": g.id})
	args := map[string]any{"task_id": g.id, "review_type": kind, "verdict": "approved", "findings": []any{}}
	if attempt != "" {
		args["attempt_id"] = attempt
	}
	g.call(actor, "task_append_review", args)
}

// Four agents of one Gateway, each with the tools of one actor by one command, take a task from its
// specification to completed. Each is refused a tool of every other by the Gateway, and the machine
// becomes what it was.
func TestOpenClawAgentsCompleteATask(t *testing.T) {
	var agents, pairs []string
	for _, s := range seats {
		agents, pairs = append(agents, s.agent), append(pairs, s.actor+"="+s.agent)
	}
	g := &table{gateway: openGatewayOf(t, append(agents, "guest"), team, func(*gateway) string { return "" })}
	g.skill("main/skills")
	settings := g.read("openclaw/openclaw.json")
	if said := g.integrate("--tasks", strings.Join(pairs, ","), "--dry-run"); !strings.Contains(said, "nothing was changed") || !strings.Contains(said, `"ocipd-lead__*"`) || g.read("openclaw/openclaw.json") != settings {
		t.Fatalf("a dry run: %s", said)
	}
	if said := g.integrate("--tasks", strings.Join(pairs, ",")); !strings.Contains(said, "agent coder has the tools of builder") {
		t.Fatalf("integrated: %s", said)
	}
	if said := g.integrate("--tasks", strings.Join(pairs, ",")); !strings.Contains(said, "nothing to change") {
		t.Errorf("once more: %s", said)
	}
	spec := "## Goal\nA count of words.\n## Scope\n- one file\n## Non-goals\n- none\n## Inputs\n- none\n## Outputs\n- count.txt\n## Acceptance criteria\n- `cat count.txt` prints 3\n## Risks\n- none\n"
	g.id = idIn(g.call("lead", "task_create", map[string]any{"title": "Count", "spec_markdown": spec, "workspace": g.at("coder"), "initial_phase": "spec_review"}), "tsk_")
	// Nobody has a tool of another, nor has an agent that plays nobody.
	for _, s := range append(slices.Clone(seats), seat{"", "guest"}) {
		var others []string
		for _, other := range seats {
			if other.actor != s.actor {
				others = append(others, "ocipd-"+other.actor+"__task_get")
			}
		}
		told := g.turnOf(s.agent, strings.Join(others, " "), map[string]any{"task_id": g.id})
		for _, tool := range others {
			if !strings.Contains(told, "Unknown tool id: "+tool) {
				t.Errorf("%s has %s: %s", s.agent, tool, told)
			}
		}
		if strings.Contains(told, "Unknown tool id: ocipd-"+s.actor+"__") || strings.Contains(told, "words.") {
			t.Errorf("%s: %s", s.agent, told)
		}
	}
	g.review("checker", "spec", "")
	g.move("spec_review", "execution_ready")
	attempt := idIn(g.call("lead", "task_start_attempt", map[string]any{"task_id": g.id, "phase": "executing", "runtime": "local", "executor_kind": "builder", "worker_ref": "builder"}), "att_")
	g.move("execution_ready", "executing")
	if err := os.WriteFile(g.at("coder/count.txt"), []byte("3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mine := map[string]any{"task_id": g.id, "attempt_id": attempt}
	with := func(more map[string]any) map[string]any {
		for name, value := range mine {
			more[name] = value
		}
		return more
	}
	g.call("builder", "task_record_checkpoint", with(map[string]any{"checkpoint_type": "heartbeat", "payload": map[string]any{}}))
	g.call("builder", "task_record_artifact", with(map[string]any{"kind": "primary_output", "uri": "count.txt"}))
	g.call("builder", "task_finish_attempt", with(map[string]any{"outcome": "succeeded"}))
	g.move("executing", "spec_gate")
	g.review("checker", "spec", attempt)
	g.move("spec_gate", "quality_gate")
	g.review("critic", "quality", attempt)
	g.move("quality_gate", "completed")
	if phase := g.phase(); phase != "completed" {
		t.Errorf("the task is in %s", phase)
	}
	g.operate("audit", "verify")
	if g.saw("main", skillSays) == 0 || g.saw("coder", skillSays) != 0 {
		t.Errorf("main's model saw the skill %d times, and coder's %d", g.saw("main", skillSays), g.saw("coder", skillSays))
	}
	g.integrate("--remove")
	if now := g.read("openclaw/openclaw.json"); now != settings {
		t.Errorf("OpenClaw's settings are\n%s\nand were\n%s", now, settings)
	}
	if _, err := os.Stat(g.at("openclawos/integrations/openclaw-lead.token")); err == nil {
		t.Error("a token is there still")
	}
	if told := g.turnOf("main", "ocipd-lead__task_get", map[string]any{"task_id": g.id}); !strings.Contains(told, "Unknown tool id: ocipd-lead__task_get") {
		t.Errorf("removed, main has the tool still: %s", told)
	}
}
