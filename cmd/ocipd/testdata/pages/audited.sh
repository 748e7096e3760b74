# A daemon with two agents that has decided something of each kind: sent, refused, held and
# approved by a person. The examples are beside it.
cp -r "$PAGES/../../../../examples" "$PAGES/../../../../sdk" .
configuration <<YAML
agents:
  - {id: ann, instance_id: agent-ann-1, user_id: ann, org_unit: engineering, tenant_id: acme}
  - {id: ben, instance_id: agent-ben-1, user_id: ben, org_unit: engineering, tenant_id: acme}
YAML
serves
ocipd send --agent ann agent:ben:main 'How far is the review?'
ocipd send --agent ann agent:ben:main 'Use ghp_16C7e42F292c6912E7710c838347Ae178B4a for it.'
ocipd send --agent ann agent:ben:main 'I promise the review by Friday.'
approves
# A stop signs all that was decided before it.
serves
