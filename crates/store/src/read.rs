//! Rows out of the database.

use kendall_protocols::topology::{
    Edge, EdgeLink, End, Graph, Part, Pool, PoolKind, Role, TierId, TierNode,
};
use kendall_stats::histogram::Histogram;
use rusqlite::{OptionalExtension as _, Row, params};
use serde::de::DeserializeOwned;

use crate::rows::{
    Extent, FactorLevel, Generator, GeneratorThread, HostSample, Level, MeasuredWindow,
    OperationCounts, OperationPeriod, Process, ProcessSample, Purpose, Run, RunId, RunRecord,
    SearchLine, SpeedSample, Status, StoredPrediction, Study, SummaryRow, ThreadSample, Tier,
    TierBackend, TierPeriod,
};
use crate::{Results, StoreError};

impl Results {
    /// The study that the results belong to.
    pub fn study(&self) -> Result<Study, StoreError> {
        let query = "SELECT name, title, file_name, file, fingerprint, seed, design, confidence,
                       planned_runs, created_unix_ns FROM study";
        self.connection.query_row(query, [], |row| Ok(study(row)))?
    }

    /// How far an adaptive design came, line by line; empty for other designs.
    pub fn searches(&self) -> Result<Vec<SearchLine>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT line, factor, levels, runs, grid, sweep_runs, found, without
             FROM searches ORDER BY line",
        )?;
        let mut rows = statement.query([])?;
        let mut lines = Vec::new();
        while let Some(row) = rows.next()? {
            lines.push(SearchLine {
                line: row.get(0)?,
                factor: row.get(1)?,
                levels: json(row, 2)?,
                runs: count(row, 3)?,
                grid: count(row, 4)?,
                sweep_runs: count(row, 5)?,
                found: stored(row, 6)?.then(|| json(row, 6)).transpose()?,
                without: row.get(7)?,
            });
        }
        Ok(lines)
    }

    /// What the last report said of each configuration that got no run since, by configuration and
    /// variable.
    pub fn summary(&self) -> Result<Vec<SummaryRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT configuration, variable, value, low, high, why FROM summary
             ORDER BY configuration, variable",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(SummaryRow {
                configuration: row.get(0)?,
                variable: row.get(1)?,
                value: row.get(2)?,
                low: row.get(3)?,
                high: row.get(4)?,
                why: row.get(5)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// All runs of the design in the order in which they ended: every attempt, usable or not.
    pub fn runs(&self) -> Result<Vec<Run>, StoreError> {
        self.runs_for(Purpose::Design)
    }

    /// Runs that verified predictions, and those beside them, in the order in which they ended.
    pub fn verifications(&self) -> Result<Vec<Run>, StoreError> {
        self.runs_for(Purpose::Verification)
    }

    /// What was asked of the study's model and kept, oldest first.
    pub fn predictions(&self) -> Result<Vec<StoredPrediction>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT made_unix_ns, asked, answer, run, repeated, verdict FROM predictions
             ORDER BY id",
        )?;
        let mut rows = statement.query([])?;
        let mut predictions = Vec::new();
        while let Some(row) = rows.next()? {
            predictions.push(StoredPrediction {
                made_unix_ns: count(row, 0)?,
                asked: json(row, 1)?,
                answer: json(row, 2)?,
                run: row.get::<_, Option<i64>>(3)?.map(RunId),
                repeated: row.get::<_, Option<i64>>(4)?.map(RunId),
                verdict: stored(row, 5)?.then(|| json(row, 5)).transpose()?,
            });
        }
        Ok(predictions)
    }

    /// What one client alone did before the loads of runs, of the design and others, in the order of these.
    pub fn one_client_runs(&self) -> Result<Vec<Run>, StoreError> {
        self.runs_where("one_client_of IS NOT NULL", [])
    }

    fn runs_for(&self, purpose: Purpose) -> Result<Vec<Run>, StoreError> {
        self.runs_where("purpose = ?1 AND one_client_of IS NULL", [purpose.as_str()])
    }

    fn runs_where(
        &self,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<Run>, StoreError> {
        let query = format!("{RUNS} WHERE {condition} ORDER BY runs.id");
        let mut statement = self.connection.prepare_cached(&query)?;
        let mut rows = statement.query(values)?;
        let mut runs = Vec::new();
        while let Some(row) = rows.next()? {
            runs.push(run(row)?);
        }
        for run in &mut runs {
            run.factors = self.factors(run.id)?;
        }
        Ok(runs)
    }

    /// What runs ran on, each that was stored once, the newest first.
    pub fn environments(&self) -> Result<Vec<serde_json::Value>, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT description FROM environments ORDER BY id DESC")?;
        let mut rows = statement.query([])?;
        let mut environments = Vec::new();
        while let Some(row) = rows.next()? {
            environments.push(json(row, 0)?);
        }
        Ok(environments)
    }

    /// The last attempt at each planned run, ordered by configuration and repetition.
    pub fn latest_runs(&self) -> Result<Vec<Run>, StoreError> {
        let mut runs = self.runs()?;
        runs.sort_by_key(|run| (run.configuration, run.repetition, std::cmp::Reverse(run.attempt)));
        runs.dedup_by_key(|run| (run.configuration, run.repetition));
        Ok(runs)
    }

    /// One run.
    pub fn run(&self, id: RunId) -> Result<Run, StoreError> {
        let mut statement =
            self.connection.prepare_cached(&format!("{RUNS} WHERE runs.id = ?1"))?;
        let found = statement.query_row([id.0], |row| Ok(run(row))).optional()?;
        let mut run = found.ok_or(StoreError::NoSuchRun(id.0))??;
        run.factors = self.factors(id)?;
        Ok(run)
    }

    /// Everything about one run, as it was stored.
    pub fn record(&self, id: RunId) -> Result<RunRecord, StoreError> {
        Ok(RunRecord {
            run: self.run(id)?,
            graph: self.graph(id)?,
            generators: self.generators(id, None)?,
            tiers: self.tiers(id, None)?,
            processes: self.processes(id)?,
            hosts: self.hosts(id)?,
            speeds: self.speeds(id)?,
        })
    }

    /// The system of a run: its tiers by their distance from the clients, and who talks to whom.
    pub fn graph(&self, id: RunId) -> Result<Graph, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT tier, kind, instances FROM graph_tiers WHERE run = ?1 ORDER BY position",
        )?;
        let nodes = statement.query_map([id.0], |row| {
            Ok(TierNode {
                tier: TierId::stored(row.get::<_, String>(0)?),
                kind: row.get(1)?,
                instances: row.get(2)?,
                pools: Vec::new(),
            })
        })?;
        let mut tiers: Vec<TierNode> = nodes.collect::<Result<_, _>>()?;
        for node in &mut tiers {
            node.pools = self.pools(id, &node.tier)?;
        }
        let mut statement = self.connection.prepare_cached(
            "SELECT from_tier, to_tier, link, delay_ns, bandwidth_bytes_per_s FROM graph_edges
             WHERE run = ?1 ORDER BY ordinal",
        )?;
        let mut rows = statement.query([id.0])?;
        let mut edges = Vec::new();
        while let Some(row) = rows.next()? {
            let from: Option<String> = row.get(0)?;
            let link: Option<String> = row.get(2)?;
            let delay_ns = optional_count(row, 3)?.unwrap_or(0);
            let bandwidth_bytes_per_s = row.get(4)?;
            edges.push(Edge {
                from: from.map_or(End::Clients, |from| End::Tier(TierId::stored(from))),
                to: TierId::stored(row.get::<_, String>(1)?),
                link: link.map(|name| EdgeLink { name, delay_ns, bandwidth_bytes_per_s }),
            });
        }
        Ok(Graph { tiers, edges })
    }

    fn pools(&self, id: RunId, tier: &TierId) -> Result<Vec<Pool>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT pool, to_tier, servers FROM graph_pools WHERE run = ?1 AND tier = ?2
             ORDER BY ordinal",
        )?;
        let mut rows = statement.query(params![id.0, tier.as_str()])?;
        let mut pools = Vec::new();
        while let Some(row) = rows.next()? {
            let to: Option<String> = row.get(1)?;
            let known = [PoolKind::Workers, PoolKind::Threads]
                .into_iter()
                .chain(to.map(|to| PoolKind::Connections(TierId::stored(to))));
            let name: String = row.get(0)?;
            let of = known
                .into_iter()
                .find(|kind| kind.as_str() == name)
                .ok_or_else(|| corrupt(row, 0, &format!("`{name}`")))?;
            pools.push(Pool { of, servers: row.get(2)? });
        }
        Ok(pools)
    }

    /// How fast the cores of a run were; empty where it was not probed.
    pub fn speeds(&self, id: RunId) -> Result<Vec<SpeedSample>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT host, core, at_ns, unit_ns FROM speeds WHERE run = ?1
             ORDER BY host, core, at_ns",
        )?;
        let mut rows = statement.query([id.0])?;
        let mut samples = Vec::new();
        while let Some(row) = rows.next()? {
            samples.push(SpeedSample {
                host: row.get(0)?,
                core: row.get(1)?,
                at_ns: count(row, 2)?,
                unit_ns: row.get(3)?,
            });
        }
        Ok(samples)
    }

    fn factors(&self, id: RunId) -> Result<Vec<FactorLevel>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT factor, level, text, number FROM run_factors WHERE run = ?1 ORDER BY ordinal",
        )?;
        let rows = statement.query_map([id.0], |row| {
            Ok(FactorLevel {
                factor: row.get(0)?,
                level: row.get(1)?,
                text: row.get(2)?,
                number: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The generators of a run, with their operations of one extent, or of all.
    pub fn generators(
        &self,
        id: RunId,
        extent: Option<Extent>,
    ) -> Result<Vec<Generator>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT generator, host, command, protocol, targets, loop, clients, started_ns,
               ended_ns, think_time_mean_ns, arrival_rate_per_s, lateness, gaps, calls, seed,
               unsent, reconnects, connection_wait, gap_check, statuses, stalls, drawn
             FROM generators WHERE run = ?1 ORDER BY generator",
        )?;
        let mut rows = statement.query([id.0])?;
        let mut generators = Vec::new();
        while let Some(row) = rows.next()? {
            let mut generator = generator(row)?;
            generator.threads = self.threads(id, generator.generator)?;
            generator.operations = self.operations(id, generator.generator, extent)?;
            generators.push(generator);
        }
        Ok(generators)
    }

    fn threads(&self, id: RunId, generator: u32) -> Result<Vec<GeneratorThread>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT cpu_user_ns, cpu_system_ns, wall_ns, run_queue_wait_ns, spun_ns
             FROM generator_threads
             WHERE run = ?1 AND generator = ?2 ORDER BY thread",
        )?;
        let mut rows = statement.query(params![id.0, generator])?;
        let mut threads = Vec::new();
        while let Some(row) = rows.next()? {
            threads.push(GeneratorThread {
                cpu_user_ns: count(row, 0)?,
                cpu_system_ns: count(row, 1)?,
                wall_ns: count(row, 2)?,
                run_queue_wait_ns: count(row, 3)?,
                spun_ns: count(row, 4)?,
            });
        }
        Ok(threads)
    }

    fn operations(
        &self,
        id: RunId,
        generator: u32,
        extent: Option<Extent>,
    ) -> Result<Vec<OperationPeriod>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT extent, from_ns, to_ns, operation, sent, completed, hits, misses, errors,
               bytes_out, bytes_in, response_time
             FROM operations WHERE run = ?1 AND generator = ?2 AND (?3 IS NULL OR extent = ?3)
             ORDER BY extent, from_ns, operation",
        )?;
        let mut rows = statement.query(params![id.0, generator, extent.map(Extent::as_str)])?;
        let mut periods = Vec::new();
        while let Some(row) = rows.next()? {
            periods.push(OperationPeriod {
                extent: self::extent(row, 0)?,
                from_ns: count(row, 1)?,
                to_ns: count(row, 2)?,
                operation: row.get(3)?,
                counts: OperationCounts {
                    sent: count(row, 4)?,
                    completed: count(row, 5)?,
                    hits: count(row, 6)?,
                    misses: count(row, 7)?,
                    errors: json(row, 8)?,
                    bytes_out: count(row, 9)?,
                    bytes_in: count(row, 10)?,
                    response_time: histogram(row, 11)?,
                },
            });
        }
        Ok(periods)
    }

    /// The tiers of a run by their distance from the clients, then the links, with their periods of
    /// one extent, or of all.
    pub fn tiers(&self, id: RunId, extent: Option<Extent>) -> Result<Vec<Tier>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT t.tier, t.instance, t.kind, t.host, t.address, t.pid, t.command, t.role
             FROM tiers t LEFT JOIN graph_tiers g ON g.run = t.run AND g.tier = t.tier
             WHERE t.run = ?1 ORDER BY g.position IS NULL, g.position, t.tier, t.instance",
        )?;
        let mut rows = statement.query([id.0])?;
        let mut tiers = Vec::new();
        while let Some(row) = rows.next()? {
            let mut tier = Tier {
                tier: row.get(0)?,
                instance: row.get(1)?,
                kind: row.get(2)?,
                host: row.get(3)?,
                address: row.get(4)?,
                pid: row.get(5)?,
                command: row.get(6)?,
                role: role(row, 7)?,
                periods: Vec::new(),
            };
            tier.periods = self.periods(id, &tier, extent)?;
            tiers.push(tier);
        }
        Ok(tiers)
    }

    fn periods(
        &self,
        id: RunId,
        tier: &Tier,
        extent: Option<Extent>,
    ) -> Result<Vec<TierPeriod>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT extent, from_ns, to_ns, workers, queue_length_mean, queue_length_maximum,
               workers_busy_mean, workers_busy_maximum, connections_mean, connections_maximum,
               bytes_in, bytes_out, cpu_user_ns, cpu_system_ns, outcomes, limits_hit,
               held_time, spun_ns, counted
             FROM tier_periods
             WHERE run = ?1 AND tier = ?2 AND instance = ?3 AND (?4 IS NULL OR extent = ?4)
             ORDER BY extent, from_ns",
        )?;
        let wanted = extent.map(Extent::as_str);
        let mut rows = statement.query(params![id.0, tier.tier, tier.instance, wanted])?;
        let mut periods = Vec::new();
        while let Some(row) = rows.next()? {
            let mut period = tier_period(row)?;
            self.requests(id, tier, &mut period)?;
            self.backends(id, tier, &mut period)?;
            periods.push(period);
        }
        Ok(periods)
    }

    fn requests(&self, id: RunId, tier: &Tier, period: &mut TierPeriod) -> Result<(), StoreError> {
        let key = PeriodKey::of(period)?;
        let mut statement = self.connection.prepare_cached(
            "SELECT request, arrivals, completions FROM tier_requests
             WHERE run = ?1 AND extent = ?2 AND tier = ?3 AND instance = ?4 AND from_ns = ?5",
        )?;
        let mut rows =
            statement.query(params![id.0, key.extent, tier.tier, tier.instance, key.from])?;
        while let Some(row) = rows.next()? {
            let requests = period.requests.entry(row.get(0)?).or_default();
            requests.arrivals = count(row, 1)?;
            requests.completions = count(row, 2)?;
        }
        let mut statement = self.connection.prepare_cached(
            "SELECT request, stage, histogram FROM tier_stages
             WHERE run = ?1 AND extent = ?2 AND tier = ?3 AND instance = ?4 AND from_ns = ?5",
        )?;
        let mut rows =
            statement.query(params![id.0, key.extent, tier.tier, tier.instance, key.from])?;
        while let Some(row) = rows.next()? {
            let requests = period.requests.entry(row.get(0)?).or_default();
            requests.stages.insert(row.get(1)?, histogram(row, 2)?);
        }
        Ok(())
    }

    fn backends(&self, id: RunId, tier: &Tier, period: &mut TierPeriod) -> Result<(), StoreError> {
        let key = PeriodKey::of(period)?;
        let mut statement = self.connection.prepare_cached(
            "SELECT address, requests, keys, errors, backend_time FROM tier_backends
             WHERE run = ?1 AND extent = ?2 AND tier = ?3 AND instance = ?4 AND from_ns = ?5
             ORDER BY backend",
        )?;
        let mut rows =
            statement.query(params![id.0, key.extent, tier.tier, tier.instance, key.from])?;
        while let Some(row) = rows.next()? {
            period.backends.push(TierBackend {
                address: row.get(0)?,
                requests: count(row, 1)?,
                keys: count(row, 2)?,
                errors: count(row, 3)?,
                backend_time: histogram(row, 4)?,
            });
        }
        Ok(())
    }

    /// Resources of the processes of a run.
    pub fn processes(&self, id: RunId) -> Result<Vec<Process>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT name, instance, host, pid, at_ns, cpu_user_ns, cpu_system_ns,
               run_queue_wait_ns, voluntary_switches, involuntary_switches, resident_bytes,
               threads, role, waiting
             FROM process_samples WHERE run = ?1 ORDER BY role, name, instance, at_ns",
        )?;
        let mut rows = statement.query([id.0])?;
        let mut processes: Vec<Process> = Vec::new();
        while let Some(row) = rows.next()? {
            let process = Process {
                part: Part { role: role(row, 12)?, name: row.get(0)? },
                instance: row.get(1)?,
                host: row.get(2)?,
                pid: row.get(3)?,
                samples: Vec::new(),
                threads: Vec::new(),
            };
            let sample = process_sample(row)?;
            match processes.last_mut() {
                Some(last) if last.part == process.part && last.instance == process.instance => {
                    last.samples.push(sample);
                }
                _ => processes.push(Process { samples: vec![sample], ..process }),
            }
        }
        for process in &mut processes {
            process.threads = self.thread_samples(id, process)?;
        }
        Ok(processes)
    }

    fn thread_samples(&self, id: RunId, of: &Process) -> Result<Vec<ThreadSample>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT thread, at_ns, threads, cpu_ns, run_queue_wait_ns FROM thread_samples
             WHERE run = ?1 AND role = ?2 AND name = ?3 AND instance = ?4 ORDER BY thread, at_ns",
        )?;
        let part = (of.part.role.as_str(), &of.part.name);
        let mut rows = statement.query(params![id.0, part.0, part.1, of.instance])?;
        let mut samples = Vec::new();
        while let Some(row) = rows.next()? {
            samples.push(ThreadSample {
                name: row.get(0)?,
                at_ns: count(row, 1)?,
                threads: count(row, 2)?,
                cpu_ns: count(row, 3)?,
                run_queue_wait_ns: count(row, 4)?,
            });
        }
        Ok(samples)
    }

    /// Resources of the hosts of a run.
    pub fn hosts(&self, id: RunId) -> Result<Vec<HostSample>, StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT host, at_ns, cores, cpu_user_ns, cpu_system_ns, cpu_idle_ns, cpu_steal_ns,
               context_switches, network_in_bytes, network_out_bytes
             FROM host_samples WHERE run = ?1 ORDER BY host, at_ns",
        )?;
        let mut rows = statement.query([id.0])?;
        let mut samples = Vec::new();
        while let Some(row) = rows.next()? {
            samples.push(HostSample {
                host: row.get(0)?,
                at_ns: count(row, 1)?,
                cores: row.get(2)?,
                cpu_user_ns: count(row, 3)?,
                cpu_system_ns: count(row, 4)?,
                cpu_idle_ns: count(row, 5)?,
                cpu_steal_ns: count(row, 6)?,
                context_switches: count(row, 7)?,
                network_in_bytes: count(row, 8)?,
                network_out_bytes: count(row, 9)?,
            });
        }
        Ok(samples)
    }
}

