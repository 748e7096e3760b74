-- The complete tiles of the Merkle tree over the records: see internal/audit.
-- A tile's id is its level in the high byte and its number below. The root
-- stands first, so that reading it does not read the hashes.
CREATE TABLE tiles (
    id     INTEGER PRIMARY KEY,
    root   BLOB NOT NULL,
    hashes BLOB NOT NULL
) STRICT;

-- What retention removed from the beginning of the log, each with its signed
-- tombstone, and the leaf hashes of what it removed of a tile. Only records that
-- a tombstone stands for may be deleted.
CREATE TABLE retired (
    upto   INTEGER PRIMARY KEY,
    note   TEXT NOT NULL,
    leaves BLOB NOT NULL
) STRICT;
DROP TRIGGER records_no_delete;
CREATE TRIGGER records_no_delete BEFORE DELETE ON records
WHEN OLD.seq > (SELECT coalesce(max(upto), 0) FROM retired)
BEGIN SELECT RAISE(ABORT, 'audit records cannot be deleted'); END;
