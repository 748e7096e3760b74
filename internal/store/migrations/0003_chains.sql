-- What an agent heard last, and the causal line it came in, so that what the
-- agent begins next goes on with that line.
CREATE TABLE heard (
    agent TEXT PRIMARY KEY,
    at    INTEGER NOT NULL,
    chain TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Which agent an envelope has shown to be at a session that the directory does
-- not list.
CREATE TABLE seen_agents (
    session_key TEXT PRIMARY KEY,
    instance_id TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    org_unit    TEXT NOT NULL,
    tenant_id   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
