//! What Kendall itself noticed that could make the numbers wrong.

use std::collections::BTreeMap;

use kendall_stats::estimate::Caveat;
use kendall_store::{FactorLevel, Status};

use crate::document::{Level, Section, Table, Unit};
use crate::number;
use crate::prepared::Prepared;
use kendall_observations::{Observations, Repetition};

use super::summary::utc_minutes;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let mut section = Section::new("threats", "Threats to validity");
    rejected(&mut section, data);
    let noticed = noticed(data);
    if noticed.is_empty() {
        section.note(Level::Good, "No usable run carries a caveat.");
    } else {
        section.text("Caveats of usable runs, and the number of runs that carry each:");
        section.table(table(&noticed));
    }
    generator(&mut section, data);
    environments(&mut section, data);
    standing(&mut section, data);
    Some(section)
}

fn rejected(section: &mut Section, data: &Observations) {
    let level = |l: &FactorLevel| format!("{} {}", kendall_observations::short(&l.factor), l.text);
    let table = Table::of("unusable-runs", "Runs that are left out", data.unusable())
        .column("position", "Place", Unit::Count, |run| f64::from(run.position + 1))
        .column("started", "Started", Unit::Text, |run| utc_minutes(run.started_unix_ns))
        .column("levels", "Levels", Unit::Text, |run| {
            run.factors.iter().map(level).collect::<Vec<_>>().join(", ")
        })
        .column("status", "Status", Unit::Text, |run| run.status.as_str())
        .column("reasons", "Why", Unit::Text, |run| run.reasons.join("; "))
        .table();
    let of = |status| data.runs.iter().filter(|run| run.status == status).count();
    let (failed, rejected) = (of(Status::Failed), of(Status::Rejected));
    if failed + rejected > 0 {
        section.note(
            Level::Doubt,
            format!(
                "{} failed and {rejected} were rejected. They are stored with their reasons and \
                 left out of every number; if they share a load or a level, the remaining runs are \
                 not a fair sample.",
                number::count(failed, "run")
            ),
        );
    } else {
        section.note(
            Level::Good,
            format!(
                "None of the {} failed or was rejected.",
                number::count(data.runs.len(), "run")
            ),
        );
    }
    section.table(table);
}

/// The first caveat of each kind, and the number of runs that have one of that kind.
fn noticed(data: &Observations) -> Vec<(String, u64)> {
    let runs = data.configurations.iter().flat_map(|c| &c.repetitions);
    let kinds = Caveat::by_kind(runs.map(|repetition| repetition.run.caveats.as_slice()));
    let mut noticed: Vec<(String, u64)> =
        kinds.into_iter().map(|(caveat, runs)| (caveat.to_string(), runs)).collect();
    noticed.sort_by_key(|(_, runs)| std::cmp::Reverse(*runs));
    noticed
}

fn table(noticed: &[(String, u64)]) -> Table {
    Table::of("caveats", "Caveats, the first of each kind with its figures", noticed)
        .column("caveat", "Caveat", Unit::Text, |(caveat, _)| caveat.as_str())
        .column("runs", "Runs", Unit::Count, |(_, runs)| kendall_units::exact_f64(*runs))
        .table()
}

fn generator(section: &mut Section, data: &Observations) {
    let worst = |value: fn(&Repetition) -> Option<f64>| {
        data.configurations
            .iter()
            .flat_map(|c| &c.repetitions)
            .filter_map(value)
            .max_by(f64::total_cmp)
    };
    let mut facts = Vec::new();
    if let Some(busy) = worst(|repetition| repetition.generator_busy) {
        facts.push(format!("its busiest thread used {} of a core", number::percent(busy)));
    }
    // In a closed loop a request is due whenever its client is free to send it.
    if let Some(late) = worst(|run| run.point.arrival_rate_per_s.and(run.lateness_p99_s)) {
        facts.push(format!(
            "99 % of requests were sent within {} of the moment when they were due",
            number::time(late)
        ));
    }
    if !facts.is_empty() {
        section.text(format!("The load generator at its worst run: {}.", facts.join("; ")));
    }
}

/// A study that went on elsewhere, or after an update, compares what it should not.
fn environments(section: &mut Section, data: &Observations) {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for run in &data.runs {
        let mut rows = Vec::new();
        super::setup::flatten("", &run.stated_environment(), &mut rows);
        for (item, value) in rows {
            let values = seen.entry(item).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    let changed: Vec<String> = seen
        .into_iter()
        .filter(|(_, values)| values.len() > 1)
        .map(|(item, values)| format!("{item} ({})", values.join(", then ")))
        .collect();
    if !changed.is_empty() {
        section.note(
            Level::Doubt,
            format!(
                "The environment changed during the study: {}. Runs from before and after the \
                 change are compared as if it had not changed.",
                changed.join("; ")
            ),
        );
    }
}

/// What no check can see.
fn standing(section: &mut Section, data: &Observations) {
    let mut items = Vec::new();
    let hosts: Vec<f64> = data.configurations.iter().map(|c| c.point.host_cores).collect();
    if let Some(cores) = hosts.iter().copied().find(|cores| *cores > 0.0) {
        items.push(format!(
            "Load generators and tiers shared one machine with {}: they disturb one another, most \
             of all where the processor is busy. The network is the loopback device, with the \
             delays that the study states.",
            number::count(usize::try_from(kendall_units::whole_u64(cores)).unwrap_or(0), "core")
        ));
    }
    if data.repetitions() < 5 {
        items.push(format!(
            "With {} the t interval rests on few numbers: it is right on average, but each single \
             one is uncertain.",
            number::count(data.repetitions(), "repetition")
        ));
    }
    items.push(
        "Percentiles are taken over all requests of the measured windows; requests that follow \
         one another are not independent, so their uncertainty is better judged from the spread \
         over repetitions than from their number."
            .to_owned(),
    );
    section.heading("What no check can see");
    section.list(items);
}
