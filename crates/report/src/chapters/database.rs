//! Inside the database: how long its statements execute, apart from all waiting, how long it flushes its
//! log, and what shares a commit.

use kendall_observations::{Configuration, Counted, Observations, Repetition};
use kendall_protocols::snapshot::counted;

use crate::document::{Section, Table, Unit};
use crate::prepared::Prepared;
use kendall_stats::estimate::Estimate;

use super::load::{of_configurations, with_levels};
use super::load_of;
use crate::number;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let batches = names(data, counted::BATCH);
    let statements = names(data, counted::STATEMENT);
    if batches.is_empty() && statements.is_empty() {
        return None;
    }
    let mut section = Section::new("inside", "Inside the database");
    section.list(by_itself(data).into_iter().collect());
    if statements.is_empty() {
        section.text(
            "How long statements execute inside PostgreSQL is not known: its module \
             pg_stat_statements was not loaded, or it did not answer in time, which the caveats of \
             the runs say then. Where the module is installed, a study loads it by itself.",
        );
    } else {
        section.text(
            "By PostgreSQL's own account (pg_stat_statements): the time that statements execute \
             inside it. Locks, disk and the wait for a processor while they execute are in it. \
             What a tier waits for beyond it is the flush of a commit, which comes after the \
             execution, PostgreSQL's work around it, and the way there and back. Statements that no \
             request waits for (housekeeping, monitoring) are in no exchange; their execution is \
             the last column.",
        );
        section.table(exchanges(data));
        section.table(by_statement(data, &statements));
    }
    if !batches.is_empty() {
        section.table(by_lane(data, &batches));
    }
    Some(section)
}

/// What pgbench measured before the first run, beside an exchange of the lowest load.
fn by_itself(data: &Observations) -> Option<String> {
    let told = data.runs.first()?.environment.get("pgbench")?;
    if let Some(why) = told["missing"].as_str() {
        return Some(format!(
            "The database by itself was not measured before the first run: {why}."
        ));
    }
    let in_words = |run: &serde_json::Value| {
        let of = |key: &str| run[key].as_f64();
        let clients = usize::try_from(run["clients"].as_u64()?).ok()?;
        Some(format!(
            "{} by {} ({} a second)",
            number::time(of("latency_mean_s")?),
            number::count(clients, "client"),
            number::significant(of("transactions_per_s")?, 3)
        ))
    };
    let runs: Vec<String> = told["runs"].as_array()?.iter().filter_map(in_words).collect();
    if runs.is_empty() {
        return Some("The result of pgbench before the first run cannot be read.".to_owned());
    }
    let lowest = data
        .configurations
        .iter()
        .filter_map(|c| Some((c, c.point.first_tier()?.connections.as_ref()?.exchange_time_s)));
    let lowest = lowest.min_by(|a, b| load_of(data, a.0).total_cmp(&load_of(data, b.0)));
    let beside = lowest.map_or_else(String::new, |(configuration, time)| {
        format!(
            " An exchange of the queue at the lowest load ({}) took {}, which the models use as \
             the database's service time.",
            data.name_of(configuration),
            number::time(time)
        )
    });
    Some(format!(
        "Before the first run pgbench's usual transaction (seven statements, one commit) took {}: the same \
         PostgreSQL on the same disk, with no other load.{beside}",
        runs.join(", and "),
    ))
}

/// All of a kind, in the order in which they take the most time anywhere.
fn names(data: &Observations, kind: &str) -> Vec<String> {
    let mut names: Vec<(String, f64)> = Vec::new();
    let all = data.configurations.iter().flat_map(|c| &c.repetitions).flat_map(|r| &r.counted);
    for one in all.filter(|one| one.kind == kind) {
        let time = one.per_s * one.time_mean_s;
        match names.iter_mut().find(|(name, _)| *name == one.name) {
            Some((_, most)) => *most = most.max(time),
            None => names.push((one.name.clone(), time)),
        }
    }
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    names.into_iter().map(|(name, _)| name).collect()
}

fn find<'a>(repetition: &'a Repetition, kind: &str, name: &str) -> Option<&'a Counted> {
    repetition.counted.iter().find(|one| one.kind == kind && one.name == name)
}

/// A figure of one thing, over the repetitions.
fn of(
    configuration: &Configuration,
    (kind, name): (&str, &str),
    value: impl Fn(&Counted) -> f64,
) -> (Option<Estimate>, &'static str) {
    (configuration.estimate(|r| find(r, kind, name).map(&value)), "not known")
}

/// A mean of each of one thing, over all that there were.
fn each_of(
    configuration: &Configuration,
    (kind, name): (&str, &str),
    value: impl Fn(&Counted) -> f64,
) -> (Option<Estimate>, &'static str) {
    let estimate = configuration.weighted(|r| {
        let one = find(r, kind, name)?;
        Some((value(one), one.per_s * r.point.duration_s))
    });
    (estimate, "not known")
}

