//! What was run, on what, and in which order.

use kendall_store::Status;

use super::load::factor_columns;
use crate::document::{Cell, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::Observations;

use super::summary::{factor_names, utc_minutes};
use super::ways::Probe;

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
    let mut table = Table::new("factors", "Factors and their levels")
        .column("factor", "Factor", Unit::Text)
        .column("levels", "Levels", Unit::Text);
    for factor in &data.factors {
        let levels: Vec<&str> = factor.levels.iter().map(|level| level.text.as_str()).collect();
        table.push(vec![factor.key.as_str().into(), levels.join(", ").into()]);
    }
    table
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
    let mut table = Table::new("hosts", "Hosts of the first usable run, and what was placed there")
        .column("host", "Host", Unit::Text)
        .column("machine", "Machine", Unit::Text)
        .column("placed", "Placed there", Unit::Text)
        .column("cores", "Cores", Unit::Text)
        .column("clock_bound", "Clock known to within", Unit::Text)
        .column("drift", "Its drift, ppm", Unit::Text);
    for (name, host) in hosts {
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => "–".to_owned(),
            other => other.to_string(),
        };
        let clock = &host["clock"];
        let bound = clock["bound_ns"].as_f64();
        let bound =
            bound.map_or_else(|| "–".to_owned(), |ns| format!("±{}", number::time(ns / 1e9)));
        let drift = clock["drift_ppm"].as_f64().map_or_else(String::new, |ppm| format!("{ppm:.2}"));
        table.push(vec![
            name.as_str().into(),
            text(&host["machine"]).into(),
            placed(name).into(),
            text(&host["cores"]).into(),
            bound.into(),
            drift.into(),
        ]);
    }
    Some(table)
}

/// Round trips between hosts, as they were measured before the first usable run.
fn ways(data: &Observations) -> Option<Table> {
    let ways = super::ways::ways(data);
    if ways.is_empty() {
        return None;
    }
    let mut table = Table::new("ways", "Round trips between hosts, before the first usable run")
        .column("from", "From", Unit::Text)
        .column("to", "To", Unit::Text)
        .column("tier", "By connections to", Unit::Text)
        .column("least_s", "Least (ms)", Unit::Milliseconds)
        .column("median_s", "Median (ms)", Unit::Milliseconds)
        .column("probe_round_trip_s", "64 bytes and back (ms)", Unit::Milliseconds)
        .column("probe_bytes_per_s", "A stream (bytes/s)", Unit::Plain(3));
    for way in ways {
        let probed = |value: fn(&Probe) -> f64| match way.probe() {
            Ok(probe) => Cell::Number(value(&probe)),
            Err(why) => Cell::Empty(why.to_owned()),
        };
        table.push(vec![
            way.from.as_str().into(),
            way.to.as_str().into(),
            way.tier.as_str().into(),
            Cell::number_or(way.least_s, "not measured"),
            Cell::number_or(way.median_s, "not measured"),
            probed(|probe| probe.round_trip_p50_s),
            probed(|probe| probe.bytes_per_s),
        ]);
    }
    Some(table)
}

fn environment(data: &Observations) -> Table {
    let mut table = Table::new("environment", "Environment of the first run")
        .column("item", "Item", Unit::Text)
        .column("value", "Value", Unit::Text);
    if let Some(run) = data.runs.first() {
        let mut rows = Vec::new();
        flatten("", &run.environment, &mut rows);
        for (item, value) in rows {
            table.push(vec![item.into(), value.into()]);
        }
    }
    table
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
                None => {
                    blocks.push(Series { name, mark: Mark::Points, color, points: vec![point] })
                }
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
    let mut table = factor_columns(
        Table::new("runs", "All runs in the order of execution")
            .column("position", "Place", Unit::Count)
            .column("started", "Started", Unit::Text)
            .column("repetition", "Repetition", Unit::Count)
            .column("attempt", "Attempt", Unit::Count),
        data,
    )
    .column("status", "Status", Unit::Text)
    .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond)
    .column("response_time_mean_s", "Response time (ms)", Unit::Milliseconds)
    .folded();
    for run in &data.runs {
        let measured = data
            .configurations
            .iter()
            .flat_map(|c| &c.repetitions)
            .find(|repetition| repetition.run.id == run.id)
            .map(|repetition| repetition.point.client);
        let mut row: Vec<Cell> = vec![
            f64::from(run.position + 1).into(),
            utc_minutes(run.started_unix_ns).into(),
            f64::from(run.repetition + 1).into(),
            f64::from(run.attempt + 1).into(),
        ];
        row.extend(data.factors.iter().map(|factor| {
            Cell::Text(run.factor(&factor.key).map_or_else(String::new, |l| l.text.clone()))
        }));
        let status = match run.status {
            Status::Done => "done".to_owned(),
            other => format!("{}: {}", other.as_str(), run.reasons.join("; ")),
        };
        row.push(status.into());
        row.push(Cell::number_or(measured.map(|m| m.throughput_per_s), "not in the numbers"));
        row.push(Cell::number_or(measured.map(|m| m.response_time_s), "not in the numbers"));
        table.push(row);
    }
    table
}
