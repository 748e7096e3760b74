-- Each record has a seal over its number and its hash, which is made in the transaction
-- that writes it. The records that are there get none: nobody can tell who wrote them.
ALTER TABLE records ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
-- What waits to be handed over, or may be redeemed, is sealed like all other rows. A waiting
-- message names its queue: a queue's number alone may become another's.
ALTER TABLE queues ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
ALTER TABLE outbox ADD COLUMN queue TEXT NOT NULL DEFAULT '';
ALTER TABLE outbox ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
UPDATE outbox SET queue = coalesce((SELECT name FROM queues WHERE no = id >> 40), '');
ALTER TABLE releases ADD COLUMN seal BLOB NOT NULL DEFAULT x'';
