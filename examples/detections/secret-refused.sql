-- A message with a secret, or above its sender's level, was refused.
SELECT event ->> '$.metadata.uid' AS uid, event ->> '$.metadata.original_time' AS time, event ->> '$.actor.user.uid' AS actor, event ->> '$.message' AS message
FROM ocsf
WHERE event ->> '$.status_code' = 'CLASSIFICATION_VIOLATION'
  AND event ->> '$.status_id' = 2
ORDER BY event ->> '$.metadata.sequence';
