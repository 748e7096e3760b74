# Rules of your own, beside the built-in ones. Each denial refuses a message and each
# question holds it for a person; its text is the reason that people read.
#
# input is described at the top of agent_exchange.rego. These two rules are examples:
# change them, and their tests in my_rules_test.rego.
package ocip.agent_exchange

# The sales unit gets public data only.
denials contains sprintf("%s gets public data only", [input.target.org_unit]) if {
	input.target.org_unit == "sales"
	input.data_classification != "public"
}

# A person looks at every commitment request between agents.
questions contains "a person looks at commitment requests" if {
	input.exchange_type == "commitment_request"
	input.counterparty.kind == "agent"
}
