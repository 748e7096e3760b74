-- What was asked for is a digest of a text, and a text can be guessed: it goes when
-- the request is decided.
UPDATE approvals SET asked = '' WHERE state <> 'pending';
