//! Jobs with an end: how long they took, and how many tasks a second that is.

use kendall_stats::estimate::Estimate;

use crate::document::{Cell, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Plot};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Observations};

use super::load::{curves, factor_columns, levels};
use super::{plotted, time_axis};

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    if !data.is_job() {
        return None;
    }
    let mut section = Section::new("jobs", "The job: makespan and throughput");
    section.text(
        "Each run is one job, from its start to its end: the makespan is the time between the two, and \
         the throughput the tasks that it completed over that time. All of a job is measured; \
         there is no warm-up to cut.",
    );
    section.list(shortest(data).into_iter().collect());
    if let Some(load) = &data.load {
        section.plot(makespans(data, &load.label));
    }
    section.table(table(data));
    Some(section)
}

fn makespan(configuration: &Configuration) -> Option<Estimate> {
    configuration.makespan_estimate()
}

fn shortest(data: &Observations) -> Option<String> {
    let each = data.configurations.iter().filter_map(|c| Some((c, makespan(c)?)));
    let (configuration, time) = each.min_by(|a, b| a.1.center.total_cmp(&b.1.center))?;
    let interval = time.interval.map_or_else(String::new, |i| {
        format!(
            " ({} interval {} to {})",
            number::percent(i.confidence),
            number::time(i.low.max(0.0)),
            number::time(i.high)
        )
    });
    let name = data.name_of(configuration);
    Some(format!("The shortest makespan is {}{interval}, with {name}.", number::time(time.center)))
}

fn makespans(data: &Observations, load: &str) -> Plot {
    let times = data.configurations.iter().filter_map(makespan).map(|time| time.center);
    let (label, factor) = time_axis("makespan", times);
    Plot {
        id: "plot-makespan".to_owned(),
        title: "Makespan against load".to_owned(),
        description: "From the start of the job to its end, mean over the runs.".to_owned(),
        x: Axis::from_zero(load),
        y: Axis::from_zero(label),
        series: curves(data, &plotted(data), |c| Some((makespan(c)?, factor))),
    }
}

fn table(data: &Observations) -> Table {
    let mut table = factor_columns(Table::new("jobs", "Jobs"), data)
        .column("runs", "Runs", Unit::Count)
        .column("tasks", "Tasks of a run", Unit::Level)
        .column("makespan_s", "Makespan (s)", Unit::Plain(4))
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond)
        .column("task_time_s", "A task (ms)", Unit::Milliseconds);
    for configuration in &data.configurations {
        let runs = kendall_units::exact_f64(configuration.repetitions.len());
        let tasks = kendall_units::exact_f64(configuration.counts().completed) / runs;
        let mut row = levels(data, configuration);
        row.extend([
            runs.into(),
            tasks.into(),
            Cell::estimate_or(makespan(configuration).as_ref(), "no run"),
            Cell::estimate_or(configuration.throughput_estimate().as_ref(), "no run"),
            Cell::estimate_or(configuration.response_estimate().as_ref(), "the load did not say"),
        ]);
        table.push(row);
    }
    table.folded_if_long()
}
