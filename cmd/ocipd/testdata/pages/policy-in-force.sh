# The daemon has the policy that was made above, and an agent.
configuration <<END
agents:
  - {id: me, instance_id: agent-me-1, user_id: me, org_unit: home, tenant_id: home}
policy: {path: $PWD/policy}
END
serves
