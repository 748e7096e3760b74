-- The commitments that people have approved beforehand. A row stays: its id is never good again.
CREATE TABLE commitment_grants (
    id       TEXT PRIMARY KEY,
    agent    TEXT NOT NULL,
    kind     TEXT NOT NULL,
    state    TEXT NOT NULL,
    until    INTEGER NOT NULL,
    uses     INTEGER NOT NULL,
    max_uses INTEGER NOT NULL,
    body     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX commitment_grants_in_force ON commitment_grants (until) WHERE state = 'in_force';
