-- A start compares the tasks with the log of which an effect is under way, unknown, or can still be compensated,
-- also those that have ended. The condition is that of internal/store/foldrows.
CREATE INDEX effects_unsettled ON effects (task_id) WHERE CASE WHEN json_valid(body) THEN body ->> '$.runs[#-1].state' IN ('started', 'outcome_unknown') OR body ->> '$.compensation' IS NOT NULL AND body ->> '$.runs[#-1].state' IS NOT NULL AND body ->> '$.runs[#-1].compensation' IS NOT 1 ELSE 1 END;