const RUNS: &str = "SELECT runs.id, configuration, repetition, position, attempt, status, reasons,
    caveats, settings, description, started_unix_ns, ended_unix_ns, started_ns, ended_ns,
    measured_from_ns, measured_to_ns, cut_rule, purpose, speed_unit_ns, one_client_of
  FROM runs JOIN environments ON environments.id = runs.environment";

/// The columns that tie the rows of one period together.
struct PeriodKey {
    extent: &'static str,
    from: i64,
}

impl PeriodKey {
    fn of(period: &TierPeriod) -> Result<Self, StoreError> {
        let from = crate::write::int("from_ns", period.from_ns)?;
        Ok(Self { extent: period.extent.as_str(), from })
    }
}

fn study(row: &Row<'_>) -> Result<Study, StoreError> {
    Ok(Study {
        name: row.get(0)?,
        title: row.get(1)?,
        file_name: row.get(2)?,
        file: row.get(3)?,
        fingerprint: row.get(4)?,
        seed: count(row, 5)?,
        design: row.get(6)?,
        confidence: row.get(7)?,
        planned_runs: optional_count(row, 8)?,
        created_unix_ns: count(row, 9)?,
    })
}

fn run(row: &Row<'_>) -> Result<Run, StoreError> {
    let window = (optional_count(row, 14)?, optional_count(row, 15)?, row.get(16)?);
    let measured = match window {
        (Some(from_ns), Some(to_ns), Some(rule)) => Some(MeasuredWindow { from_ns, to_ns, rule }),
        _ => None,
    };
    Ok(Run {
        id: RunId(row.get(0)?),
        configuration: row.get(1)?,
        repetition: row.get(2)?,
        position: row.get(3)?,
        attempt: row.get(4)?,
        status: status(row, 5)?,
        reasons: json(row, 6)?,
        caveats: json(row, 7)?,
        factors: Vec::new(),
        settings: json(row, 8)?,
        environment: json(row, 9)?,
        started_unix_ns: count(row, 10)?,
        ended_unix_ns: count(row, 11)?,
        started_ns: count(row, 12)?,
        ended_ns: count(row, 13)?,
        measured,
        purpose: match row.get_ref(17)?.as_str().unwrap_or_default() {
            "verification" => Purpose::Verification,
            _ => Purpose::Design,
        },
        speed_unit_ns: row.get(18)?,
        one_client_of: row.get::<_, Option<i64>>(19)?.map(RunId),
    })
}

