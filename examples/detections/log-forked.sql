-- A witness refuses the audit log.
SELECT event ->> '$.metadata.uid' AS uid, event ->> '$.metadata.original_time' AS time, event ->> '$.actor.user.uid' AS actor, event ->> '$.message' AS message
FROM ocsf
WHERE event ->> '$.metadata.event_code' = 'security.witness_refused'
ORDER BY event ->> '$.metadata.sequence';
