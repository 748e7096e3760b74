-- Exchanges in a table with row numbers, and their key beside it. Rows of half a
-- kilobyte that are always added at the end fill the pages of such a table one
-- after another, where a tree that is its own index moves its last three pages
-- about for every other row.
CREATE TABLE exchanges_by_row (
    agent           TEXT NOT NULL,
    id              TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    counterparty    TEXT NOT NULL,
    outcome         TEXT NOT NULL,
    expires_at      INTEGER NOT NULL,
    state           TEXT NOT NULL,
    PRIMARY KEY (id, agent)
) STRICT;
INSERT INTO exchanges_by_row SELECT agent, id, conversation_id, counterparty, outcome, expires_at, state FROM exchanges ORDER BY id, agent;
DROP TABLE exchanges;
ALTER TABLE exchanges_by_row RENAME TO exchanges;
CREATE INDEX exchanges_conversation ON exchanges (agent, conversation_id) WHERE conversation_id <> id;
