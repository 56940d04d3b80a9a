//! Rows into the database. Callers hold the transaction.

use kendall_protocols::topology::{End, Graph, PoolKind};
use rusqlite::{Connection, params};
use serde::Serialize;

use crate::StoreError;
use crate::rows::{
    Generator, HostSample, Process, Run, RunId, RunRecord, SearchLine, SpeedSample,
    StoredPrediction, Study, SummaryRow, Tier, TierPeriod,
};

/// A count as SQLite's signed 64 bits.
pub(crate) fn int(what: &'static str, value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::TooLarge { what, value, limit: i64::MAX })
}

fn json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt { what: error.to_string() })
}

pub(crate) fn study(connection: &Connection, study: &Study) -> Result<(), StoreError> {
    let planned = study.planned_runs.map(|runs| int("planned_runs", runs)).transpose()?;
    connection.execute(
        "INSERT INTO study (id, name, title, file_name, file, fingerprint, seed, design,
           confidence, planned_runs, created_unix_ns)
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            study.name,
            study.title,
            study.file_name,
            study.file,
            study.fingerprint,
            int("seed", study.seed)?,
            study.design,
            study.confidence,
            planned,
            int("created_unix_ns", study.created_unix_ns)?,
        ],
    )?;
    Ok(())
}

pub(crate) fn searches(connection: &Connection, lines: &[SearchLine]) -> Result<(), StoreError> {
    connection.execute("DELETE FROM searches", [])?;
    let mut insert = connection
        .prepare_cached("INSERT INTO searches VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    for line in lines {
        insert.execute(params![
            line.line,
            line.factor,
            json(&line.levels)?,
            int("runs", line.runs)?,
            int("grid", line.grid)?,
            int("sweep_runs", line.sweep_runs)?,
            line.found.as_ref().map(json).transpose()?,
            line.without,
        ])?;
    }
    Ok(())
}

pub(crate) fn summary(connection: &Connection, rows: &[SummaryRow]) -> Result<(), StoreError> {
    connection.execute("DELETE FROM summary", [])?;
    let mut insert =
        connection.prepare_cached("INSERT INTO summary VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for row in rows {
        insert.execute(params![
            row.configuration,
            row.variable,
            row.value,
            row.low,
            row.high,
            row.why
        ])?;
    }
    Ok(())
}

pub(crate) fn prediction(
    connection: &Connection,
    prediction: &StoredPrediction,
) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO predictions (made_unix_ns, asked, answer, run, repeated, verdict)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            int("made_unix_ns", prediction.made_unix_ns)?,
            json(&prediction.asked)?,
            json(&prediction.answer)?,
            prediction.run.map(|run| run.0),
            prediction.repeated.map(|run| run.0),
            prediction.verdict.as_ref().map(json).transpose()?,
        ],
    )?;
    Ok(())
}

pub(crate) fn record(connection: &Connection, record: &RunRecord) -> Result<RunId, StoreError> {
    let id = run(connection, &record.run)?;
    graph(connection, id, &record.graph)?;
    for generator in &record.generators {
        self::generator(connection, id, generator)?;
    }
    for tier in &record.tiers {
        self::tier(connection, id, tier)?;
    }
    for process in &record.processes {
        self::process(connection, id, process)?;
    }
    for sample in &record.hosts {
        host(connection, id, sample)?;
    }
    for sample in &record.speeds {
        speed(connection, id, sample)?;
    }
    Ok(RunId(id))
}

fn run(connection: &Connection, run: &Run) -> Result<i64, StoreError> {
    let environment = environment(connection, &json(&run.environment)?)?;
    let window = run.measured.as_ref();
    connection.execute(
        "INSERT INTO runs (configuration, repetition, position, attempt, status, reasons, caveats,
           settings, environment, started_unix_ns, ended_unix_ns, started_ns, ended_ns,
           measured_from_ns, measured_to_ns, cut_rule, purpose, speed_unit_ns, one_client_of)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
           ?19)",
        params![
            run.configuration,
            run.repetition,
            run.position,
            run.attempt,
            run.status.as_str(),
            json(&run.reasons)?,
            json(&run.caveats)?,
            json(&run.settings)?,
            environment,
            int("started_unix_ns", run.started_unix_ns)?,
            int("ended_unix_ns", run.ended_unix_ns)?,
            int("started_ns", run.started_ns)?,
            int("ended_ns", run.ended_ns)?,
            window.map(|w| int("measured_from_ns", w.from_ns)).transpose()?,
            window.map(|w| int("measured_to_ns", w.to_ns)).transpose()?,
            window.map(|w| w.rule.as_str()),
            run.purpose.as_str(),
            run.speed_unit_ns,
            run.one_client_of.map(|of| of.0),
        ],
    )?;
    let id = connection.last_insert_rowid();
    let mut insert = connection.prepare_cached(
        "INSERT INTO run_factors (run, ordinal, factor, level, text, number)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (ordinal, level) in (0_u32..).zip(&run.factors) {
        insert.execute(params![
            id,
            ordinal,
            level.factor,
            level.level,
            level.text,
            level.number
        ])?;
    }
    Ok(id)
}

