-- The record of the decision that let a release's message go. A row of before has none, and
-- is handed out no more.
ALTER TABLE releases ADD COLUMN record_seq INTEGER NOT NULL DEFAULT 0;
