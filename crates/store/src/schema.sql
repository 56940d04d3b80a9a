-- The schema of results.db. docs/results.md explains every table, and every column of the views.
-- Times ending in _ns are nanoseconds of CLOCK_MONOTONIC of the host that ran the study, unless
-- they end in _unix_ns. A histogram is HdrHistogram V2 + DEFLATE of nanoseconds; an empty blob is
-- the empty histogram.

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
  -- Runs that verify predictions are no part of the design; their configurations have numbers from
  -- 1000000 on.
  purpose          TEXT NOT NULL CHECK (purpose IN ('design', 'verification')),
  -- Mean over cores and seconds of the measured window of what stands in `speeds`; NULL where nothing
  -- probed it.
  speed_unit_ns    REAL,
  -- A second of one client before the load of a run is stored as a run of its own: the key of the run
  -- whose load it was measured before, whose configuration it has plus 2000000. NULL in all other runs.
  one_client_of    INTEGER REFERENCES runs (id),
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
  run                        INTEGER NOT NULL REFERENCES runs (id),
  ordinal                    INTEGER NOT NULL,
  from_tier                  TEXT,
  to_tier                    TEXT NOT NULL,
  link                       TEXT,
  delay_ns                   INTEGER,
  bandwidth_bytes_per_s      REAL,
  bandwidth_back_bytes_per_s REAL,
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
  -- How operations are called: NULL but for the message queue.
  calls              TEXT,
  seed               INTEGER NOT NULL,
  unsent             INTEGER NOT NULL,
  reconnects         INTEGER NOT NULL,
  connection_wait    BLOB NOT NULL,
  -- Whether the stream of requests was the one that was asked for (open loop): JSON.
  gap_check          TEXT,
  -- Replies by HTTP status code: JSON.
  statuses           TEXT NOT NULL,
  -- How long nothing completed (closed loop): JSON.
  stalls             TEXT,
  -- What was drawn for requests whose content varies: JSON, by name, count and mean.
  drawn              TEXT NOT NULL,
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
  spun_ns           INTEGER NOT NULL,
  PRIMARY KEY (run, generator, thread)
) STRICT, WITHOUT ROWID;

-- What was in flight at the end of the load is in no window: the extent `drained`. The requests of a sequence are parts
-- of its requests, and in the extent `steps` alone.
CREATE TABLE operations (
  run           INTEGER NOT NULL REFERENCES runs (id),
  generator     INTEGER NOT NULL,
  extent        TEXT NOT NULL CHECK (extent IN ('second', 'measured', 'drained', 'whole', 'steps')),
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
  -- Requests whose time is in the histogram beside them, and their mean: SQL cannot read histograms.
  answered      INTEGER NOT NULL,
  mean_ns       REAL,
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
  role     TEXT NOT NULL CHECK (role IN ('tier', 'link')),
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
  -- How long workers were held, one entry a batch; the empty blob where a worker serves one request
  -- at a time.
  held_time            BLOB NOT NULL,
  -- CPU time spent awake for the next timer; NULL where the tier does not say.
  spun_ns              INTEGER,
  -- What takes time beside the stages of requests and is known by its sum alone: JSON list of {kind,
  -- name, count, items, time_ns}, such as statements as the database counts them, flushes of its log,
  -- batches by what they do. Empty for single seconds, and where nothing tells.
  counted              TEXT NOT NULL,
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
  role                 TEXT NOT NULL CHECK (role IN ('tier', 'link', 'generator', 'study')),
  name                 TEXT NOT NULL,
  instance             INTEGER NOT NULL,
  host                 TEXT NOT NULL,
  pid                  INTEGER NOT NULL,
  at_ns                INTEGER NOT NULL,
  cpu_user_ns          INTEGER NOT NULL,
  cpu_system_ns        INTEGER NOT NULL,
  run_queue_wait_ns    INTEGER,
  cpu_pressure_ns      INTEGER,
  voluntary_switches   INTEGER NOT NULL,
  involuntary_switches INTEGER NOT NULL,
  resident_bytes       INTEGER NOT NULL,
  threads              INTEGER NOT NULL,
  -- JSON: what its threads and connections wait for.
  waiting              TEXT,
  PRIMARY KEY (run, role, name, instance, at_ns)
) STRICT, WITHOUT ROWID;

