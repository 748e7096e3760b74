-- The lanes to and from other daemons of a fleet, named as internal/fleet/lane does: the last number of
-- each, the messages that have no receipt, and the receipts that this daemon has given.
CREATE TABLE lanes (
    name TEXT    NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL,
    seal BLOB    NOT NULL DEFAULT x''
) STRICT, WITHOUT ROWID;
CREATE TABLE lane_sent (
    lane        TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    host        TEXT    NOT NULL,
    message     INTEGER NOT NULL,
    dispatch_id TEXT    NOT NULL,
    record_seq  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    seal        BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (lane, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX lane_sent_host ON lane_sent (host, lane, seq);
CREATE TABLE lane_taken (
    lane        TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    host        TEXT    NOT NULL,
    dispatch_id TEXT    NOT NULL,
    record_seq  INTEGER NOT NULL,
    result      TEXT    NOT NULL,
    code        TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    forget_at   INTEGER NOT NULL,
    seal        BLOB    NOT NULL DEFAULT x'',
    PRIMARY KEY (lane, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX lane_taken_message ON lane_taken (host, dispatch_id);
CREATE INDEX lane_taken_old ON lane_taken (forget_at);
