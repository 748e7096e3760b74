-- A start reads the exchanges in progress by a list that each checkpoint brings up to date: an index of
-- them would cost every first message of an exchange one more page to sync.
DROP INDEX exchanges_open;
CREATE TABLE listed_exchanges (
    id    TEXT NOT NULL,
    agent TEXT NOT NULL,
    PRIMARY KEY (id, agent)
) STRICT, WITHOUT ROWID;
INSERT INTO listed_exchanges SELECT id, agent FROM exchanges WHERE outcome = 'in_progress';
