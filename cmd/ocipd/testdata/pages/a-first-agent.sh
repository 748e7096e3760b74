# What ocipd config init writes for ann's bot, and a daemon.
configuration <<END
agents:
  - {id: ann, app: "@acme/bot", instance_id: agent-ann-1, user_id: ann, org_unit: general, tenant_id: ann}
END
serves
