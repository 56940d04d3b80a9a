//! Jobs with an end: how long they took, and how many tasks a second that is.

use kendall_stats::estimate::Estimate;

use crate::document::{Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Plot};
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Observations};

use super::load::{curves, of_configurations};
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
    let interval = number::in_interval(time.interval, |time| number::time(time.max(0.0)));
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
    let runs = |c: &Configuration| kendall_units::exact_f64(c.repetitions.len());
    of_configurations("jobs", "Jobs", data)
        .column("runs", "Runs", Unit::Count, |c| runs(c))
        .column("tasks", "Tasks of a run", Unit::Level, |c| {
            kendall_units::exact_f64(c.counts().completed) / runs(c)
        })
        .column("makespan_s", "Makespan (s)", Unit::Plain(4), |c| (makespan(c), "no run"))
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond, |c| {
            (c.throughput_estimate(), "no run")
        })
        .column("task_time_s", "A task (ms)", Unit::Milliseconds, |c| {
            (c.response_estimate(), "the load reported none")
        })
        .table()
        .folded_if_long()
}
