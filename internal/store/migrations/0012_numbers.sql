-- INSERT OR REPLACE fires no trigger of deletions, and a number below the first is
-- looked at by nobody.
CREATE TRIGGER records_no_replace BEFORE INSERT ON records
WHEN NEW.seq < 1 OR NEW.seq <= (SELECT max(seq) FROM records)
BEGIN SELECT RAISE(ABORT, 'audit records cannot be replaced, or put between others'); END;
