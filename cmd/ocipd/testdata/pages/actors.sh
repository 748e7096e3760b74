configuration <<END
tasks:
  actors:
    - {name: lead, role: orchestrator, tenant_id: acme}
    - {name: checker, role: spec_reviewer, tenant_id: acme}
    - {name: critic, role: quality_reviewer, tenant_id: acme}
END
serves
