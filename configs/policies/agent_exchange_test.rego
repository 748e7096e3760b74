package ocip.agent_exchange_test

import data.ocip.agent_exchange

agent(unit) := {"instance_id": "agent-1", "user_id": "alice", "org_unit": unit, "tenant_id": "acme-corp"}

ask(type, level) := {
	"action": "agent_exchange",
	"exchange_type": type,
	"data_classification": level,
	"source": agent("engineering"),
	"target": agent("engineering"),
	"round": 1,
	"counterparty": {"kind": "agent"},
}

settings := {
	"enabled": true,
	"cross_org": false,
	"allowed_exchange_types": ["information_query", "commitment_request"],
	"max_classification_shared": "internal",
}

# decide with the settings changed by patch, and without the members in drop.
decide(type, level, patch, drop) := answer if {
	policy := object.remove(object.union(settings, patch), drop)
	answer := agent_exchange.decision with input as ask(type, level) with data.policy as policy
}

test_allowed if {
	decide("information_query", "internal", {}, []) == {
		"allow": true,
		"require_approval": false,
		"reason": "policy.data allows a question at level internal",
		"constraints": {"max_classification": "internal"},
	}
}

test_lower_level_allowed if decide("commitment_request", "public", {}, []).allow

# Every level against every maximum: allowed up to it, denied above.
test_levels[label] if {
	names := ["public", "internal", "confidential", "restricted"]
	some i, level in names
	some j, limit in names
	label := sprintf("%s shared up to %s", [level, limit])
	answer := decide("information_query", level, {"max_classification_shared": limit}, [])
	answer.allow == (i <= j)
	answer.constraints.max_classification == limit
}

test_above_maximum_names_the_setting if {
	answer := decide("information_query", "restricted", {}, [])
	not answer.allow
	answer.reason == "restricted data needs policy.data.max_classification_shared: restricted, it is internal"
}

test_type_not_listed if {
	answer := decide("meeting_scheduling", "internal", {}, [])
	not answer.allow
	answer.reason == "exchange type meeting_scheduling needs to be listed in policy.data.allowed_exchange_types"
}

test_types_are_a_list[label] if {
	some label, types in {
		"missing": null,
		"string": "information_query",
		"object": {"a": "information_query"},
		"empty": [],
	}
	not decide("information_query", "internal", {"allowed_exchange_types": types}, []).allow
}

test_enabled_is_true_and_nothing_else[label] if {
	some label, value in {"false": false, "string": "true", "number": 1, "null": null}
	answer := decide("information_query", "internal", {"enabled": value}, [])
	not answer.allow
	answer.reason == "agent exchanges need policy.data.enabled: true"
}

test_missing_setting_denies[name] if {
	some name in ["enabled", "allowed_exchange_types", "max_classification_shared"]
	answer := decide("information_query", "public", {}, [name])
	not answer.allow
	contains(answer.reason, sprintf("policy.data.%s", [name]))
}

test_no_settings_at_all if {
	answer := agent_exchange.decision with input as ask("information_query", "public") with data.policy as {}
	not answer.allow
	answer.constraints == {}
}

test_unknown_maximum if {
	answer := decide("information_query", "public", {"max_classification_shared": "secret"}, [])
	not answer.allow
	answer.constraints == {}
}

test_unknown_level if {
	answer := decide("information_query", "secret", {}, [])
	not answer.allow
	answer.reason == "secret is no classification: want public, internal, confidential or restricted"
}

test_every_reason_is_given if {
	answer := decide("meeting_scheduling", "restricted", {"enabled": false}, [])
	count(split(answer.reason, "; ")) == 3
}

test_rounds if {
	decide("information_query", "public", {"max_rounds": 2}, []).constraints.max_rounds == 2
}

test_rounds_that_are_none[label] if {
	some label, value in {"zero": 0, "negative": -1, "fraction": 1.5, "string": "2", "null": null, "false": false}
	answer := decide("information_query", "public", {"max_rounds": value}, [])
	not answer.allow
	not answer.constraints.max_rounds
}

# decide_for asks about a message to people.
decide_for(kind, level, patch) := answer if {
	asked := object.union(ask("information_query", level), {"counterparty": {"kind": kind}, "target": {}})
	answer := agent_exchange.decision with input as asked with data.policy as object.union(settings, patch)
}

# What is said of exchanges is about agents: nobody else has any.
test_people_within_the_level[label] if {
	some kind in ["person", "unknown"]
	some setting, patch in {
		"as it comes": {},
		"exchanges disabled": {"enabled": false},
		"no type listed": {"allowed_exchange_types": []},
		"another type listed": {"allowed_exchange_types": ["meeting_scheduling"]},
		"no way across org units": {"cross_org": false},
	}
	label := sprintf("%s, %s", [kind, setting])
	answer := decide_for(kind, "internal", patch)
	answer.allow
	answer.reason == sprintf("policy.data allows level internal to %s", [{"person": "a declared person", "unknown": "a stranger"}[kind]])
}

test_people_above_the_level if {
	some kind in ["person", "unknown"]
	answer := decide_for(kind, "confidential", {})
	not answer.allow
	answer.reason == "confidential data needs policy.data.max_classification_shared: confidential, it is internal"
}

# What nobody named is held to the rules of agents.
test_other_kinds_are_denied_nothing_less if {
	not decide_for("agent", "internal", {"enabled": false}).allow
}
