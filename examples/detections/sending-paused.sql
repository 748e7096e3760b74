-- All sending, or that of one agent, was paused.
SELECT event ->> '$.metadata.uid' AS uid, event ->> '$.metadata.original_time' AS time, event ->> '$.actor.user.uid' AS actor, event ->> '$.message' AS message
FROM ocsf
WHERE event ->> '$.metadata.event_code' = 'security.sending_paused'
ORDER BY event ->> '$.metadata.sequence';
