-- Schema version 3: how long workers were held, where one serves several requests at once.
-- Never edited once released: a change is a new file with the next number.

-- One entry a batch; the empty blob where a worker serves one request at a time, or where an older
-- version wrote the row.
ALTER TABLE tier_periods ADD COLUMN held_time BLOB NOT NULL DEFAULT x'';
