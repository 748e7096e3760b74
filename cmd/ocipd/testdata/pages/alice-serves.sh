# A daemon for alice, who knows dave.
unset -f ocipd
configuration <<END
agents:
  - {id: alice, instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_rounds: 6}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
END
serves
