-- Schema version 6: what takes time beside the stages of requests and is known by its sum alone.
-- Never edited once released: a change is a new file with the next number.

-- JSON list of {kind, name, count, items, time_ns}: statements as the database counts them, flushes of
-- its log, batches by what they do. Empty for single seconds, and where nothing tells.
ALTER TABLE tier_periods ADD COLUMN counted TEXT NOT NULL DEFAULT '[]';
