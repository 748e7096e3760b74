-- The list of people who may approve was changed.
SELECT event ->> '$.metadata.uid' AS uid, event ->> '$.metadata.original_time' AS time, event ->> '$.actor.user.uid' AS actor, event ->> '$.message' AS message
FROM ocsf
WHERE event ->> '$.metadata.event_code' = 'config_change.signers_changed'
ORDER BY event ->> '$.metadata.sequence';
