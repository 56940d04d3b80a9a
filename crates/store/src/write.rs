//! Rows into the database. Callers hold the transaction.

use kendall_protocols::topology::Graph;
use rusqlite::{Connection, ToSql};

use crate::StoreError;
use crate::columns::{RequestRow, StageRow, Stored as _, insert, int};
use crate::rows::{
    Generator, Process, Run, RunId, RunRecord, SearchLine, StoredPrediction, Study, SummaryRow,
    Tier, TierPeriod,
};

/// Columns that tie a row to others.
type Keys<'a> = &'a [(&'static str, &'a dyn ToSql)];

pub(crate) fn study(connection: &Connection, study: &Study) -> Result<(), StoreError> {
    insert(connection, "study", &[("id", &1)], study)
}

pub(crate) fn searches(connection: &Connection, lines: &[SearchLine]) -> Result<(), StoreError> {
    connection.execute("DELETE FROM searches", [])?;
    lines.iter().try_for_each(|line| insert(connection, "searches", &[], line))
}

pub(crate) fn summary(connection: &Connection, rows: &[SummaryRow]) -> Result<(), StoreError> {
    connection.execute("DELETE FROM summary", [])?;
    rows.iter().try_for_each(|row| insert(connection, "summary", &[], row))
}

pub(crate) fn prediction(
    connection: &Connection,
    prediction: &StoredPrediction,
) -> Result<(), StoreError> {
    insert(connection, "predictions", &[], prediction)
}

pub(crate) fn record(connection: &Connection, record: &RunRecord) -> Result<RunId, StoreError> {
    let id = run(connection, &record.run)?;
    let of_run: Keys<'_> = &[("run", &id)];
    graph(connection, id, &record.graph)?;
    for generator in &record.generators {
        self::generator(connection, id, generator)?;
    }
    for tier in &record.tiers {
        insert(connection, "tiers", of_run, tier)?;
        for period in &tier.periods {
            tier_period(connection, id, tier, period)?;
        }
    }
    for process in &record.processes {
        self::process(connection, id, process)?;
    }
    for sample in &record.hosts {
        insert(connection, "host_samples", of_run, sample)?;
    }
    for sample in &record.speeds {
        insert(connection, "speeds", of_run, sample)?;
    }
    Ok(RunId(id))
}

fn run(connection: &Connection, run: &Run) -> Result<i64, StoreError> {
    let environment = environment(connection, run)?;
    insert(connection, "runs", &[("environment", &environment)], run)?;
    let id = connection.last_insert_rowid();
    for (ordinal, level) in (0_u32..).zip(&run.factors) {
        insert(connection, "run_factors", &[("run", &id), ("ordinal", &ordinal)], level)?;
    }
    Ok(id)
}

/// The key of the description of its environment, which runs of one session share.
fn environment(connection: &Connection, run: &Run) -> Result<i64, StoreError> {
    let mut description = Vec::new();
    run.environment.write("environment", &mut description)?;
    let query = "INSERT INTO environments (description) VALUES (?1) ON CONFLICT DO NOTHING";
    connection.execute(query, [&description[0]])?;
    let query = "SELECT id FROM environments WHERE description = ?1";
    Ok(connection.query_row(query, [&description[0]], |row| row.get(0))?)
}

fn graph(connection: &Connection, run: i64, graph: &Graph) -> Result<(), StoreError> {
    for (position, node) in (0_u32..).zip(&graph.tiers) {
        insert(connection, "graph_tiers", &[("run", &run), ("position", &position)], node)?;
        for (ordinal, pool) in (0_u32..).zip(&node.pools) {
            let tier = node.tier.as_str();
            let keys: Keys<'_> = &[("run", &run), ("tier", &tier), ("ordinal", &ordinal)];
            insert(connection, "graph_pools", keys, pool)?;
        }
    }
    for (ordinal, edge) in (0_u32..).zip(&graph.edges) {
        insert(connection, "graph_edges", &[("run", &run), ("ordinal", &ordinal)], edge)?;
    }
    Ok(())
}

fn generator(connection: &Connection, run: i64, row: &Generator) -> Result<(), StoreError> {
    insert(connection, "generators", &[("run", &run)], row)?;
    for (number, thread) in (0_u32..).zip(&row.threads) {
        let keys: Keys<'_> = &[("run", &run), ("generator", &row.generator), ("thread", &number)];
        insert(connection, "generator_threads", keys, thread)?;
    }
    for period in &row.operations {
        let times = &period.counts.response_time;
        let keys: Keys<'_> = &[
            ("run", &run),
            ("generator", &row.generator),
            ("answered", &int("answered", times.count())?),
            ("mean_ns", &times.mean()),
        ];
        insert(connection, "operations", keys, period)?;
    }
    Ok(())
}

fn tier_period(
    connection: &Connection,
    run: i64,
    tier: &Tier,
    period: &TierPeriod,
) -> Result<(), StoreError> {
    let of_tier: Keys<'_> = &[("run", &run), ("tier", &tier.tier), ("instance", &tier.instance)];
    insert(connection, "tier_periods", of_tier, period)?;
    let (extent, from) = (period.extent.as_str(), int("from_ns", period.from_ns)?);
    let of_period = [of_tier, &[("extent", &extent), ("from_ns", &from)]].concat();
    for (request, row) in &period.requests {
        let (arrivals, completions) = (row.arrivals, row.completions);
        let counts = RequestRow { request: request.clone(), arrivals, completions };
        insert(connection, "tier_requests", &of_period, &counts)?;
        for (stage, histogram) in &row.stages {
            let count = int("count", histogram.count())?;
            let beside: Keys<'_> = &[("count", &count), ("mean_ns", &histogram.mean())];
            let stage = StageRow {
                request: request.clone(),
                stage: stage.clone(),
                histogram: histogram.clone(),
            };
            insert(connection, "tier_stages", &[&of_period[..], beside].concat(), &stage)?;
        }
    }
    for (number, backend) in (0_u32..).zip(&period.backends) {
        let keys = [&of_period[..], &[("backend", &number)]].concat();
        insert(connection, "tier_backends", &keys, backend)?;
    }
    Ok(())
}

fn process(connection: &Connection, run: i64, row: &Process) -> Result<(), StoreError> {
    let (role, name) = (row.part.role.as_str(), &row.part.name);
    let of_instance: Keys<'_> =
        &[("run", &run), ("role", &role), ("name", name), ("instance", &row.instance)];
    let of_process = [of_instance, &[("host", &row.host), ("pid", &row.pid)]].concat();
    for sample in &row.samples {
        insert(connection, "process_samples", &of_process, sample)?;
    }
    for sample in &row.threads {
        insert(connection, "thread_samples", of_instance, sample)?;
    }
    Ok(())
}
