package ocip.task_my_rules_test

import data.ocip.task

ask(action, labels, more) := answer if {
	about := {
		"action": action,
		"task": {"tenant_id": "acme-corp", "classification": "internal", "labels": labels, "phase": "executing"},
		"actor": {"name": "lead", "role": "orchestrator"},
	}
	answer := task.decision with input as object.union(about, more)
}

tool(kind, server, in_workspace) := ask("task_permission", [], {"tool_call": {"kind": kind, "mcp_server": server, "in_workspace": in_workspace}})

effect(kind) := ask("task_effect", [], {"effect": {"kind": kind, "type": "command", "argv0": "bin/deploy", "compensation": false}})

test_tasks_move if {
	answer := ask("task_transition", [], {"to_phase": "spec_gate"})
	answer.allow
	not answer.require_approval
}

test_reading_and_editing_the_workspace_asks_nobody if {
	not tool("edit", "", true).require_approval
	not tool("other", "ocipd", false).require_approval
	tool("edit", "", false).require_approval
	tool("execute", "", true).require_approval
}

test_research_asks_before_it_edits if {
	call := {"kind": "edit", "mcp_server": "", "in_workspace": true, "research": true}
	ask("task_permission", [], {"tool_call": call}).require_approval
	not ask("task_permission", [], {"tool_call": object.union(call, {"kind": "read"})}).require_approval
}

test_two_people_approve_a_deployment if {
	effect("deployment").constraints.approvers == 2
	effect("notification").constraints.approvers == 1
	effect("notification").require_approval
}

test_what_is_frozen_is_not_begun if {
	not ask("task_attempt", ["frozen"], {"attempt": 1, "executor": "builder"}).allow
	ask("task_attempt", ["billing"], {"attempt": 1, "executor": "builder"}).allow
}
