-- An approved command failed, or nobody knows how it ended.
SELECT event ->> '$.metadata.uid' AS uid, event ->> '$.metadata.original_time' AS time, event ->> '$.actor.user.uid' AS actor, event ->> '$.message' AS message
FROM ocsf
WHERE event ->> '$.metadata.event_code' IN ('task.effect.finished', 'task.effect.unknown')
  AND event ->> '$.status_id' = 2
ORDER BY event ->> '$.metadata.sequence';