/// The key of a description, which runs of one session share.
fn environment(connection: &Connection, description: &str) -> Result<i64, StoreError> {
    connection.execute(
        "INSERT INTO environments (description) VALUES (?1) ON CONFLICT DO NOTHING",
        [description],
    )?;
    Ok(connection.query_row(
        "SELECT id FROM environments WHERE description = ?1",
        [description],
        |row| row.get(0),
    )?)
}

/// The system's graph of one run.
fn graph(connection: &Connection, run: i64, graph: &Graph) -> Result<(), StoreError> {
    let mut tiers =
        connection.prepare_cached("INSERT INTO graph_tiers VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut pools =
        connection.prepare_cached("INSERT INTO graph_pools VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for (position, node) in (0_u32..).zip(&graph.tiers) {
        let tier = node.tier.as_str();
        tiers.execute(params![run, position, tier, node.kind, node.instances])?;
        for (ordinal, pool) in (0_u32..).zip(&node.pools) {
            let to = match &pool.of {
                PoolKind::Connections(to) => Some(to.as_str()),
                PoolKind::Workers | PoolKind::Threads => None,
            };
            pools.execute(params![run, tier, ordinal, pool.of.as_str(), to, pool.servers])?;
        }
    }
    let mut edges =
        connection.prepare_cached("INSERT INTO graph_edges VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for (ordinal, edge) in (0_u32..).zip(&graph.edges) {
        let from = match &edge.from {
            End::Clients => None,
            End::Tier(tier) => Some(tier.as_str()),
        };
        let link = edge.link.as_ref();
        edges.execute(params![
            run,
            ordinal,
            from,
            edge.to.as_str(),
            link.map(|link| link.name.as_str()),
            link.map(|link| int("delay_ns", link.delay_ns)).transpose()?,
            link.and_then(|link| link.bandwidth_bytes_per_s),
        ])?;
    }
    Ok(())
}

fn generator(connection: &Connection, run: i64, row: &Generator) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO generators VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
           ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
        params![
            run,
            row.generator,
            row.host,
            row.command,
            row.protocol,
            json(&row.targets)?,
            row.r#loop,
            int("clients", row.clients)?,
            int("started_ns", row.started_ns)?,
            int("ended_ns", row.ended_ns)?,
            int("think_time_mean_ns", row.think_time_mean_ns)?,
            row.arrival_rate_per_s,
            row.lateness.to_bytes(),
            row.gaps.to_bytes(),
            row.calls,
            int("seed", row.seed)?,
            int("unsent", row.unsent)?,
            int("reconnects", row.reconnects)?,
            row.connection_wait.to_bytes(),
            row.gap_check.as_ref().map(json).transpose()?,
            json(&row.statuses)?,
            row.stalls.as_ref().map(json).transpose()?,
            json(&row.drawn)?,
        ],
    )?;
    let mut insert = connection
        .prepare_cached("INSERT INTO generator_threads VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    for (number, thread) in (0_u32..).zip(&row.threads) {
        insert.execute(params![
            run,
            row.generator,
            number,
            int("cpu_user_ns", thread.cpu_user_ns)?,
            int("cpu_system_ns", thread.cpu_system_ns)?,
            int("wall_ns", thread.wall_ns)?,
            int("run_queue_wait_ns", thread.run_queue_wait_ns)?,
            int("spun_ns", thread.spun_ns)?,
        ])?;
    }
    operations(connection, run, row)
}

fn operations(connection: &Connection, run: i64, row: &Generator) -> Result<(), StoreError> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO operations
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    )?;
    for period in &row.operations {
        let counts = &period.counts;
        insert.execute(params![
            run,
            row.generator,
            period.extent.as_str(),
            int("from_ns", period.from_ns)?,
            int("to_ns", period.to_ns)?,
            period.operation,
            int("sent", counts.sent)?,
            int("completed", counts.completed)?,
            int("hits", counts.hits)?,
            int("misses", counts.misses)?,
            json(&counts.errors)?,
            int("bytes_out", counts.bytes_out)?,
            int("bytes_in", counts.bytes_in)?,
            counts.response_time.to_bytes(),
            int("answered", counts.response_time.count())?,
            counts.response_time.mean(),
        ])?;
    }
    Ok(())
}

fn tier(connection: &Connection, run: i64, row: &Tier) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO tiers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            run,
            row.tier,
            row.instance,
            row.kind,
            row.host,
            row.address,
            row.pid,
            row.command,
            row.role.as_str(),
        ],
    )?;
    for period in &row.periods {
        tier_period(connection, run, row, period)?;
        tier_requests(connection, run, row, period)?;
        tier_backends(connection, run, row, period)?;
    }
    Ok(())
}

