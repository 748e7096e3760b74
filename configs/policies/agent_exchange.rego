# Asked for every message between two agents of one tenant and, where
# ocip.person.policy and ocip.unknown.policy say so, to people, with
#   input: {action, exchange_type, data_classification, source{instance_id,
#           user_id, org_unit, tenant_id}, target{...}, round,
#           counterparty{kind}}: an agent, a declared person, or unknown
#   data.policy: the configuration's policy.data
#
# Between agents, what it allows is listed in policy.data and all else is denied.
# To people it allows what is within policy.data.max_classification_shared: the
# list is of exchanges, which people have none of. Every reason says what an
# operator would change.
package ocip.agent_exchange

# The whole answer. All four members are required; constraints may be empty.
decision := {
	"allow": count(denials) == 0,
	"require_approval": false,
	"reason": reason,
	"constraints": constraints,
}

rank := {"public": 0, "internal": 1, "confidential": 2, "restricted": 3}

levels := "public, internal, confidential or restricted"

reason := concat("; ", sort(denials)) if count(denials) > 0

else := sprintf("policy.data allows %s at level %s", [word(input.exchange_type), input.data_classification]) if between_agents

else := sprintf("policy.data allows level %s to %s", [input.data_classification, word(input.counterparty.kind)])

# How people say it.
word(name) := object.get(
	{
		"information_query": "a question",
		"commitment_request": "a request for a commitment",
		"meeting_scheduling": "a meeting's date",
		"person": "a declared person",
		"group": "a declared group",
		"unknown": "a stranger",
	},
	name, name,
)

between_agents if input.counterparty.kind == "agent"

denials contains "agent exchanges need policy.data.enabled: true" if {
	between_agents
	not enabled
}

denials contains sprintf("exchange type %s needs to be listed in policy.data.allowed_exchange_types", [input.exchange_type]) if {
	between_agents
	not type_allowed
}

denials contains sprintf("%s is no classification: want %s", [input.data_classification, levels]) if {
	not rank[input.data_classification]
}

denials contains sprintf("policy.data.max_classification_shared needs to be %s", [levels]) if not max_rank

denials contains msg if {
	rank[input.data_classification] > max_rank
	msg := sprintf("%s data needs policy.data.max_classification_shared: %s, it is %s", [
		input.data_classification,
		input.data_classification,
		data.policy.max_classification_shared,
	])
}

denials contains "policy.data.max_rounds needs to be a whole number from 1, or left out" if not rounds_valid

enabled if data.policy.enabled == true

# Only a list counts: the members of an object or a string are not meant.
type_allowed if {
	is_array(data.policy.allowed_exchange_types)
	input.exchange_type in data.policy.allowed_exchange_types
}

max_rank := rank[data.policy.max_classification_shared]

rounds_valid if not has_rounds

rounds_valid if max_rounds

has_rounds if "max_rounds" in object.keys(data.policy)

max_rounds := n if {
	n := data.policy.max_rounds
	is_number(n)
	n >= 1
	n == floor(n)
}

constraints.max_classification := data.policy.max_classification_shared if max_rank

constraints.max_rounds := max_rounds