fn generator(row: &Row<'_>) -> Result<Generator, StoreError> {
    Ok(Generator {
        generator: row.get(0)?,
        host: row.get(1)?,
        command: row.get(2)?,
        protocol: row.get(3)?,
        targets: json(row, 4)?,
        r#loop: row.get(5)?,
        clients: count(row, 6)?,
        started_ns: count(row, 7)?,
        ended_ns: count(row, 8)?,
        think_time_mean_ns: count(row, 9)?,
        arrival_rate_per_s: row.get(10)?,
        lateness: histogram(row, 11)?,
        gaps: histogram(row, 12)?,
        calls: row.get(13)?,
        seed: count(row, 14)?,
        unsent: count(row, 15)?,
        reconnects: count(row, 16)?,
        connection_wait: histogram(row, 17)?,
        gap_check: stored(row, 18)?.then(|| json(row, 18)).transpose()?,
        statuses: json(row, 19)?,
        stalls: stored(row, 20)?.then(|| json(row, 20)).transpose()?,
        drawn: json(row, 21)?,
        threads: Vec::new(),
        operations: Vec::new(),
    })
}

fn tier_period(row: &Row<'_>) -> Result<TierPeriod, StoreError> {
    let level = |at: usize| -> Result<Level, StoreError> {
        Ok(Level { mean: row.get(at)?, maximum: count(row, at + 1)? })
    };
    Ok(TierPeriod {
        extent: extent(row, 0)?,
        from_ns: count(row, 1)?,
        to_ns: count(row, 2)?,
        workers: row.get(3)?,
        queue_length: level(4)?,
        workers_busy: level(6)?,
        connections: level(8)?,
        bytes_in: count(row, 10)?,
        bytes_out: count(row, 11)?,
        cpu_user_ns: count(row, 12)?,
        cpu_system_ns: count(row, 13)?,
        outcomes: json(row, 14)?,
        limits_hit: json(row, 15)?,
        held_time: histogram(row, 16)?,
        spun_ns: optional_count(row, 17)?,
        requests: std::collections::BTreeMap::new(),
        backends: Vec::new(),
        counted: json(row, 18)?,
    })
}

