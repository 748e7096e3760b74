package skill

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/bridge/mcpserver"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskservice"
)

// Step is the work of one phase: the role that does it, and its tools in their order. The
// orchestrator moves the task afterwards.
type Step struct {
	Phase task.Phase
	Role  task.Role
	Tools []string
}

// Steps are the steps of a task, by phase.
func Steps() []Step {
	review := []string{"task_get", "task_append_review"}
	return []Step{
		{task.SpecDraft, task.Orchestrator, []string{"task_create"}},
		{task.SpecReview, task.SpecReviewer, review},
		{task.ExecutionReady, task.Orchestrator, []string{"task_start_attempt"}},
		{task.Executing, task.Executor, []string{"task_get", "task_record_checkpoint", "task_record_artifact", "task_finish_attempt"}},
		{task.SpecGate, task.SpecReviewer, review},
		{task.QualityGate, task.QualityReviewer, review},
		{task.AwaitingApproval, task.Lobster, []string{"task_request_approval"}},
		{task.ReadyToResume, task.Lobster, []string{"task_run_effect"}},
	}
}

// tables are the generated parts of a skill's pages, by their names in the templates.
func (l *language) tables() (map[string]string, error) {
	tools, err := mcpserver.TaskTools()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"Name": l.skill, "Signs": l.signs(), "Roles": l.roleTable(), "Phases": l.phaseTable(), "Matrix": l.matrix(tools),
		"Tools": l.toolTable(tools), "Transitions": l.transitions(),
	}, nil
}

// Sign is a tool that shows the role of a session which has it.
type Sign struct {
	Tool string
	Role task.Role
}

// Signs are the signs of the roles. The first one that a session has shows its role.
func Signs() []Sign {
	return []Sign{{"task_transition", task.Orchestrator}, {"task_append_review", task.SpecReviewer}, {"task_finish_attempt", task.Executor}, {"task_run_effect", task.Lobster}}
}

// signs lists the signs.
func (l *language) signs() string {
	var parts []string
	for _, sign := range Signs() {
		name := l.roles[sign.Role].name
		if sign.Role == task.SpecReviewer {
			name = l.reviewer
		}
		parts = append(parts, fmt.Sprintf(l.sign, sign.Tool, name))
	}
	return strings.Join(parts, l.comma)
}

func (l *language) roleTable() string {
	var rows [][]string
	for _, r := range task.ActorRoles() {
		rows = append(rows, []string{l.role(r), l.roles[r].does, l.roles[r].never})
	}
	b := new(strings.Builder)
	table(b, l.heads.roles, rows)
	return b.String()
}

// role is a role's name in the protocol, and in the language if that differs.
func (l *language) role(r task.Role) string { return both(string(r), l.roles[r].name) }

func (l *language) phase(p task.Phase) string { return both(string(p), l.phases[p]) }

func both(name, said string) string {
	if said == "" || said == strings.ReplaceAll(name, "_", " ") {
		return "`" + name + "`"
	}
	return "`" + name + "`（" + said + "）"
}

// phaseTable has a row for each step, with the move after it, and the moves back.
func (l *language) phaseTable() string {
	var rows [][]string
	for _, s := range Steps() {
		moves := task.Transitions(s.Phase)
		var back []string
		for _, m := range moves[1:] {
			if m.To != task.Failed && m.To != task.CircuitOpen {
				back = append(back, code(string(m.To))+l.guarded(m.Guards))
			}
		}
		rows = append(rows, []string{l.phase(s.Phase), l.role(s.Role), codes(s.Tools), code(string(moves[0].To)) + l.guarded(moves[0].Guards), strings.Join(back, l.comma)})
	}
	b := new(strings.Builder)
	table(b, l.heads.phases, rows)
	return b.String()
}

// guarded names the conditions of a move.
func (l *language) guarded(guards []task.Guard) string {
	if len(guards) == 0 {
		return ""
	}
	return fmt.Sprintf(l.conditions, names(guards))
}

func names(guards []task.Guard) string {
	var list []string
	for _, g := range guards {
		list = append(list, string(g))
	}
	return strings.Join(list, ", ")
}

// matrix says which role has which tool.
func (l *language) matrix(tools []mcpserver.Described) string {
	head := []string{l.heads.tool}
	for _, r := range task.ActorRoles() {
		head = append(head, l.role(r))
	}
	var rows [][]string
	for _, t := range tools {
		row := []string{code(t.Name)}
		for _, r := range task.ActorRoles() {
			has := ""
			if slices.Contains(taskservice.ToolsOf(r), t.Name) {
				has = l.yes
			}
			row = append(row, has)
		}
		rows = append(rows, row)
	}
	b := new(strings.Builder)
	table(b, head, rows)
	return b.String()
}

func (l *language) toolTable(tools []mcpserver.Described) string {
	var rows [][]string
	for _, t := range tools {
		title := t.Title
		if said, ok := l.tools[t.Name]; ok {
			title = said
		}
		rows = append(rows, []string{code(t.Name), title, codes(t.Required)})
	}
	b := new(strings.Builder)
	table(b, l.heads.tools, rows)
	return b.String()
}

// transitions are the section of the reference page on phases, in the language.
func (l *language) transitions() string {
	if l.meanings == nil {
		return strings.TrimSuffix(taskservice.PhasesPage(), "\n")
	}
	var rows, guards [][]string
	known := make(map[task.Guard]bool)
	for _, from := range task.Phases() {
		for _, m := range task.Transitions(from) {
			rows = append(rows, []string{code(string(m.From)), code(string(m.To)), names(m.Guards)})
			for _, g := range m.Guards {
				if !known[g] {
					guards = append(guards, []string{string(g), l.meanings[g]})
				}
				known[g] = true
			}
		}
	}
	b := new(strings.Builder)
	b.WriteString("\n## " + l.heads.section + "\n\n")
	table(b, l.heads.transitions, rows)
	b.WriteString("\n")
	table(b, l.heads.guards, guards)
	return strings.TrimSuffix(b.String(), "\n")
}

func code(name string) string { return "`" + name + "`" }

func codes(list []string) string {
	var quoted []string
	for _, name := range list {
		quoted = append(quoted, code(name))
	}
	return strings.Join(quoted, ", ")
}
