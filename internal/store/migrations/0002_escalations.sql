-- Between which two agents a person has to look before anything new begins.
-- The pair is both instance ids, the lesser first.
CREATE TABLE escalations (
    first       TEXT NOT NULL,
    second      TEXT NOT NULL,
    exchange_id TEXT NOT NULL,
    opened_at   INTEGER NOT NULL,
    PRIMARY KEY (first, second)
) STRICT, WITHOUT ROWID;
