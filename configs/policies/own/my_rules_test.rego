package ocip.agent_exchange_my_rules_test

import data.ocip.agent_exchange

settings := {
	"enabled": true,
	"cross_org": true,
	"allowed_exchange_types": ["information_query", "commitment_request"],
	"max_classification_shared": "internal",
}

agent(unit) := {"instance_id": "agent-1", "user_id": "alice", "org_unit": unit, "tenant_id": "acme-corp"}

ask(unit, type, level) := answer if {
	message := {
		"action": "agent_exchange",
		"exchange_type": type,
		"data_classification": level,
		"source": agent("engineering"),
		"target": agent(unit),
		"round": 1,
		"counterparty": {"kind": "agent"},
	}
	answer := agent_exchange.decision with data.policy as settings with input as message
}

test_engineering_gets_internal_data if {
	answer := ask("engineering", "information_query", "internal")
	answer.allow
	not answer.require_approval
}

test_sales_gets_public_data_only if {
	not ask("sales", "information_query", "internal").allow
	ask("sales", "information_query", "public").allow
}

test_a_person_looks_at_commitment_requests if {
	answer := ask("engineering", "commitment_request", "public")
	answer.allow
	answer.require_approval
	answer.reason == "a person looks at commitment requests"
}
