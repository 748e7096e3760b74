# Asked before an agent's runtime runs a tool, where tools in the configuration is enforce or
# record, with
#   input: {action, agent{instance_id, user_id, org_unit, tenant_id},
#           tool{name, server, command, folder}, arguments{…}}
#   data.policy: the configuration's policy.data
#
# tool.name is what the runtime calls it (Bash, Read, WebFetch), tool.server the MCP server
# that it is of, or "", tool.command the line that a shell is to run, and arguments all that
# the tool is given. As it stands everything is allowed: rules of your own stand in
# my_tool_rules.rego.
package ocip.tool

# The whole answer. All four members are required; constraints may have approvers.
decision := {
	"allow": count(denials) == 0,
	"require_approval": count(questions) > 0,
	"reason": reason,
	"constraints": constraints,
}

reason := concat("; ", sort(denials)) if count(denials) > 0

else := concat("; ", sort(questions))

denials contains sprintf("%s is unknown here", [input.action]) if input.action != "tool_call"

# Nobody is asked but by rules of one's own.
questions contains "" if false

# How many people must approve: as many as the greatest says.
approvers contains 1 if count(questions) > 0

constraints.approvers := max(approvers) if count(approvers) > 0