/// Time of all statements of a kind together, for each second.
fn executing(repetition: &Repetition, kind: &str) -> Option<f64> {
    let mut statements = repetition.counted.iter().filter(|one| one.kind == kind).peekable();
    statements.peek()?;
    Some(statements.map(|one| one.per_s * one.time_mean_s).sum())
}

/// An exchange with the database, and what of it is execution.
fn exchanges(data: &Observations) -> Table {
    let none = "not known";
    let exchange = |r: &Repetition| {
        let connections = r.point.first_tier()?.connections.as_ref()?;
        Some((connections.exchanges_per_s, connections.exchange_time_s))
    };
    // Times of an exchange, over all exchanges.
    let exchanges = |r: &Repetition| Some(exchange(r)?.0 * r.point.duration_s);
    let requests = |r: &Repetition| executing(r, counted::STATEMENT);
    let an_exchange = |r: &Repetition| Some(requests(r)? / exchange(r)?.0);
    let flush = (counted::LOG, "flush");
    let title = "An exchange with the database, and what it executes in it";
    of_configurations("inside", title, data)
        .column("exchanges_per_s", "Exchanges (1/s)", Unit::PerSecond, |c| {
            (c.estimate(|r| Some(exchange(r)?.0)), none)
        })
        .column("exchange_time_s", "Exchange (ms)", Unit::Milliseconds, |c| {
            (c.weighted(|r| Some((exchange(r)?.1, exchanges(r)?))), none)
        })
        .column("execution_time_s", "of it execution (ms)", Unit::Milliseconds, |c| {
            (c.weighted(|r| Some((an_exchange(r)?, exchanges(r)?))), none)
        })
        .column("other_time_s", "the rest (ms)", Unit::Milliseconds, |c| {
            // A value below 0 would be a contradiction, and is shown as it is.
            let rest = |r: &Repetition| Some((exchange(r)?.1 - an_exchange(r)?, exchanges(r)?));
            (c.weighted_difference(rest), none)
        })
        .column("execution_per_request_s", "Execution, a request (ms)", Unit::Milliseconds, |c| {
            let each = c.weighted(|r| {
                let throughput = r.point.first_tier()?.view.throughput_per_s;
                Some((requests(r)? / throughput, throughput * r.point.duration_s))
            });
            (each, none)
        })
        .column("flushes_per_s", "Flushes of the log (1/s)", Unit::PerSecond, |c| {
            of(c, flush, |one| one.per_s)
        })
        .column("flush_time_s", "A flush (ms)", Unit::Milliseconds, |c| {
            each_of(c, flush, |one| one.time_mean_s)
        })
        .column("statements_executing", "Statements executing", Unit::Plain(3), |c| {
            (c.estimate(requests), none)
        })
        .column("aside_executing", "Others executing", Unit::Plain(3), |c| {
            (c.estimate(|r| executing(r, counted::ASIDE)), none)
        })
        .table()
        .folded_if_long()
}

fn by_statement(data: &Observations, statements: &[String]) -> Table {
    let columns = [
        ("statement", "Statement"),
        ("calls_per_s", "Calls (1/s)"),
        ("rows_per_call", "Rows a call"),
        ("execution_time_s", "Execution, a call (ms)"),
    ];
    let what = ("statements", "Statements, by their time");
    rows_of(what, columns, data, (counted::STATEMENT, statements))
}

fn by_lane(data: &Observations, lanes: &[String]) -> Table {
    let columns = [
        ("lane", "Batches of"),
        ("batches_per_s", "Batches (1/s)"),
        ("operations_per_batch", "Operations a batch"),
        ("batch_time_s", "Exchange, a batch (ms)"),
    ];
    rows_of(("lanes", "Batches, by what they do"), columns, data, (counted::BATCH, lanes))
}

/// A row for each of these in each configuration that has it: how often, of how many items, how long.
fn rows_of(
    (id, title): (&str, &str),
    [name, per_s, items, time]: [(&str, &str); 4],
    data: &Observations,
    (kind, names): (&str, &[String]),
) -> Table {
    let has =
        |c: &Configuration, name: &str| c.repetitions.iter().any(|r| find(r, kind, name).is_some());
    let all =
        data.configurations.iter().flat_map(|c| names.iter().map(move |name| (c, name.as_str())));
    let rows = all.filter(|(c, name)| has(c, name));
    with_levels(id, title, data, rows, |(c, _)| c)
        .column(name.0, name.1, Unit::Text, |(_, name)| *name)
        .column(per_s.0, per_s.1, Unit::PerSecond, |(c, name)| of(c, (kind, name), |one| one.per_s))
        .column(items.0, items.1, Unit::Plain(3), |(c, name)| {
            each_of(c, (kind, name), |one| one.items_per_s / one.per_s)
        })
        .column(time.0, time.1, Unit::Milliseconds, |(c, name)| {
            each_of(c, (kind, name), |one| one.time_mean_s)
        })
        .table()
        .folded_if_long()
}
