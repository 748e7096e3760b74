package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/task"
)

// machine runs the protocol's program in OpenProse as a model with the language's skill does: it reads
// the program's text line by line, and has a session of each agent do what the prompt says. Nothing of
// the program's order is in it.
type machine struct {
	*scripted
	// lines are the program's loop.
	lines []string
	// agents are the tools that each agent's shape names, and prohibits.
	agents map[string]struct{ self, prohibited []string }
	// refusals is how many times the quality reviewer asks for changes.
	refusals int
	// ran are the sessions, in their order.
	ran []string
}

var (
	agentLine   = regexp.MustCompile(`^agent ([a-z-]+):$`)
	shapeLine   = regexp.MustCompile(`^\s+(self|prohibited): (\[.*\])$`)
	optionLine  = regexp.MustCompile(`^(\s+)option "([a-z_]+)":$`)
	sessionLine = regexp.MustCompile(`session: ([a-z-]+)$`)
	promptLine  = regexp.MustCompile(`^\s+prompt: "(.*)"$`)
	resultLine  = regexp.MustCompile(`^\s+outcome = "(.*)"$`)
	quotedTool  = regexp.MustCompile(`"(task_[a-z_]+)"`)
	phaseWord   = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)*\b`)
)

// load reads the program's agents and its loop.
func (m *machine) load(text string) {
	m.t.Helper()
	m.agents = make(map[string]struct{ self, prohibited []string })
	agent := ""
	for i, line := range strings.Split(text, "\n") {
		if found := agentLine.FindStringSubmatch(line); found != nil {
			agent = found[1]
		}
		if found := shapeLine.FindStringSubmatch(line); found != nil {
			a := m.agents[agent]
			for _, tool := range quotedTool.FindAllStringSubmatch(found[2], -1) {
				if found[1] == "self" {
					a.self = append(a.self, tool[1])
				} else {
					a.prohibited = append(a.prohibited, tool[1])
				}
			}
			m.agents[agent] = a
		}
		if strings.HasPrefix(line, "loop ") {
			m.lines = strings.Split(text, "\n")[i+1:]
			return
		}
	}
	m.t.Fatal("the program has no loop")
}

// round is one round of the loop. It returns the phase that it began in, and whether the program is at
// its end.
func (m *machine) round() (phase string, ended bool) {
	m.t.Helper()
	within, option := true, ""
	name := ""
	for _, line := range m.lines {
		if strings.HasPrefix(line, "return ") || strings.HasPrefix(line, "output ") || strings.HasPrefix(line, "```") {
			break
		}
		if found := optionLine.FindStringSubmatch(line); found != nil {
			within, option = found[2] == phase, found[2]
			continue
		}
		if !within {
			continue
		}
		if found := sessionLine.FindStringSubmatch(line); found != nil {
			name = found[1]
		}
		if found := promptLine.FindStringSubmatch(line); found != nil {
			prompt := strings.ReplaceAll(found[1], "{task_id}", m.knows["task_id"].(string))
			m.ran = append(m.ran, name)
			now := m.has(name, prompt)
			if option == "" {
				phase = now
			}
		}
		if resultLine.MatchString(line) && option != "" {
			return phase, true
		}
	}
	if m.ran[len(m.ran)-1] == "orchestrator" && option == "" {
		m.t.Fatalf("the program has no option for %s", phase)
	}
	return phase, false
}

// proseRoles are the actors' roles by the names of the program's agents.
var proseRoles = map[string]string{"orchestrator": "orchestrator", "executor": "executor", "spec-reviewer": "spec_reviewer", "quality-reviewer": "quality_reviewer", "lobster": "lobster"}

// has is one session of an agent: it reads the task, and acts as its prompt says. It returns the
// phase that it has read.
func (m *machine) has(name, prompt string) string {
	m.t.Helper()
	role := proseRoles[name]
	act := func(tool string) {
		m.t.Helper()
		if a := m.agents[name]; slices.Contains(a.prohibited, tool) || len(a.self) > 0 && !slices.Contains(a.self, tool) {
			m.t.Fatalf("the program's %s may not call %s", name, tool)
		}
		m.use(role, tool)
	}
	state := m.sessions[role].must("task_get", args{"task_id": m.knows["task_id"]})
	phase := state["phase"].(string)
	switch name {
	case "executor":
		for _, tool := range []string{"task_record_checkpoint", "task_record_artifact", "task_finish_attempt"} {
			act(tool)
		}
	case "spec-reviewer", "quality-reviewer":
		m.knows["verdict"] = "approved"
		if name == "quality-reviewer" && m.refusals > 0 {
			m.refusals--
			m.knows["verdict"] = "changes_requested"
		}
		act("task_append_review")
	case "lobster":
		// The workflow asks, and once the task may resume it runs.
		tool := "task_request_approval"
		if phase == string(task.ReadyToResume) {
			tool = "task_run_effect"
		}
		m.use(role, tool)
	case "orchestrator":
		if strings.Contains(prompt, "task_start_attempt") {
			act("task_start_attempt")
			state = m.sessions[role].must("task_get", args{"task_id": m.knows["task_id"]})
		}
		m.move(act, state, phase, prompt)
	}
	return phase
}

// move moves the task to the first phase that a prompt names, of those that are open.
func (m *machine) move(act func(string), state map[string]any, phase, prompt string) {
	m.t.Helper()
	if !strings.Contains(prompt, "move") {
		return
	}
	for _, word := range phaseWord.FindAllString(prompt, -1) {
		for _, o := range state["allowed_transitions"].([]any) {
			if one := o.(map[string]any); one["to"] == word && one["allowed"] == true {
				m.knows["from_phase"], m.knows["to_phase"], m.knows["reason"] = phase, word, prompt
				act("task_transition")
				return
			}
		}
	}
}

// The program in OpenProse that ocipd writes is run by a scripted model, in both of its forms: sessions
// with the tools of one role each take a task from its draft over a request for changes to completed. No
// session calls a tool outside the shape of its agent, but the workflow of the lobster.
func TestProseProgramIsRun(t *testing.T) {
	for _, name := range []string{"ocip-protocol.prose.md", "ocip-protocol.prose"} {
		t.Run(name, func(t *testing.T) {
			m := &machine{scripted: newScripted(t, "ocipd-tasks"), refusals: 1}
			text, err := os.ReadFile(filepath.Join(m.dir, "files", name))
			if err != nil {
				t.Fatal(err)
			}
			m.load(string(text))
			runner := m.runner()
			defer func() { _ = runner.Process.Signal(os.Interrupt); _ = runner.Wait() }()
			m.use("orchestrator", "task_create")
			var went []string
			for range 60 {
				phase, ended := m.round()
				went = append(went, phase)
				if ended {
					break
				}
			}
			want := "[spec_draft spec_review execution_ready executing spec_gate quality_gate execution_ready executing spec_gate quality_gate awaiting_approval ready_to_resume completed]"
			if got := fmt.Sprint(went); got != want {
				t.Errorf("the rounds began in %s, want %s", got, want)
			}
			v := m.view(m.knows["task_id"].(string))
			if v.Phase != task.Completed || len(v.Attempts) != 2 || m.done("released") != 1 {
				t.Errorf("it ends in %s after %d attempts, and was released %d times", v.Phase, len(v.Attempts), m.done("released"))
			}
			for agent := range proseRoles {
				if !slices.Contains(m.ran, agent) {
					t.Errorf("no session of %s ran", agent)
				}
			}
		})
	}
}
