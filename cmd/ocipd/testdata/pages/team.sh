# Actors whose agents are scripted, and what is to be done.
agent() { echo "acp: {command: [\"$TEST_BINARY\", acp-agent, \"$HOME/$1.plan\"], env: [GORACE]}"; }
mkdir -p work && configuration <<END
approvals: {notify: {desktop: false}}
agents:
  - {id: me, instance_id: agent-me-1, user_id: me, org_unit: home, tenant_id: acme}
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: builder, role: executor, tenant_id: acme, $(agent builder)}
    - {name: expert, role: executor, tenant_id: acme, $(agent expert)}
    - {name: checker, role: spec_reviewer, tenant_id: acme, $(agent checker)}
    - {name: critic, role: quality_reviewer, tenant_id: acme, $(agent critic)}
    - {name: gate, role: lobster, tenant_id: acme}
  run: {executor: builder, escalation: expert, spec_reviewer: checker, quality_reviewer: critic}
END
serves
specified() {
	printf -- '---\ntitle: Export\nworkspace: %s\n%s---\n' "$PWD/work" "$1"
	printf '## %s\n- %s\n' Goal 'invoices as CSV' Scope 'one file' Non-goals none Inputs none Outputs out.txt 'Acceptance criteria' '`test -s out.txt` exits with 0' Risks none
}
specified '' >spec.md
move() { ocipd task transition "$task" "$1" --reason "$2" --token-file lead.token; }
