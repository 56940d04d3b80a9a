-- Schema version 8: views of the numbers that the report shows, and what they need.
-- Never edited once released: a change is a new file with the next number.
-- docs/results.md explains every column; crates/report/tests/all/views.rs holds views and report together.

-- Requests whose time is in the histogram beside them, and their mean: SQL cannot read histograms.
-- Rows of older versions are filled in by src/schema/means.rs.
ALTER TABLE operations ADD COLUMN answered INTEGER NOT NULL DEFAULT 0;
ALTER TABLE operations ADD COLUMN mean_ns REAL;

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

-- Every attempt, but no run of one client alone (version 7). `counts` is 1 for those that the report uses: of the design, the last attempt at its
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
