package ocip.cross_org_test

import data.ocip.cross_org

ask(source, target) := {
	"action": "agent_exchange_cross_org",
	"exchange_type": "information_query",
	"data_classification": "internal",
	"source": {"instance_id": "agent-1", "user_id": "alice", "org_unit": source, "tenant_id": "acme-corp"},
	"target": {"instance_id": "agent-2", "user_id": "carol", "org_unit": target, "tenant_id": "acme-corp"},
	"source_org_unit": source,
	"target_org_unit": target,
	"round": 1,
}

test_allowed if {
	answer := cross_org.decision with input as ask("engineering", "marketing") with data.policy as {"cross_org": true}
	answer == {
		"allow": true,
		"require_approval": false,
		"reason": "cross-org exchange from engineering to marketing is allowed by policy.data.cross_org",
		"constraints": {},
	}
}

test_denied_says_what_to_change if {
	answer := cross_org.decision with input as ask("engineering", "marketing") with data.policy as {"cross_org": false}
	not answer.allow
	answer.reason == "cross-org exchange from engineering to marketing needs policy.data.cross_org: true"
}

test_true_and_nothing_else[label] if {
	some label, policy in {
		"missing": {},
		"string": {"cross_org": "true"},
		"number": {"cross_org": 1},
		"null": {"cross_org": null},
	}
	answer := cross_org.decision with input as ask("engineering", "marketing") with data.policy as policy
	not answer.allow
}

test_no_settings_at_all if {
	answer := cross_org.decision with input as ask("engineering", "marketing")
	not answer.allow
}

test_empty_unit_is_named if {
	answer := cross_org.decision with input as ask("", "marketing") with data.policy as {"cross_org": false}
	answer.reason == "cross-org exchange from no org unit to marketing needs policy.data.cross_org: true"
}
