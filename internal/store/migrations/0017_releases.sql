-- What people have approved for runtimes that deliver by themselves, until the runtime
-- has said what became of it. Data goes when that is known.
CREATE TABLE releases (
    approval    TEXT PRIMARY KEY,
    app_id      TEXT NOT NULL,
    state       TEXT NOT NULL,
    claim       TEXT NOT NULL,
    request_key TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    origin      TEXT NOT NULL,
    data        TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX releases_state ON releases (state, expires_at) WHERE state IN ('ready', 'claimed');
CREATE INDEX releases_app ON releases (app_id, approval) WHERE state = 'ready';
