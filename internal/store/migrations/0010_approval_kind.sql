-- What is asked for may be something else than a message. Summaries and bodies have
-- a form of their own from here on, which a daemon of before cannot read.
ALTER TABLE approvals ADD COLUMN kind TEXT NOT NULL DEFAULT 'message';
UPDATE approvals SET kind = 'escalation' WHERE asked GLOB 'escalation:*';
