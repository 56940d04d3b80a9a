-- Schema version 4: the system's graph, who each process is, and all that a load found.
-- Never edited once released: a change is a new file with the next number.
-- What an older version wrote is brought along: roles and graph by src/schema/graph.rs, caveats as
-- notes, and NULL for what was not stored.

-- Tiers in the order of their distance from the clients, position 0 being the entry.
CREATE TABLE graph_tiers (
  run       INTEGER NOT NULL REFERENCES runs (id),
  position  INTEGER NOT NULL,
  tier      TEXT NOT NULL,
  kind      TEXT NOT NULL,
  instances INTEGER NOT NULL,
  PRIMARY KEY (run, tier)
) STRICT, WITHOUT ROWID;

-- Who talks to whom. from_tier is NULL for the clients; link is the name of the emulated network's
-- row in `tiers`, NULL without one.
CREATE TABLE graph_edges (
  run                   INTEGER NOT NULL REFERENCES runs (id),
  ordinal               INTEGER NOT NULL,
  from_tier             TEXT,
  to_tier               TEXT NOT NULL,
  link                  TEXT,
  delay_ns              INTEGER,
  bandwidth_bytes_per_s REAL,
  PRIMARY KEY (run, ordinal)
) STRICT, WITHOUT ROWID;

-- Servers of one kind in each instance of a tier, as the study set them. to_tier: where connections
-- lead.
CREATE TABLE graph_pools (
  run     INTEGER NOT NULL REFERENCES runs (id),
  tier    TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  pool    TEXT NOT NULL CHECK (pool IN ('workers', 'connections', 'threads')),
  to_tier TEXT,
  servers INTEGER NOT NULL,
  PRIMARY KEY (run, tier, ordinal)
) STRICT, WITHOUT ROWID;

-- The place of an instance in the order of starting, and whether it is a tier or a link.
ALTER TABLE tiers ADD COLUMN role TEXT NOT NULL DEFAULT 'tier' CHECK (role IN ('tier', 'link'));
UPDATE tiers SET role = 'link' WHERE kind = 'link';

-- All that the result of a load says; NULL where an older version wrote the row.
ALTER TABLE generators ADD COLUMN calls TEXT;
ALTER TABLE generators ADD COLUMN seed INTEGER;
ALTER TABLE generators ADD COLUMN unsent INTEGER;
ALTER TABLE generators ADD COLUMN reconnects INTEGER;
ALTER TABLE generators ADD COLUMN connection_wait BLOB;
ALTER TABLE generators ADD COLUMN gap_check TEXT;
-- Replies by HTTP status code, and how long nothing completed (closed loop): JSON.
ALTER TABLE generators ADD COLUMN statuses TEXT;
ALTER TABLE generators ADD COLUMN stalls TEXT;
-- What was drawn for requests whose content varies: JSON, by name, count and mean.
ALTER TABLE generators ADD COLUMN drawn TEXT;
ALTER TABLE generator_threads ADD COLUMN spun_ns INTEGER;
-- CPU time that a tier spent awake for its next timer; NULL where it does not say.
ALTER TABLE tier_periods ADD COLUMN spun_ns INTEGER;

-- What was under way at the end and was waited for is in no window: an extent of its own.
CREATE TABLE operations_4 (
  run           INTEGER NOT NULL REFERENCES runs (id),
  generator     INTEGER NOT NULL,
  extent        TEXT NOT NULL CHECK (extent IN ('second', 'measured', 'drained', 'whole')),
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
INSERT INTO operations_4 SELECT * FROM operations;
DROP TABLE operations;
ALTER TABLE operations_4 RENAME TO operations;

-- Who a process is: its role and its name within the role. In older files the name alone stood in
-- the column `role`. What stood under `study` was always Kendall's own account, and a tier of the
-- name of the generators is told from them by its process.
CREATE TABLE process_samples_4 (
  run                  INTEGER NOT NULL REFERENCES runs (id),
  role                 TEXT NOT NULL CHECK (role IN ('tier', 'link', 'generator', 'study')),
  name                 TEXT NOT NULL,
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
  PRIMARY KEY (run, role, name, instance, at_ns)
) STRICT, WITHOUT ROWID;
INSERT INTO process_samples_4
  SELECT p.run,
         CASE
           WHEN p.role = 'study' THEN 'study'
           WHEN EXISTS (SELECT 1 FROM tiers t WHERE t.run = p.run AND t.tier = p.role
                          AND t.instance = p.instance AND t.role = 'link') THEN 'link'
           WHEN p.role = 'generator' AND NOT EXISTS (
             SELECT 1 FROM tiers t WHERE t.run = p.run AND t.tier = p.role
               AND t.instance = p.instance AND t.pid = p.pid) THEN 'generator'
           ELSE 'tier'
         END,
         p.role, p.instance, p.host, p.pid, p.at_ns, p.cpu_user_ns, p.cpu_system_ns,
         p.run_queue_wait_ns, p.voluntary_switches, p.involuntary_switches, p.resident_bytes,
         p.threads
  FROM process_samples p;
DROP TABLE process_samples;
ALTER TABLE process_samples_4 RENAME TO process_samples;

CREATE TABLE thread_samples_4 (
  run               INTEGER NOT NULL REFERENCES runs (id),
  role              TEXT NOT NULL CHECK (role IN ('tier', 'link', 'generator', 'study')),
  name              TEXT NOT NULL,
  instance          INTEGER NOT NULL,
  thread            TEXT NOT NULL,
  at_ns             INTEGER NOT NULL,
  threads           INTEGER NOT NULL,
  cpu_ns            INTEGER NOT NULL,
  run_queue_wait_ns INTEGER NOT NULL,
  PRIMARY KEY (run, role, name, instance, thread, at_ns)
) STRICT, WITHOUT ROWID;
INSERT INTO thread_samples_4
  SELECT s.run,
         coalesce((SELECT p.role FROM process_samples p WHERE p.run = s.run AND p.name = s.role
                     AND p.instance = s.instance LIMIT 1), 'tier'),
         s.role, s.instance, s.name, s.at_ns, s.threads, s.cpu_ns, s.run_queue_wait_ns
  FROM thread_samples s;
DROP TABLE thread_samples;
ALTER TABLE thread_samples_4 RENAME TO thread_samples;

-- How fast each core was, about once a second: the mean time of a unit of work that never changes.
CREATE TABLE speeds (
  run     INTEGER NOT NULL REFERENCES runs (id),
  host    TEXT NOT NULL,
  core    INTEGER NOT NULL,
  at_ns   INTEGER NOT NULL,
  unit_ns REAL NOT NULL,
  PRIMARY KEY (run, host, core, at_ns)
) STRICT, WITHOUT ROWID;

-- Caveats are values and no longer sentences.
UPDATE runs SET caveats = (
  SELECT coalesce(json_group_array(json_object('caveat', 'note', 'text', value)), '[]')
  FROM json_each(runs.caveats));
