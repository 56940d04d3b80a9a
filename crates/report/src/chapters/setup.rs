//! What was run, on what, and in which order.

use kendall_store::{Run, Status};

use crate::document::{Cell, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{Observations, short};

use super::network_paths::{Probe, Way};
use super::summary::{factor_names, utc_minutes};

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let mut section = Section::new("setup", "What was run, and on what");
    section.text(sentence(data));
    section.table(factors(data));
    if let Some(hosts) = hosts(data) {
        section.table(hosts);
    }
    if let Some(ways) = ways(data) {
        section.table(ways);
    }
    section.table(environment(data));
    section.plot(order(data));
    section.table(runs(data));
    if !data.study.file.is_empty() {
        section.heading(format!("The study file, {}", data.study.file_name));
        section.blocks.push(crate::document::Block::Verbatim(data.study.file.clone()));
    }
    Some(section)
}

fn sentence(data: &Observations) -> String {
    let study = &data.study;
    let varied = match data.factors.len() {
        0 => "nothing was varied".to_owned(),
        n => format!("{} varied ({})", number::count(n, "factor"), factor_names(data)),
    };
    let design = match study.design.as_str() {
        "full" => "every combination of the factors' levels",
        "one-at-a-time" => "one factor at a time, the others at their first level",
        "2kr" => "a 2^k r design: every combination of two levels of each factor, repeated",
        "fractional" => "a fraction of a 2^k design",
        "adaptive" => {
            "an adaptive search: each load was chosen from what the runs before it showed"
        }
        other => other,
    };
    let window = data
        .configurations
        .first()
        .and_then(|c| c.repetitions.first()?.run.measured.as_ref())
        .map_or_else(String::new, |window| {
            format!(
                " The first configuration's measured window is {} long, cut by this rule: {}.",
                number::time(window.length_s()),
                window.rule
            )
        });
    let configurations = data.configurations.len();
    let order = if data.runs.len() > 1 && study.design != "adaptive" {
        format!(
            " Runs were made in a random order within blocks of one repetition, determined by the \
             seed {}, so that a drift of the machine is not mistaken for an effect of a factor.",
            study.seed
        )
    } else {
        String::new()
    };
    format!(
        "The design is {design}; {varied}. There {} {} with up to {} each.{order}{window}",
        if configurations == 1 { "is" } else { "are" },
        number::count(configurations, "configuration"),
        number::count(data.repetitions(), "usable repetition")
    )
}

fn factors(data: &Observations) -> Table {
    Table::of("factors", "Factors and their levels", &data.factors)
        .column("factor", "Factor", Unit::Text, |factor| factor.key.as_str())
        .column("levels", "Levels", Unit::Text, |factor| {
            let levels = factor.levels.iter().map(|level| level.text.as_str());
            levels.collect::<Vec<_>>().join(", ")
        })
        .table()
}

/// What ran where, and how well each host's clock is known; nothing where all ran on one machine.
fn hosts(data: &Observations) -> Option<Table> {
    let run = data.runs.iter().find(|run| run.is_usable()).or(data.runs.first())?;
    let hosts = run.environment.get("hosts")?.as_object()?;
    let place = run.settings.get("place").and_then(|place| place.as_object());
    let placed = |host: &str| {
        let here = |(_, hosts): &(&String, &serde_json::Value)| {
            hosts.as_array().is_some_and(|hosts| hosts.iter().any(|one| one == host))
        };
        let names = place.into_iter().flatten().filter(here).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "–".to_owned(),
        other => other.to_string(),
    };
    let table =
        Table::of("hosts", "Hosts of the first usable run, and what was placed there", hosts)
            .column("host", "Host", Unit::Text, |(name, _)| name.as_str())
            .column("machine", "Machine", Unit::Text, |(_, host)| text(&host["machine"]))
            .column("placed", "Placed there", Unit::Text, |(name, _)| placed(name))
            .column("cores", "Cores", Unit::Text, |(_, host)| text(&host["cores"]))
            .column("clock_bound", "Clock known to within", Unit::Text, |(_, host)| {
                let bound = host["clock"]["bound_ns"].as_f64();
                bound.map_or_else(|| "–".to_owned(), |ns| format!("±{}", number::time(ns / 1e9)))
            })
            .column("drift", "Its drift, ppm", Unit::Text, |(_, host)| {
                let drift = host["clock"]["drift_ppm"].as_f64();
                drift.map_or_else(String::new, |ppm| format!("{ppm:.2}"))
            });
    Some(table.table())
}

