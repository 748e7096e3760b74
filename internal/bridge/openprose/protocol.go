package openprose

import (
	"regexp"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/task"
)

// tools are the tools of the store's MCP server.
func tools() []string {
	return []string{
		"task_create", "task_get", "task_transition", "task_start_attempt", "task_record_checkpoint", "task_record_artifact", "task_append_review", "task_request_approval",
		"task_resolve_approval", "task_open_circuit", "task_list_ready", "task_claim", "task_update", "task_finish_attempt", "task_plan_effect", "task_run_effect",
		"task_finish_effect", "task_settle_effect", "task_cancel_effect", "task_close_circuit", "task_grant", "task_revoke_grant",
		"message_send", "messages_read", "contacts_list", "exchange_get", "approval_status",
	}
}

// moving are the tools that only the orchestrator may use to move a task.
func moving() []string {
	return []string{"task_transition", "task_open_circuit", "task_close_circuit", "task_run_effect"}
}

// server is the name under which the store's tools are declared.
const server = "mcp:ocipd"

var (
	toolName = regexp.MustCompile(`\b(task|message|messages|contacts|exchange|approval)_[a-z_]+\b`)
	hostTool = regexp.MustCompile(`\b(mcp|cli):[A-Za-z0-9][A-Za-z0-9._-]*`)
)

// roleOf returns the role in the name of an agent or a function, or "": the name is the
// role's, or begins with it.
func roleOf(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	for _, r := range task.ActorRoles() {
		if name == string(r) || strings.HasPrefix(name, string(r)+"_") {
			return string(r)
		}
	}
	return ""
}

// says checks an agent's instructions; name is the agent's.
func (k *program) says(name string, props []*node) {
	if k.LanguageOnly {
		return
	}
	for _, p := range props {
		k.told(name, p.value)
	}
}

func (k *program) told(name string, n *node) {
	if n == nil {
		return
	}
	switch n.kind {
	case kindString:
		k.mentions(passage{n.text, k.at + n.nameAt}, k.tools, name, true)
	case kindArray:
		for _, item := range n.items {
			k.told(name, item)
		}
	case kindObject:
		for _, e := range n.props {
			k.told(name, e.value)
		}
	}
}

// contractTexts checks the other sections of a contract. A function's sections instruct the
// agent that runs it, and the file's the model that runs the program.
func (c *checker) contractTexts(u *unit, declared map[string]bool, function bool) {
	for _, t := range u.texts {
		c.mentions(t, declared, u.name, function)
	}
}

// mentions checks the tools that a text names.
func (c *checker) mentions(t passage, declared map[string]bool, name string, told bool) {
	for _, m := range hostTool.FindAllStringIndex(t.text, -1) {
		if tool := t.text[m[0]:m[1]]; !declared[tool] {
			c.add(t.at+m[0], Error, "the tool %s is not declared", quote(tool))
		}
	}
	for _, m := range toolName.FindAllStringIndex(t.text, -1) {
		tool := t.text[m[0]:m[1]]
		switch near := text.Nearest(tool, tools(), 2); {
		case !slices.Contains(tools(), tool) && near != "" && !slices.Contains(members(), tool):
			c.add(t.at+m[0], Error, "there is no tool %s: did you mean %s?", quote(tool), quote(near))
		case !slices.Contains(tools(), tool):
		case !declared[server]:
			c.add(t.at+m[0], Error, "the tool %s is of %s, which is not declared", quote(tool), server)
		case told && slices.Contains(moving(), tool) && roleOf(name) != string(task.Orchestrator):
			who := quote(name)
			if name == "" {
				who = "a session of no agent"
			}
			c.add(t.at+m[0], Error, "%s is the orchestrator's alone, and %s is told of it: name what it must not do under prohibited", quote(tool), who)
		}
	}
}

// members are words that look like tools but are members of requests.
func members() []string {
	return []string{"task_id", "task_ids", "task_seq", "approval_id", "exchange_id", "message_id", "task_grants"}
}
