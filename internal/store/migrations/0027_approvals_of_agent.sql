-- The list of one agent's requests does not depend on those of others.
CREATE INDEX approvals_agent ON approvals (agent, state, id);
