-- Who spoke where many read, as the agents of one tenant heard. The lowest number
-- was heard first.
CREATE TABLE speakers (
    no          INTEGER PRIMARY KEY,
    place       TEXT NOT NULL,
    heard_by    TEXT NOT NULL,
    account     TEXT NOT NULL,
    agent       INTEGER NOT NULL,
    instance_id TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    org_unit    TEXT NOT NULL,
    tenant_id   TEXT NOT NULL,
    UNIQUE (place, heard_by, account, agent, instance_id, user_id, org_unit, tenant_id)
) STRICT;
