-- The audit log or the daemon's database was changed.
SELECT event ->> '$.metadata.uid' AS uid, event ->> '$.metadata.original_time' AS time, event ->> '$.actor.user.uid' AS actor, event ->> '$.message' AS message
FROM ocsf
WHERE event ->> '$.metadata.event_code' IN ('security.log_damaged', 'security.altered_row', 'security.unsigned_tail', 'security.undecided_message', 'security.undecided_word', 'security.mirror_lost')
ORDER BY event ->> '$.metadata.sequence';
