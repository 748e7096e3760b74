# The agents of the page, and a daemon.
configuration <<END
agents:
  - {id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme}
  - {id: ben, instance_id: agent-ben-1, user_id: ben, org_unit: engineering, tenant_id: acme}
END
serves
