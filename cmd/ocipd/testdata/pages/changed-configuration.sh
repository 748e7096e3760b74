# The daemon waits for a command to take a change, else it has taken it before it is shown.
configuration <<END
policy: {watch: false}
agents:
  - {id: alice, instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp, max_rounds: 3}
directory:
  - {instance_id: agent-dave-1, user_id: dave, org_unit: engineering, tenant_id: acme-corp, accepts: [public, internal], sessions: ["telegram:dave"]}
END
systemctl --user reload ocipd
sed -i 's/max_rounds: 3/max_rounds: 6/; $a log: {format: json}' "$HOME/.config/openclawos/ocipd.yaml"
