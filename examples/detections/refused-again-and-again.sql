-- An agent is refused again and again: ten times within ten minutes.
WITH refused AS (
  SELECT event ->> '$.src_endpoint.uid' AS agent, event ->> '$.time' AS at
  FROM ocsf
  WHERE event ->> '$.action_id' = 2 AND event ->> '$.src_endpoint.uid' IS NOT NULL
), counted AS (
  SELECT agent, at, count(*) OVER (PARTITION BY agent ORDER BY at RANGE BETWEEN 600000 PRECEDING AND CURRENT ROW) AS refusals
  FROM refused
)
SELECT agent, max(refusals) AS refusals
FROM counted
GROUP BY agent
HAVING max(refusals) >= 10
ORDER BY agent;
