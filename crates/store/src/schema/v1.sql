-- Schema version 1. Never edited once released: a change is a new file with the next number.
-- Times ending in _ns are nanoseconds of CLOCK_MONOTONIC of the host that ran the study, unless
-- they end in _unix_ns. A histogram is HdrHistogram V2 + DEFLATE of nanoseconds; an empty blob is
-- the empty histogram. docs/results.md explains every table.

CREATE TABLE study (
  id              INTEGER PRIMARY KEY CHECK (id = 1),
  name            TEXT NOT NULL,
  title           TEXT NOT NULL,
  file_name       TEXT NOT NULL,
  file            TEXT NOT NULL,
  fingerprint     TEXT NOT NULL,
  seed            INTEGER NOT NULL,
  design          TEXT NOT NULL,
  confidence      REAL NOT NULL,
  planned_runs    INTEGER,
  created_unix_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE environments (
  id          INTEGER PRIMARY KEY,
  description TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE runs (
  id               INTEGER PRIMARY KEY,
  configuration    INTEGER NOT NULL,
  repetition       INTEGER NOT NULL,
  position         INTEGER NOT NULL,
  attempt          INTEGER NOT NULL,
  status           TEXT NOT NULL CHECK (status IN ('done', 'failed', 'rejected')),
  reasons          TEXT NOT NULL,
  caveats          TEXT NOT NULL,
  settings         TEXT NOT NULL,
  environment      INTEGER NOT NULL REFERENCES environments (id),
  started_unix_ns  INTEGER NOT NULL,
  ended_unix_ns    INTEGER NOT NULL,
  started_ns       INTEGER NOT NULL,
  ended_ns         INTEGER NOT NULL,
  measured_from_ns INTEGER,
  measured_to_ns   INTEGER,
  cut_rule         TEXT,
  UNIQUE (configuration, repetition, attempt)
) STRICT;

CREATE TABLE run_factors (
  run      INTEGER NOT NULL REFERENCES runs (id),
  ordinal  INTEGER NOT NULL,
  factor   TEXT NOT NULL,
  level    INTEGER NOT NULL,
  text     TEXT NOT NULL,
  number   REAL,
  PRIMARY KEY (run, factor)
) STRICT, WITHOUT ROWID;

CREATE TABLE generators (
  run                INTEGER NOT NULL REFERENCES runs (id),
  generator          INTEGER NOT NULL,
  host               TEXT NOT NULL,
  command            TEXT NOT NULL,
  protocol           TEXT NOT NULL,
  targets            TEXT NOT NULL,
  loop               TEXT NOT NULL,
  clients            INTEGER NOT NULL,
  started_ns         INTEGER NOT NULL,
  ended_ns           INTEGER NOT NULL,
  think_time_mean_ns INTEGER NOT NULL,
  arrival_rate_per_s REAL,
  lateness           BLOB NOT NULL,
  gaps               BLOB NOT NULL,
  PRIMARY KEY (run, generator)
) STRICT, WITHOUT ROWID;

CREATE TABLE generator_threads (
  run               INTEGER NOT NULL REFERENCES runs (id),
  generator         INTEGER NOT NULL,
  thread            INTEGER NOT NULL,
  cpu_user_ns       INTEGER NOT NULL,
  cpu_system_ns     INTEGER NOT NULL,
  wall_ns           INTEGER NOT NULL,
  run_queue_wait_ns INTEGER NOT NULL,
  PRIMARY KEY (run, generator, thread)
) STRICT, WITHOUT ROWID;

CREATE TABLE operations (
  run           INTEGER NOT NULL REFERENCES runs (id),
  generator     INTEGER NOT NULL,
  extent        TEXT NOT NULL CHECK (extent IN ('second', 'measured', 'whole')),
  from_ns       INTEGER NOT NULL,
  to_ns         INTEGER NOT NULL,
  operation     TEXT NOT NULL,
  sent          INTEGER NOT NULL,
  completed     INTEGER NOT NULL,
  hits          INTEGER NOT NULL,
  misses        INTEGER NOT NULL,
  errors        TEXT NOT NULL,
  bytes_out     INTEGER NOT NULL,
  bytes_in      INTEGER NOT NULL,
  response_time BLOB NOT NULL,
  PRIMARY KEY (run, extent, generator, from_ns, operation)
) STRICT, WITHOUT ROWID;

CREATE TABLE tiers (
  run      INTEGER NOT NULL REFERENCES runs (id),
  tier     TEXT NOT NULL,
  instance INTEGER NOT NULL,
  kind     TEXT NOT NULL,
  host     TEXT NOT NULL,
  address  TEXT NOT NULL,
  pid      INTEGER NOT NULL,
  command  TEXT NOT NULL,
  PRIMARY KEY (run, tier, instance)
) STRICT, WITHOUT ROWID;

CREATE TABLE tier_periods (
  run                  INTEGER NOT NULL REFERENCES runs (id),
  extent               TEXT NOT NULL CHECK (extent IN ('second', 'measured', 'whole')),
  tier                 TEXT NOT NULL,
  instance             INTEGER NOT NULL,
  from_ns              INTEGER NOT NULL,
  to_ns                INTEGER NOT NULL,
  workers              INTEGER NOT NULL,
  queue_length_mean    REAL NOT NULL,
  queue_length_maximum INTEGER NOT NULL,
  workers_busy_mean    REAL NOT NULL,
  workers_busy_maximum INTEGER NOT NULL,
  connections_mean     REAL NOT NULL,
  connections_maximum  INTEGER NOT NULL,
  bytes_in             INTEGER NOT NULL,
  bytes_out            INTEGER NOT NULL,
  cpu_user_ns          INTEGER NOT NULL,
  cpu_system_ns        INTEGER NOT NULL,
  outcomes             TEXT NOT NULL,
  limits_hit           TEXT NOT NULL,
  PRIMARY KEY (run, extent, tier, instance, from_ns)
) STRICT, WITHOUT ROWID;

CREATE TABLE tier_requests (
  run         INTEGER NOT NULL REFERENCES runs (id),
  extent      TEXT NOT NULL,
  tier        TEXT NOT NULL,
  instance    INTEGER NOT NULL,
  from_ns     INTEGER NOT NULL,
  request     TEXT NOT NULL,
  arrivals    INTEGER NOT NULL,
  completions INTEGER NOT NULL,
  PRIMARY KEY (run, extent, tier, instance, from_ns, request)
) STRICT, WITHOUT ROWID;

CREATE TABLE tier_stages (
  run       INTEGER NOT NULL REFERENCES runs (id),
  extent    TEXT NOT NULL,
  tier      TEXT NOT NULL,
  instance  INTEGER NOT NULL,
  from_ns   INTEGER NOT NULL,
  request   TEXT NOT NULL,
  stage     TEXT NOT NULL,
  count     INTEGER NOT NULL,
  mean_ns   REAL,
  histogram BLOB NOT NULL,
  PRIMARY KEY (run, extent, tier, instance, from_ns, request, stage)
) STRICT, WITHOUT ROWID;

CREATE TABLE tier_backends (
  run          INTEGER NOT NULL REFERENCES runs (id),
  extent       TEXT NOT NULL,
  tier         TEXT NOT NULL,
  instance     INTEGER NOT NULL,
  from_ns      INTEGER NOT NULL,
  backend      INTEGER NOT NULL,
  address      TEXT NOT NULL,
  requests     INTEGER NOT NULL,
  keys         INTEGER NOT NULL,
  errors       INTEGER NOT NULL,
  backend_time BLOB NOT NULL,
  PRIMARY KEY (run, extent, tier, instance, from_ns, backend)
) STRICT, WITHOUT ROWID;

CREATE TABLE process_samples (
  run                  INTEGER NOT NULL REFERENCES runs (id),
  role                 TEXT NOT NULL,
  instance             INTEGER NOT NULL,
  host                 TEXT NOT NULL,
  pid                  INTEGER NOT NULL,
  at_ns                INTEGER NOT NULL,
  cpu_user_ns          INTEGER NOT NULL,
  cpu_system_ns        INTEGER NOT NULL,
  run_queue_wait_ns    INTEGER NOT NULL,
  voluntary_switches   INTEGER NOT NULL,
  involuntary_switches INTEGER NOT NULL,
  resident_bytes       INTEGER NOT NULL,
  threads              INTEGER NOT NULL,
  PRIMARY KEY (run, role, instance, at_ns)
) STRICT, WITHOUT ROWID;

CREATE TABLE host_samples (
  run               INTEGER NOT NULL REFERENCES runs (id),
  host              TEXT NOT NULL,
  at_ns             INTEGER NOT NULL,
  cores             INTEGER NOT NULL,
  cpu_user_ns       INTEGER NOT NULL,
  cpu_system_ns     INTEGER NOT NULL,
  cpu_idle_ns       INTEGER NOT NULL,
  cpu_steal_ns      INTEGER NOT NULL,
  context_switches  INTEGER NOT NULL,
  network_in_bytes  INTEGER NOT NULL,
  network_out_bytes INTEGER NOT NULL,
  PRIMARY KEY (run, host, at_ns)
) STRICT, WITHOUT ROWID;
