-- Tasks and what belongs to them. The head is what lists show, a part is one entry of
-- one of a task's lists; both are in the form of internal/task. What is looked for by
-- has a column: ready_at is null where a task waits for somebody, blocked counts the
-- dependencies that are not completed, and binds is 0 where they do not matter yet.
CREATE TABLE tasks (
    id       TEXT PRIMARY KEY,
    tenant   TEXT NOT NULL,
    phase    TEXT NOT NULL,
    is_open  INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    ready_at INTEGER,
    binds    INTEGER NOT NULL,
    blocked  INTEGER NOT NULL,
    running  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    origin   TEXT NOT NULL,
    head     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tasks_ready ON tasks (tenant, priority, ready_at) WHERE ready_at IS NOT NULL AND (binds = 0 OR blocked = 0);
CREATE INDEX tasks_open ON tasks (tenant, id) WHERE is_open = 1;
CREATE INDEX tasks_phase ON tasks (phase, id);
CREATE INDEX tasks_running ON tasks (id) WHERE running = 1;
CREATE UNIQUE INDEX tasks_origin ON tasks (tenant, origin) WHERE origin <> '';

CREATE TABLE task_parts (
    task_id TEXT NOT NULL,
    kind    TEXT NOT NULL,
    place   INTEGER NOT NULL,
    id      TEXT NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (task_id, kind, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE effects (
    task_id TEXT NOT NULL,
    place   INTEGER NOT NULL,
    id      TEXT NOT NULL UNIQUE,
    key     TEXT NOT NULL,
    busy    INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (task_id, place)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX effects_key ON effects (task_id, key);
CREATE INDEX effects_busy ON effects (task_id) WHERE busy = 1;

CREATE TABLE task_deps (
    task_id    TEXT NOT NULL,
    depends_on TEXT NOT NULL,
    PRIMARY KEY (task_id, depends_on)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_deps_of ON task_deps (depends_on);

CREATE TABLE grants (
    id         TEXT PRIMARY KEY,
    token      BLOB NOT NULL UNIQUE,
    task_id    TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    body       TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX grants_task ON grants (task_id);
CREATE INDEX grants_expiry ON grants (expires_at);

CREATE TABLE request_keys (
    actor  TEXT NOT NULL,
    key    TEXT NOT NULL,
    at     INTEGER NOT NULL,
    asked  TEXT NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (actor, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_keys_age ON request_keys (at);
