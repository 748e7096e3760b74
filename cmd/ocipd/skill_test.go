package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/openclawos/ocipd/internal/task"
)

// scripted is a model of a test that knows nothing of tasks but a skill's pages and the tools of
// its sessions: it follows the table of phases, and fills in the members that each tool needs.
type scripted struct {
	*mcpTrial
	// page is the SKILL.md that it follows, and store the page about the tools.
	page     string
	store    string
	sessions map[string]*mcpSession
	// knows are the values that it has for members, by their names: its own, and those of answers.
	knows map[string]any
}

// cells are the cells of the rows of a page that begin with code.
func cells(page string) (rows [][]string) {
	for line := range strings.Lines(page) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "| `") {
			rows = append(rows, strings.Split(strings.Trim(line, "|"), "|"))
		}
	}
	return rows
}

// named are the names in a cell that stand as code.
func named(cell string) (names []string) {
	for _, found := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cell, -1) {
		names = append(names, found[1])
	}
	return names
}

// follow has the model work in a phase as the row of the page says, and returns the next phase.
func (s *scripted) follow(phase string) string {
	s.t.Helper()
	rows := cells(s.page)
	i := slices.IndexFunc(rows, func(row []string) bool { return len(row) == 5 && slices.Equal(named(row[0]), []string{phase}) })
	if i < 0 {
		s.t.Fatalf("the skill says nothing of %s", phase)
	}
	row := rows[i]
	role := named(row[1])[0]
	for _, tool := range named(row[2]) {
		s.use(role, tool)
	}
	lead := s.sessions[string(task.Orchestrator)]
	state := lead.must("task_get", args{"task_id": s.knows["task_id"]})
	open := func(to string) bool {
		return slices.ContainsFunc(state["allowed_transitions"].([]any), func(o any) bool {
			return o.(map[string]any)["to"] == to && o.(map[string]any)["allowed"] == true
		})
	}
	// The words of conditions are no code.
	for _, to := range append(named(row[3]), named(row[4])...) {
		if open(to) {
			lead.must("task_transition", args{"task_id": s.knows["task_id"], "from_phase": phase, "to_phase": to, "reason": row[2]})
			return to
		}
	}
	s.t.Fatalf("in %s no move of %s is open: %v", phase, row, state["allowed_transitions"])
	return ""
}

