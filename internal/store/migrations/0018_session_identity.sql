-- Whose a session is: the agent's tenant and instance, so that another agent that is
-- given its id does not have it. '' is of before this was kept, and settled at a start.
ALTER TABLE sessions ADD COLUMN identified TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_unsettled ON sessions (agent_id) WHERE identified = '';
