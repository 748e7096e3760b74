-- A start compares the exchanges in progress with the log, however many have ended.
CREATE INDEX exchanges_open ON exchanges (id) WHERE outcome = 'in_progress';
