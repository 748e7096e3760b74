-- Messages that wait for a person, and what became of those that did. The
-- summary is what lists show, the body all that a decision and a release need.
CREATE TABLE approvals (
    id          TEXT PRIMARY KEY,
    agent       TEXT NOT NULL,
    app_id      TEXT NOT NULL,
    exchange_id TEXT NOT NULL,
    asked       TEXT NOT NULL,
    state       TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    summary     TEXT NOT NULL,
    body        TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- The same bytes asked again are the same request, as long as it waits.
CREATE UNIQUE INDEX approvals_asked ON approvals (agent, asked) WHERE state = 'pending';
CREATE INDEX approvals_state ON approvals (state, id, agent, summary);
CREATE INDEX approvals_expiry ON approvals (expires_at) WHERE state = 'pending';
CREATE INDEX approvals_exchange ON approvals (exchange_id) WHERE state = 'pending';
