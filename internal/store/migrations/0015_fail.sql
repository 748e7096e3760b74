-- FAIL in place of ABORT: an insertion of one row has nothing to undo, and SQLite keeps
-- a journal for every statement that a trigger might abort.
DROP TRIGGER records_no_replace;
CREATE TRIGGER records_no_replace BEFORE INSERT ON records
WHEN NEW.seq < 1 OR NEW.seq <= (SELECT max(seq) FROM records)
BEGIN SELECT RAISE(FAIL, 'audit records cannot be replaced, or put between others'); END;
