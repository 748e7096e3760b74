-- The evidence. One line a record, exactly as sealed: see internal/audit.
CREATE TABLE records (
    seq  INTEGER PRIMARY KEY,
    line TEXT NOT NULL
) STRICT;

-- Evidence is only ever added to. These triggers stop an accident or a bug;
-- what a person with the file can do is for the hash chain to show.
CREATE TRIGGER records_no_update BEFORE UPDATE ON records
BEGIN SELECT RAISE(ABORT, 'audit records cannot be changed'); END;
CREATE TRIGGER records_no_delete BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'audit records cannot be deleted'); END;

-- One row for each side of an exchange. An exchange the daemon opened has its
-- conversation's id as its own, so most rows need no second index. The id comes
-- first in the key because the daemon's ids rise with time: new rows meet at
-- one end of the tree, however many agents there are.
CREATE TABLE exchanges (
    agent           TEXT NOT NULL,
    id              TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    counterparty    TEXT NOT NULL,
    outcome         TEXT NOT NULL,
    expires_at      INTEGER NOT NULL,
    state           TEXT NOT NULL,
    PRIMARY KEY (id, agent)
) STRICT, WITHOUT ROWID;
CREATE INDEX exchanges_conversation ON exchanges (agent, conversation_id) WHERE conversation_id <> id;

-- The exchange that the next message of a session belongs to, for an agent.
CREATE TABLE current_exchanges (
    agent       TEXT NOT NULL,
    session_key TEXT NOT NULL,
    exchange_id TEXT NOT NULL,
    PRIMARY KEY (agent, session_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    key            TEXT PRIMARY KEY,
    agent_id       TEXT NOT NULL,
    channel_id     TEXT NOT NULL,
    account_id     TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    last_active_at INTEGER NOT NULL,
    message_count  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_recent ON sessions (last_active_at DESC, key);

-- Messages that were let through and are not yet known to be with their
-- receiver. A message's id is its queue's number in the high bits and a rising
-- number in the low 40, so that one tree holds every queue in its order, whole
-- rows in its leaves, and needs no index beside it.
CREATE TABLE queues (
    no   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY,
    record_seq  INTEGER NOT NULL,
    dispatch_id TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    message     TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    id          TEXT PRIMARY KEY,
    agent_id    TEXT NOT NULL,
    session_key TEXT NOT NULL,
    queued_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Small values that belong to the database, such as the content digest's key.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