CREATE TABLE thread_samples (
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

-- How fast each core was, about once a second: the mean time of a unit of work that never changes.
CREATE TABLE speeds (
  run     INTEGER NOT NULL REFERENCES runs (id),
  host    TEXT NOT NULL,
  core    INTEGER NOT NULL,
  at_ns   INTEGER NOT NULL,
  unit_ns REAL NOT NULL,
  PRIMARY KEY (run, host, core, at_ns)
) STRICT, WITHOUT ROWID;

-- What SQL cannot calculate: percentiles of merged histograms, and intervals. Written with the report,
-- by the code that prints them; `why` says why there is no value. A row outlives no run that its
-- configuration gets after it.
CREATE TABLE summary (
  configuration INTEGER NOT NULL,
  variable      TEXT NOT NULL,
  value         REAL,
  low           REAL,
  high          REAL,
  why           TEXT,
  PRIMARY KEY (configuration, variable)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER summary_outdated_by_a_new_run AFTER INSERT ON runs BEGIN
  DELETE FROM summary WHERE configuration = NEW.configuration;
END;
CREATE TRIGGER summary_outdated_by_a_changed_run AFTER UPDATE ON runs BEGIN
  DELETE FROM summary WHERE configuration IN (OLD.configuration, NEW.configuration);
END;
CREATE TRIGGER summary_outdated_by_a_lost_run AFTER DELETE ON runs BEGIN
  DELETE FROM summary WHERE configuration = OLD.configuration;
END;

-- Every attempt, but no run of one client alone. `counts` is 1 for those that the report uses: of the design, the last attempt at its
-- place, usable, and with a measured window.
CREATE VIEW run_results AS
  WITH client AS (
    SELECT run,
           total(completed / nullif((to_ns - from_ns) / 1e9, 0)) AS throughput_per_s,
           sum(answered) AS answered,
           sum(answered * mean_ns) / nullif(sum(answered), 0) / 1e9 AS response_time_mean_s,
           sum(completed) AS completed,
           sum((SELECT coalesce(sum(value), 0) FROM json_each(operations.errors))) AS errors,
           sum(hits) AS hits,
           sum(misses) AS misses
    FROM operations WHERE extent = 'measured' GROUP BY run
  ), asked AS (
    SELECT run,
           sum(clients) AS clients,
           CASE WHEN count(arrival_rate_per_s) = count(*) THEN sum(arrival_rate_per_s) END
             AS arrival_rate_per_s
    FROM generators GROUP BY run
  )
  SELECT r.id AS run, r.configuration, r.repetition, r.attempt, r.purpose, r.status,
         r.purpose = 'design' AND r.status = 'done' AND r.measured_from_ns IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM runs later
                           WHERE later.configuration = r.configuration AND later.purpose = r.purpose
                             AND later.repetition = r.repetition AND later.attempt > r.attempt)
           AS counts,
         (SELECT json_group_object(factor, text)
          FROM (SELECT factor, text FROM run_factors WHERE run = r.id ORDER BY ordinal)) AS levels,
         (r.measured_to_ns - r.measured_from_ns) / 1e9 AS measured_s,
         asked.clients, asked.arrival_rate_per_s,
         CASE WHEN r.measured_from_ns IS NOT NULL THEN coalesce(client.throughput_per_s, 0.0) END
           AS throughput_per_s,
         client.response_time_mean_s, client.answered, client.completed, client.errors,
         client.hits, client.misses,
         client.errors * 1.0 / nullif(client.completed + client.errors, 0) AS error_rate,
         client.misses * 1.0 / nullif(client.hits + client.misses, 0) AS miss_rate
  FROM runs r
  LEFT JOIN client ON client.run = r.id
  LEFT JOIN asked ON asked.run = r.id
  WHERE r.one_client_of IS NULL;

CREATE VIEW configuration_results AS
  WITH measured AS (
    SELECT configuration, min(levels) AS levels, count(*) AS runs,
           avg(throughput_per_s) AS throughput_per_s,
           sum(answered * response_time_mean_s) / nullif(sum(answered), 0) AS response_time_mean_s,
           sum(answered) AS answered, sum(completed) AS completed, sum(errors) AS errors,
           sum(errors) * 1.0 / nullif(sum(completed) + sum(errors), 0) AS error_rate,
           sum(misses) * 1.0 / nullif(sum(hits) + sum(misses), 0) AS miss_rate
    FROM run_results WHERE counts GROUP BY configuration
  ), told AS (
    SELECT configuration,
           max(CASE variable WHEN 'throughput_per_s' THEN low END) AS throughput_per_s_low,
           max(CASE variable WHEN 'throughput_per_s' THEN high END) AS throughput_per_s_high,
           max(CASE variable WHEN 'response_time_mean_s' THEN low END) AS response_time_mean_s_low,
           max(CASE variable WHEN 'response_time_mean_s' THEN high END) AS response_time_mean_s_high,
           max(CASE variable WHEN 'response_time_standard_deviation_s' THEN value END)
             AS response_time_standard_deviation_s,
           max(CASE variable WHEN 'response_time_p25_s' THEN value END) AS response_time_p25_s,
           max(CASE variable WHEN 'response_time_p50_s' THEN value END) AS response_time_p50_s,
           max(CASE variable WHEN 'response_time_p50_s' THEN low END) AS response_time_p50_s_low,
           max(CASE variable WHEN 'response_time_p50_s' THEN high END) AS response_time_p50_s_high,
           max(CASE variable WHEN 'response_time_p75_s' THEN value END) AS response_time_p75_s,
           max(CASE variable WHEN 'response_time_p90_s' THEN value END) AS response_time_p90_s,
           max(CASE variable WHEN 'response_time_p95_s' THEN value END) AS response_time_p95_s,
           max(CASE variable WHEN 'response_time_p99_s' THEN value END) AS response_time_p99_s,
           max(CASE variable WHEN 'response_time_p99_s' THEN low END) AS response_time_p99_s_low,
           max(CASE variable WHEN 'response_time_p99_s' THEN high END) AS response_time_p99_s_high
    FROM summary GROUP BY configuration
  )
  SELECT m.configuration, m.levels, m.runs,
         m.throughput_per_s, t.throughput_per_s_low, t.throughput_per_s_high,
         m.response_time_mean_s, t.response_time_mean_s_low, t.response_time_mean_s_high,
         t.response_time_standard_deviation_s,
         t.response_time_p25_s,
         t.response_time_p50_s, t.response_time_p50_s_low, t.response_time_p50_s_high,
         t.response_time_p75_s, t.response_time_p90_s, t.response_time_p95_s,
         t.response_time_p99_s, t.response_time_p99_s_low, t.response_time_p99_s_high,
         m.answered, m.completed, m.errors, m.error_rate, m.miss_rate
  FROM measured m LEFT JOIN told t ON t.configuration = m.configuration
  ORDER BY m.configuration;

CREATE VIEW operation_results AS
  WITH each AS (
    SELECT run, operation,
           total(completed / nullif((to_ns - from_ns) / 1e9, 0)) AS throughput_per_s,
           sum(answered) AS answered,
           sum(answered * mean_ns) AS time_ns,
           sum(completed) AS completed,
           sum((SELECT coalesce(sum(value), 0) FROM json_each(operations.errors))) AS errors
    FROM operations WHERE extent = 'measured' GROUP BY run, operation
  )
  SELECT r.configuration, min(r.levels) AS levels, each.operation, count(*) AS runs,
         avg(each.throughput_per_s) AS throughput_per_s,
         sum(each.time_ns) / nullif(sum(each.answered), 0) / 1e9 AS response_time_mean_s,
         sum(each.answered) AS answered, sum(each.completed) AS completed,
         sum(each.errors) AS errors
  FROM each JOIN run_results r ON r.run = each.run
  WHERE r.counts GROUP BY r.configuration, each.operation;

-- Each tier that reports, in each run: all its instances together.
CREATE VIEW tier_run_results AS
  WITH period AS (
    SELECT p.run, p.tier, p.workers, p.queue_length_mean, p.workers_busy_mean,
           (p.to_ns - p.from_ns) / 1e9 AS length_s,
           (SELECT sum(completions) FROM tier_requests q
            WHERE q.run = p.run AND q.extent = p.extent AND q.tier = p.tier
              AND q.instance = p.instance AND q.from_ns = p.from_ns) AS completions
    FROM tier_periods p
    JOIN tiers t ON t.run = p.run AND t.tier = p.tier AND t.instance = p.instance
    WHERE p.extent = 'measured' AND t.role = 'tier'
  ), tier AS (
    SELECT run, tier, count(*) AS instances, sum(workers) AS workers,
           total(completions / nullif(length_s, 0)) AS throughput_per_s,
           sum(queue_length_mean) AS queue_length, sum(workers_busy_mean) AS workers_busy
    FROM period GROUP BY run, tier HAVING count(completions) > 0
  ), stage AS (
    SELECT run, tier, stage, sum(count * mean_ns) / sum(count) / 1e9 AS mean_s
    FROM tier_stages WHERE extent = 'measured' AND count > 0 GROUP BY run, tier, stage
  ), times AS (
    SELECT run, tier,
           max(CASE stage WHEN 'response_time' THEN mean_s END) AS response_time_s,
           max(CASE stage WHEN 'waiting_time' THEN mean_s END) AS waiting_time_s,
           max(CASE stage WHEN 'service_time' THEN mean_s END) AS service_time_s,
           max(CASE stage WHEN 'backend_time' THEN mean_s END) AS backend_time_s
    FROM stage GROUP BY run, tier
  )
  SELECT r.run, r.configuration, r.repetition, r.counts, r.levels, g.position, tier.tier,
         tier.instances, tier.throughput_per_s, times.response_time_s, times.waiting_time_s,
         times.service_time_s, times.backend_time_s, tier.queue_length, tier.workers_busy,
         tier.workers
  FROM tier
  JOIN run_results r ON r.run = tier.run
  LEFT JOIN times ON times.run = tier.run AND times.tier = tier.tier
  LEFT JOIN graph_tiers g ON g.run = tier.run AND g.tier = tier.tier;

CREATE VIEW tier_results AS
  WITH stage AS (
    SELECT r.configuration, s.tier, s.stage,
           sum(s.count * s.mean_ns) / sum(s.count) / 1e9 AS mean_s
    FROM tier_stages s JOIN run_results r ON r.run = s.run
    WHERE r.counts AND s.extent = 'measured' AND s.count > 0
    GROUP BY r.configuration, s.tier, s.stage
  ), times AS (
    SELECT configuration, tier,
           max(CASE stage WHEN 'response_time' THEN mean_s END) AS response_time_s,
           max(CASE stage WHEN 'waiting_time' THEN mean_s END) AS waiting_time_s,
           max(CASE stage WHEN 'service_time' THEN mean_s END) AS service_time_s,
           max(CASE stage WHEN 'backend_time' THEN mean_s END) AS backend_time_s
    FROM stage GROUP BY configuration, tier
  )
  SELECT t.configuration, min(t.levels) AS levels, min(t.position) AS position, t.tier,
         count(*) AS runs, max(t.instances) AS instances,
         avg(t.throughput_per_s) AS throughput_per_s, times.response_time_s, times.waiting_time_s,
         times.service_time_s, times.backend_time_s, avg(t.queue_length) AS queue_length,
         avg(t.workers_busy) AS workers_busy, max(t.workers) AS workers
  FROM tier_run_results t
  LEFT JOIN times ON times.configuration = t.configuration AND times.tier = t.tier
  WHERE t.counts GROUP BY t.configuration, t.tier
  ORDER BY t.configuration, position;
