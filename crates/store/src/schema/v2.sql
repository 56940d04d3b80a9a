-- Schema version 2: what adaptive designs found, and CPU time by the name of threads.
-- Never edited once released: a change is a new file with the next number.

-- One row a line of an adaptive design: a combination of the levels of the factors that are not
-- searched. Written again whenever the search has come further.
CREATE TABLE searches (
  line          INTEGER PRIMARY KEY,
  factor        TEXT NOT NULL,
  levels        TEXT NOT NULL,
  runs          INTEGER NOT NULL,
  grid          INTEGER NOT NULL,
  sweep_runs    INTEGER NOT NULL,
  found         TEXT,
  without       TEXT NOT NULL
) STRICT;

CREATE TABLE thread_samples (
  run               INTEGER NOT NULL REFERENCES runs (id),
  role              TEXT NOT NULL,
  instance          INTEGER NOT NULL,
  name              TEXT NOT NULL,
  at_ns             INTEGER NOT NULL,
  threads           INTEGER NOT NULL,
  cpu_ns            INTEGER NOT NULL,
  run_queue_wait_ns INTEGER NOT NULL,
  PRIMARY KEY (run, role, instance, name, at_ns)
) STRICT, WITHOUT ROWID;
