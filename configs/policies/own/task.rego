# Asked before a task moves (task_transition), before an attempt begins (task_attempt),
# when a person is to be asked about an effect and again before it starts (task_effect),
# and when an agent wants to use a tool (task_permission), with
#   input: {action, task{tenant_id, classification, labels, phase}, actor{name, role}}
#          and to_phase of a transition,
#              attempt (its number) and executor of an attempt,
#              effect{kind, type, argv0, compensation} of an effect,
#              tool_call{kind, mcp_server, in_workspace, research} of a tool
#   data.policy: the configuration's policy.data
#
# These are the rules that hold without this file. It is asked after the daemon's own
# guards, and opens none of them. One person approves an effect in any case. Where
# transitions and attempts raise a question, they are refused: nobody is asked about them.
package ocip.task

# The whole answer. All four members are required; constraints may be empty.
decision := {
	"allow": count(denials) == 0,
	"require_approval": count(questions) > 0,
	"reason": reason,
	"constraints": constraints,
}

reason := concat("; ", sort(denials)) if count(denials) > 0

else := concat("; ", sort(questions))

denials contains sprintf("%s is unknown here", [input.action]) if {
	not input.action in {"task_transition", "task_attempt", "task_effect", "task_permission"}
}

questions contains "a person decides about what a task does in the world" if input.action == "task_effect"

questions contains sprintf("a person decides about tools of kind %s", [input.tool_call.kind]) if {
	input.action == "task_permission"
	not quiet
}

quiet if {
	input.tool_call.kind in {"read", "search", "think"}
	input.tool_call.in_workspace
}

# An attempt of kind research only reads.
quiet if {
	input.tool_call.kind == "edit"
	input.tool_call.in_workspace
	not input.tool_call.research
}

# The daemon checks what is called of its own tools.
quiet if input.tool_call.mcp_server == "ocipd"

# How many people must approve: as many as the greatest says.
approvers contains 1 if input.action == "task_effect"

constraints.approvers := max(approvers) if count(approvers) > 0
