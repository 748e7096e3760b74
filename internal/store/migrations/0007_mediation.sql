-- Processes that are or were an app's, by the boot they were seen in and their
-- name, which holds their start time. The lowest number was seen first.
CREATE TABLE app_processes (
    no   INTEGER PRIMARY KEY,
    boot TEXT NOT NULL,
    name TEXT NOT NULL,
    app  TEXT NOT NULL,
    at   INTEGER NOT NULL,
    UNIQUE (name, boot)
) STRICT;

-- The address members that the last message from a session brought.
CREATE TABLE brought (
    no          INTEGER PRIMARY KEY,
    session_key TEXT NOT NULL UNIQUE,
    account     TEXT NOT NULL,
    members     TEXT NOT NULL,
    at          INTEGER NOT NULL
) STRICT;

-- What an agent owes another an answer to, in the kernel's form.
CREATE TABLE owed (
    agent        TEXT NOT NULL,
    counterparty TEXT NOT NULL,
    value        TEXT NOT NULL,
    until        INTEGER NOT NULL,
    PRIMARY KEY (agent, counterparty)
) STRICT, WITHOUT ROWID;

-- What an agent heard: from one counterparty, or, where that is empty, from all.
CREATE TABLE heard_from (
    agent        TEXT NOT NULL,
    counterparty TEXT NOT NULL,
    at           INTEGER NOT NULL,
    chain        TEXT NOT NULL,
    PRIMARY KEY (agent, counterparty)
) STRICT, WITHOUT ROWID;
INSERT INTO heard_from SELECT agent, '', at, chain FROM heard;
DROP TABLE heard;
ALTER TABLE heard_from RENAME TO heard;

-- How many messages were let through for a scope, by the minute that began then.
CREATE TABLE spent (
    scope  TEXT NOT NULL,
    minute INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (scope, minute)
) STRICT, WITHOUT ROWID;

-- What a person has stopped.
CREATE TABLE paused (
    scope TEXT PRIMARY KEY,
    at    INTEGER NOT NULL,
    by    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The app that a waiting message is from: what one may have waiting is bounded. It
-- comes before the message, so that counting reads no messages.
CREATE TABLE outbox_by_app (
    id          INTEGER PRIMARY KEY,
    record_seq  INTEGER NOT NULL,
    dispatch_id TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    app         TEXT NOT NULL,
    message     TEXT NOT NULL
) STRICT;
INSERT INTO outbox_by_app SELECT id, record_seq, dispatch_id, expires_at, '', message FROM outbox ORDER BY id;
DROP TABLE outbox;
ALTER TABLE outbox_by_app RENAME TO outbox;

-- From here on the record of each message that is let through has a digest of all
-- that is handed over.
INSERT INTO meta (key, value) SELECT 'digests-from', CAST(coalesce(max(seq), 0) + 1 AS BLOB) FROM records;