fn process_sample(row: &Row<'_>) -> Result<ProcessSample, StoreError> {
    Ok(ProcessSample {
        at_ns: count(row, 4)?,
        cpu_user_ns: count(row, 5)?,
        cpu_system_ns: count(row, 6)?,
        run_queue_wait_ns: count(row, 7)?,
        voluntary_switches: count(row, 8)?,
        involuntary_switches: count(row, 9)?,
        resident_bytes: count(row, 10)?,
        threads: count(row, 11)?,
        waiting: stored(row, 13)?.then(|| json(row, 13)).transpose()?,
    })
}

fn count(row: &Row<'_>, at: usize) -> Result<u64, StoreError> {
    optional_count(row, at)?.ok_or_else(|| corrupt(row, at, "empty"))
}

fn optional_count(row: &Row<'_>, at: usize) -> Result<Option<u64>, StoreError> {
    let stored: Option<i64> = row.get(at)?;
    stored.map(|value| u64::try_from(value).map_err(|_| corrupt(row, at, "negative"))).transpose()
}

/// Whether a column holds anything.
fn stored(row: &Row<'_>, at: usize) -> Result<bool, StoreError> {
    Ok(row.get_ref(at)? != rusqlite::types::ValueRef::Null)
}

fn histogram(row: &Row<'_>, at: usize) -> Result<Histogram, StoreError> {
    let bytes = row.get_ref(at)?.as_blob().map_err(|error| corrupt(row, at, &error.to_string()))?;
    Histogram::from_bytes(bytes).map_err(|error| corrupt(row, at, &error.to_string()))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<T, StoreError> {
    let text = row.get_ref(at)?.as_str().map_err(|error| corrupt(row, at, &error.to_string()))?;
    serde_json::from_str(text).map_err(|error| corrupt(row, at, &error.to_string()))
}

fn status(row: &Row<'_>, at: usize) -> Result<Status, StoreError> {
    word(row, at, &[Status::Done, Status::Failed, Status::Rejected], Status::as_str)
}

fn extent(row: &Row<'_>, at: usize) -> Result<Extent, StoreError> {
    word(row, at, Extent::ALL, Extent::as_str)
}

fn role(row: &Row<'_>, at: usize) -> Result<Role, StoreError> {
    word(row, at, Role::ALL, Role::as_str)
}

fn word<T: Copy>(
    row: &Row<'_>,
    at: usize,
    known: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, StoreError> {
    let text: String = row.get(at)?;
    known
        .iter()
        .copied()
        .find(|value| name(*value) == text)
        .ok_or_else(|| corrupt(row, at, &format!("`{text}`")))
}

fn corrupt(row: &Row<'_>, at: usize, what: &str) -> StoreError {
    let column = row.as_ref().column_name(at).unwrap_or("?").to_owned();
    StoreError::Corrupt { what: format!("column {column}: {what}") }
}
