-- The signatures of people that count once, by the id of the act that each is for. A row whose until is over
-- stays: nothing can be decided by it, and nothing takes it away. An until of 0 is never over.
CREATE TABLE used_signatures (
    id    TEXT    NOT NULL PRIMARY KEY,
    until INTEGER NOT NULL,
    seal  BLOB    NOT NULL DEFAULT x''
) STRICT, WITHOUT ROWID;
CREATE INDEX used_signatures_until ON used_signatures (until);