fn tier_period(
    connection: &Connection,
    run: i64,
    tier: &Tier,
    period: &TierPeriod,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO tier_periods VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
               ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)",
        )?
        .execute(params![
            run,
            period.extent.as_str(),
            tier.tier,
            tier.instance,
            int("from_ns", period.from_ns)?,
            int("to_ns", period.to_ns)?,
            period.workers,
            period.queue_length.mean,
            int("queue_length_maximum", period.queue_length.maximum)?,
            period.workers_busy.mean,
            int("workers_busy_maximum", period.workers_busy.maximum)?,
            period.connections.mean,
            int("connections_maximum", period.connections.maximum)?,
            int("bytes_in", period.bytes_in)?,
            int("bytes_out", period.bytes_out)?,
            int("cpu_user_ns", period.cpu_user_ns)?,
            int("cpu_system_ns", period.cpu_system_ns)?,
            json(&period.outcomes)?,
            json(&period.limits_hit)?,
            period.held_time.to_bytes(),
            period.spun_ns.map(|spun| int("spun_ns", spun)).transpose()?,
            json(&period.counted)?,
        ])?;
    Ok(())
}

fn tier_requests(
    connection: &Connection,
    run: i64,
    tier: &Tier,
    period: &TierPeriod,
) -> Result<(), StoreError> {
    let extent = period.extent.as_str();
    let from = int("from_ns", period.from_ns)?;
    let mut requests = connection
        .prepare_cached("INSERT INTO tier_requests VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    let mut stages = connection.prepare_cached(
        "INSERT INTO tier_stages VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for (request, row) in &period.requests {
        requests.execute(params![
            run,
            extent,
            tier.tier,
            tier.instance,
            from,
            request,
            int("arrivals", row.arrivals)?,
            int("completions", row.completions)?,
        ])?;
        for (stage, histogram) in &row.stages {
            stages.execute(params![
                run,
                extent,
                tier.tier,
                tier.instance,
                from,
                request,
                stage,
                int("count", histogram.count())?,
                histogram.mean(),
                histogram.to_bytes(),
            ])?;
        }
    }
    Ok(())
}

fn tier_backends(
    connection: &Connection,
    run: i64,
    tier: &Tier,
    period: &TierPeriod,
) -> Result<(), StoreError> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO tier_backends VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    for (number, backend) in (0_u32..).zip(&period.backends) {
        insert.execute(params![
            run,
            period.extent.as_str(),
            tier.tier,
            tier.instance,
            int("from_ns", period.from_ns)?,
            number,
            backend.address,
            int("requests", backend.requests)?,
            int("keys", backend.keys)?,
            int("errors", backend.errors)?,
            backend.backend_time.to_bytes(),
        ])?;
    }
    Ok(())
}

fn process(connection: &Connection, run: i64, row: &Process) -> Result<(), StoreError> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO process_samples
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?;
    let (role, name) = (row.part.role.as_str(), row.part.name.as_str());
    for sample in &row.samples {
        insert.execute(params![
            run,
            role,
            name,
            row.instance,
            row.host,
            row.pid,
            int("at_ns", sample.at_ns)?,
            int("cpu_user_ns", sample.cpu_user_ns)?,
            int("cpu_system_ns", sample.cpu_system_ns)?,
            int("run_queue_wait_ns", sample.run_queue_wait_ns)?,
            int("voluntary_switches", sample.voluntary_switches)?,
            int("involuntary_switches", sample.involuntary_switches)?,
            int("resident_bytes", sample.resident_bytes)?,
            int("threads", sample.threads)?,
            sample.waiting.as_ref().map(json).transpose()?,
        ])?;
    }
    let mut insert = connection
        .prepare_cached("INSERT INTO thread_samples VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
    for sample in &row.threads {
        insert.execute(params![
            run,
            role,
            name,
            row.instance,
            sample.name,
            int("at_ns", sample.at_ns)?,
            int("threads", sample.threads)?,
            int("cpu_ns", sample.cpu_ns)?,
            int("run_queue_wait_ns", sample.run_queue_wait_ns)?,
        ])?;
    }
    Ok(())
}

fn speed(connection: &Connection, run: i64, sample: &SpeedSample) -> Result<(), StoreError> {
    connection.prepare_cached("INSERT INTO speeds VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(
        params![run, sample.host, sample.core, int("at_ns", sample.at_ns)?, sample.unit_ns,],
    )?;
    Ok(())
}

fn host(connection: &Connection, run: i64, sample: &HostSample) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO host_samples VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            run,
            sample.host,
            int("at_ns", sample.at_ns)?,
            sample.cores,
            int("cpu_user_ns", sample.cpu_user_ns)?,
            int("cpu_system_ns", sample.cpu_system_ns)?,
            int("cpu_idle_ns", sample.cpu_idle_ns)?,
            int("cpu_steal_ns", sample.cpu_steal_ns)?,
            int("context_switches", sample.context_switches)?,
            int("network_in_bytes", sample.network_in_bytes)?,
            int("network_out_bytes", sample.network_out_bytes)?,
        ])?;
    Ok(())
}
