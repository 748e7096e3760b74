-- A person approved without a signature.
SELECT event ->> '$.metadata.uid' AS uid, event ->> '$.metadata.original_time' AS time, event ->> '$.actor.user.uid' AS actor, event ->> '$.message' AS message
FROM ocsf
WHERE event ->> '$.metadata.event_code' IN ('approval.approved', 'approval.taken_over')
  AND event ->> '$.unmapped.details.signature' IS NULL
ORDER BY event ->> '$.metadata.sequence';
