-- Schema version 5: why a run was made, how fast the machine was in it, and what was predicted.
-- Never edited once released: a change is a new file with the next number.

-- Runs that verify predictions are no part of the design; their configurations have numbers from
-- 1000000 on.
ALTER TABLE runs ADD COLUMN purpose TEXT NOT NULL DEFAULT 'design'
  CHECK (purpose IN ('design', 'verification'));
-- Mean over cores and seconds of the measured window of what stands in `speeds`; NULL where nothing
-- probed it.
ALTER TABLE runs ADD COLUMN speed_unit_ns REAL;
UPDATE runs SET speed_unit_ns = (
  SELECT avg(unit_ns) FROM speeds
  WHERE run = runs.id AND at_ns BETWEEN runs.measured_from_ns AND runs.measured_to_ns);

-- What was asked of the study's model, and what it answered: JSON as `kendall predict --format json`
-- prints a point. `run` verified it, and `repeated` measured a configuration again beside it; both
-- NULL where it was not verified.
CREATE TABLE predictions (
  id           INTEGER PRIMARY KEY,
  made_unix_ns INTEGER NOT NULL,
  asked        TEXT NOT NULL,
  answer       TEXT NOT NULL,
  run          INTEGER REFERENCES runs (id),
  repeated     INTEGER REFERENCES runs (id),
  verdict      TEXT
) STRICT;