/// Round trips between hosts, as they were measured before the first usable run.
fn ways(data: &Observations) -> Option<Table> {
    let ways = super::network_paths::ways(data);
    if ways.is_empty() {
        return None;
    }
    let probed = |way: &Way, value: fn(&Probe) -> f64| match way.probe() {
        Ok(probe) => Cell::Number(value(&probe)),
        Err(why) => Cell::Empty(why.to_owned()),
    };
    let table = Table::of("ways", "Round trips between hosts, before the first usable run", ways)
        .column("from", "From", Unit::Text, |way| way.from.clone())
        .column("to", "To", Unit::Text, |way| way.to.clone())
        .column("tier", "By connections to", Unit::Text, |way| way.tier.clone())
        .column("least_s", "Least (ms)", Unit::Milliseconds, |way| (way.least_s, "not measured"))
        .column("median_s", "Median (ms)", Unit::Milliseconds, |way| (way.median_s, "not measured"))
        .column("probe_round_trip_s", "64 bytes and back (ms)", Unit::Milliseconds, |way| {
            probed(way, |probe| probe.round_trip_p50_s)
        })
        .column("probe_bytes_per_s", "A stream (bytes/s)", Unit::Plain(3), |way| {
            probed(way, |probe| probe.bytes_per_s)
        });
    Some(table.table())
}

fn environment(data: &Observations) -> Table {
    let mut rows = Vec::new();
    if let Some(run) = data.runs.first() {
        flatten("", &run.environment, &mut rows);
    }
    Table::of("environment", "Environment of the first run", rows)
        .column("item", "Item", Unit::Text, |(item, _)| item.clone())
        .column("value", "Value", Unit::Text, |(_, value)| value.clone())
        .table()
}

/// Leaves of a JSON value with their dotted paths.
pub(super) fn flatten(path: &str, value: &serde_json::Value, rows: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(members) => {
            for (key, member) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, member, rows);
            }
        }
        serde_json::Value::Null => {}
        serde_json::Value::String(text) => rows.push((path.to_owned(), text.clone())),
        other => rows.push((path.to_owned(), other.to_string())),
    }
}

/// Throughput relative to its configuration's mean, in the order of execution: drift shows.
fn order(data: &Observations) -> Plot {
    let mut blocks: Vec<Series> = Vec::new();
    for configuration in data.configurations.iter().filter(|c| c.repetitions.len() > 1) {
        for repetition in &configuration.repetitions {
            let block = repetition.run.repetition;
            let mean = configuration.throughput();
            if mean <= 0.0 {
                continue;
            }
            let name = format!("repetition {}", block + 1);
            let color = usize::try_from(block).unwrap_or(0);
            let point = Point::new(
                f64::from(repetition.run.position + 1),
                100.0 * (repetition.point.client.throughput_per_s / mean - 1.0),
            );
            match blocks.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => blocks.push(Series::new(name, Mark::Points, color, [point])),
            }
        }
    }
    blocks.sort_by_key(|series| series.color);
    for series in &mut blocks {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    Plot {
        id: "plot-run-order".to_owned(),
        title: "Run order".to_owned(),
        description: "Each run's throughput against the mean of its configuration, in the order \
                      of execution. A trend or a jump would mean that the machine changed."
            .to_owned(),
        x: Axis::around_data("place in the order of execution"),
        y: Axis::around_data("difference from the configuration's mean (%)"),
        series: blocks,
    }
}

fn runs(data: &Observations) -> Table {
    let measured = |run: &&Run| {
        let mut all = data.configurations.iter().flat_map(|c| &c.repetitions);
        all.find(|repetition| repetition.run.id == run.id).map(|one| one.point.client)
    };
    let rows = Table::of("runs", "All runs in the order of execution", &data.runs)
        .column("position", "Place", Unit::Count, |run| f64::from(run.position + 1))
        .column("started", "Started", Unit::Text, |run| utc_minutes(run.started_unix_ns))
        .column("repetition", "Repetition", Unit::Count, |run| f64::from(run.repetition + 1))
        .column("attempt", "Attempt", Unit::Count, |run| f64::from(run.attempt + 1));
    let rows = data.factors.iter().fold(rows, |rows, factor| {
        rows.column(factor.key.as_str(), short(&factor.key), Unit::Text, |run| {
            run.factor(&factor.key).map_or_else(String::new, |level| level.text.clone())
        })
    });
    let none = "not in the numbers";
    rows.column("status", "Status", Unit::Text, |run| match run.status {
        Status::Done => "done".to_owned(),
        other => format!("{}: {}", other.as_str(), run.reasons.join("; ")),
    })
    .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |run| {
        (measured(run).map(|m| m.throughput_per_s), none)
    })
    .column("response_time_mean_s", "Response time (ms)", Unit::Milliseconds, |run| {
        (measured(run).map(|m| m.response_time_s), none)
    })
    .table()
    .folded()
}
