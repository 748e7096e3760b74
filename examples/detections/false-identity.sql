-- A program claimed to be another agent or app.
SELECT event ->> '$.metadata.uid' AS uid, event ->> '$.metadata.original_time' AS time, event ->> '$.actor.user.uid' AS actor, event ->> '$.message' AS message
FROM ocsf
WHERE event ->> '$.metadata.event_code' IN ('security.binding_refused', 'security.sender_refused')
ORDER BY event ->> '$.metadata.sequence';