// use calls a tool with the members that it needs, and remembers the answer.
func (s *scripted) use(role, tool string) {
	s.t.Helper()
	by := s.sessions[role]
	if by == nil {
		s.t.Fatalf("there is no session of a %s", role)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	list, err := by.ListTools(ctx, &mcp.ListToolsParams{})
	if err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(list.Tools, func(t *mcp.Tool) bool { return t.Name == tool })
	if i < 0 {
		s.t.Fatalf("a %s does not have %s, which the skill tells it to call", role, tool)
	}
	var schema struct {
		Required []string `json:"required"`
	}
	text, err := json.Marshal(list.Tools[i].InputSchema)
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	given := args{}
	for _, member := range schema.Required {
		value, ok := s.knows[member]
		if !ok {
			s.t.Fatalf("%s needs %s", tool, member)
		}
		given[member] = value
	}
	for _, member := range s.more(tool) {
		if value, ok := s.knows[member]; ok {
			given[member] = value
		}
	}
	switch tool {
	case "task_record_artifact":
		if err := os.WriteFile(filepath.Join(s.dir, "work", "invoices.csv"), []byte("number,amount\n"), 0o600); err != nil {
			s.t.Fatal(err)
		}
	case "task_append_review":
		given["review_type"] = strings.TrimSuffix(role, "_reviewer")
	}
	answer := by.must(tool, given)
	for _, member := range []string{"task_id", "attempt_id", "request_digest"} {
		if value, ok := answer[member]; ok {
			s.knows[member] = value
		}
	}
	if tool == "task_request_approval" {
		s.decide("approve")
	}
}

// more are members that a tool needs beside those of its schema, if the page about the tools names
// them in its text.
func (s *scripted) more(tool string) []string {
	text := regexp.MustCompile(`(?m)^\|.*$`).ReplaceAllString(s.store, "")
	return slices.DeleteFunc(map[string][]string{
		"task_create": {"spec_markdown", "effects"}, "task_start_attempt": {"worker_ref"}, "task_append_review": {"attempt_id"},
		"task_request_approval": {"requested_action"}, "task_run_effect": {"idempotency_key", "wait_s"},
	}[tool], func(member string) bool { return !strings.Contains(text, "`"+member+"`") })
}

// newScripted is a scripted model beside a daemon, with a skill that the built program has written into
// an empty folder, and a session of each role.
func newScripted(t *testing.T, name string) *scripted {
	t.Helper()
	m := newMCPTrial(t, mcpTeam)
	if out, err := m.program("task", "files", filepath.Join(m.dir, "files")).CombinedOutput(); err != nil {
		t.Fatalf("task files: %v\n%s", err, out)
	}
	read := func(page string) string {
		text, err := os.ReadFile(filepath.Join(m.dir, "files", name, page))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	s := &scripted{mcpTrial: m, page: read("SKILL.md"), store: read("references/task-store.md"), sessions: map[string]*mcpSession{}}
	roles := map[string]string{"orchestrator": "lead", "executor": "builder", "spec_reviewer": "checker", "quality_reviewer": "critic", "lobster": "gate"}
	matrix := read("references/agent-permissions.md")
	for role, actor := range roles {
		s.sessions[role] = m.session(actor, args{"actor": actor})
		hasItsTools(t, s.sessions[role], matrix, role)
	}
	_, spec, _ := strings.Cut(s.page, "````markdown\n")
	spec, _, _ = strings.Cut(spec, "````")
	effect := args{"idempotency_key": "release", "side_effect_kind": "deployment", "requested_action": "release", "command": args{"argv": []any{"/bin/sh", "-c", "echo released >>effects"}}}
	s.knows = map[string]any{
		"title": "Export", "workspace": filepath.Join(m.dir, "work"), "initial_phase": "spec_draft", "spec_markdown": spec, "effects": []any{effect},
		"phase": "executing", "runtime": "local", "executor_kind": "builder", "worker_ref": roles["executor"], "checkpoint_type": "heartbeat", "payload": args{},
		"kind": "primary_output", "uri": "invoices.csv", "outcome": "succeeded", "review_type": "", "verdict": "approved", "findings": []any{},
		"idempotency_key": "release", "side_effect_kind": "deployment", "requested_action": "release", "wait_s": 20,
	}
	return s
}

// Each half of the skill is followed by a scripted model through ocipd mcp, one session a role, from
// no task to a completed one whose effect a person has approved. Each session has exactly the tools
// that the skill's matrix says.
func TestSkillIsFollowedToCompleted(t *testing.T) {
	for _, name := range []string{"ocipd-tasks", "ocipd-tasks-zh"} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t, name)
			runner := s.runner()
			defer func() { _ = runner.Process.Signal(os.Interrupt); _ = runner.Wait() }()
			var went []string
			for phase := "spec_draft"; phase != string(task.Completed); phase = s.follow(phase) {
				went = append(went, phase)
			}
			want := "[spec_draft spec_review execution_ready executing spec_gate quality_gate awaiting_approval ready_to_resume]"
			if got := fmt.Sprint(went); got != want {
				t.Errorf("the task went %s, want %s", got, want)
			}
			v := s.view(s.knows["task_id"].(string))
			if v.Phase != task.Completed || len(v.Attempts) != 1 || v.Attempts[0].Actor != "builder" || len(v.Reviews) != 3 || s.done("released") != 1 {
				t.Errorf("it ends in %s with %d attempts, %d reviews, and was released %d times", v.Phase, len(v.Attempts), len(v.Reviews), s.done("released"))
			}
		})
	}
}

// hasItsTools compares a session's tools with the column of its role in the skill's matrix.
func hasItsTools(t *testing.T, s *mcpSession, matrix, role string) {
	t.Helper()
	column := -1
	for line := range strings.Lines(matrix) {
		if i := slices.IndexFunc(strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"), func(cell string) bool { return slices.Equal(named(cell), []string{role}) }); i > 0 {
			column = i
			break
		}
	}
	if column < 0 {
		t.Fatalf("the matrix has no %s:\n%s", role, matrix)
	}
	var want []string
	for _, row := range cells(matrix) {
		if strings.TrimSpace(row[column]) != "" {
			want = append(want, named(row[0])[0])
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	list, err := s.ListTools(ctx, &mcp.ListToolsParams{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tool := range list.Tools {
		got = append(got, tool.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("a %s has %q, and by the skill %q", role, got, want)
	}
}
