-- What an envelope has shown of a session is known to the tenant whose agent got it.
-- Of before, nothing says whose that was, so those rows are of no tenant and hold
-- for all.
CREATE TABLE seen_by_tenant (
    session_key TEXT NOT NULL,
    seen_by     TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    org_unit    TEXT NOT NULL,
    tenant_id   TEXT NOT NULL,
    PRIMARY KEY (session_key, seen_by)
) STRICT, WITHOUT ROWID;
INSERT INTO seen_by_tenant SELECT session_key, '', instance_id, user_id, org_unit, tenant_id FROM seen_agents;
DROP TABLE seen_agents;
ALTER TABLE seen_by_tenant RENAME TO seen_agents;
