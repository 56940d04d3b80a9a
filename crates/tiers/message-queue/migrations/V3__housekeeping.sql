-- Indexes and tables for housekeeping, listings, counts and purges.

-- Hidden messages by queue, to count them; messages that only wait are in neither. Two, since an index of
-- all that have a `due_at` would also do, in the planner's eyes, to look for those that are due.
CREATE INDEX message_leased ON message (queue_id, leased_by) WHERE leased_by IS NOT NULL;
CREATE INDEX message_delayed ON message (queue_id, sender_id)
    WHERE due_at IS NOT NULL AND leased_by IS NULL;

-- Answers are inserted and dropped at the rate of the requests that carry an id.
ALTER TABLE answered SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- How far the look for addressed messages that are too old has come: one row. Unlogged: after a crash
-- it begins again.
CREATE UNLOGGED TABLE retention_walk (
    single_row  boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    receiver_id bigint NOT NULL,
    queue_id    bigint NOT NULL
);
