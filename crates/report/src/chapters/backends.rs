//! How the load spreads over the backends.

use std::collections::BTreeMap;

use crate::document::{Level, Section, Table, Unit};
use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;
use kendall_observations::{BackendLoad, Configuration, Observations};
use kendall_units::exact_f64;

use super::load::with_levels;

/// Backends of which each is drawn.
const MOST_BACKENDS: usize = 8;

/// Configurations that are named on an axis.
const MOST_NAMED: usize = 8;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let fastest = data.fastest()?;
    if loads(fastest).is_empty() {
        return None;
    }
    let mut section = Section::new("backends", "Load of each backend");
    let (worst, name) = data
        .configurations
        .iter()
        .filter_map(|c| Some((imbalance(&loads(c))?, data.name_of(c))))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    /// Below it, the spread is what counting to a few thousand gives anyway.
    const EVEN: f64 = 0.02;
    if worst <= EVEN {
        section.note(
            Level::Good,
            format!(
                "The load is even: no backend's share of the requests differs from the mean by \
                 more than {} in any configuration.",
                number::percent(worst)
            ),
        );
    } else {
        section.note(
            Level::Doubt,
            format!(
                "The load is uneven: at worst ({name}) a backend's share of the requests differs \
                 from the mean by {}.",
                number::percent(worst)
            ),
        );
    }
    section.plot(plot(data, fastest));
    if let Some(all) = everywhere(data) {
        section.plot(all);
    }
    section.table(table(data));
    Some(section)
}

/// Sums over the repetitions by backend and instance.
fn loads(configuration: &Configuration) -> BTreeMap<(usize, u32), BackendLoad> {
    let mut sums: BTreeMap<(usize, u32), BackendLoad> = BTreeMap::new();
    for load in configuration.repetitions.iter().flat_map(|r| &r.backends) {
        match sums.get_mut(&(load.backend, load.instance)) {
            Some(sum) => {
                let mean = |load: &BackendLoad| load.backend_time_mean_s.unwrap_or(0.0);
                let all = exact_f64(sum.requests + load.requests).max(1.0);
                let weighted =
                    mean(sum) * exact_f64(sum.requests) + mean(load) * exact_f64(load.requests);
                sum.backend_time_mean_s = Some(weighted / all);
                sum.requests += load.requests;
                sum.keys += load.keys;
                sum.errors += load.errors;
            }
            None => {
                sums.insert((load.backend, load.instance), load.clone());
            }
        }
    }
    sums
}

/// Requests by backend, over all instances.
fn by_backend(loads: &BTreeMap<(usize, u32), BackendLoad>) -> BTreeMap<usize, f64> {
    let mut sums = BTreeMap::new();
    for ((backend, _), load) in loads {
        *sums.entry(*backend).or_insert(0.0) += exact_f64(load.requests);
    }
    sums
}

/// Largest relative distance of a backend's requests from the mean.
fn imbalance(loads: &BTreeMap<(usize, u32), BackendLoad>) -> Option<f64> {
    let sums = by_backend(loads);
    let mean = sums.values().sum::<f64>() / exact_f64(sums.len().max(1));
    (mean > 0.0).then(|| sums.values().map(|sum| (sum / mean - 1.0).abs()).fold(0.0, f64::max))
}

fn plot(data: &Observations, configuration: &Configuration) -> Plot {
    let loads = loads(configuration);
    let total: f64 = by_backend(&loads).values().sum();
    let mut instances: BTreeMap<u32, Vec<Point>> = BTreeMap::new();
    let mut backends = 0;
    for ((backend, instance), load) in &loads {
        backends = backends.max(*backend + 1);
        let share = 100.0 * exact_f64(load.requests) / total.max(1.0);
        let place = exact_f64(*backend);
        instances.entry(*instance).or_default().push(Point::new(place, share));
    }
    let series = instances.into_iter().map(|(instance, points)| {
        let color = usize::try_from(instance).unwrap_or(0);
        Series::new(format!("from instance {}", instance + 1), Mark::Bars, color, points)
    });
    Plot {
        id: "plot-backends".to_owned(),
        title: "Requests to each backend".to_owned(),
        description: format!(
            "Share of all requests that went to each backend, at the highest throughput ({}).",
            data.name_of(configuration)
        ),
        x: Axis::categories(
            "backend",
            (1..=backends).map(|backend| format!("backend {backend}")).collect(),
        ),
        y: Axis::from_zero("share of requests (%)"),
        series: series.collect(),
    }
}

/// The share of each backend at every configuration; `None` where there is one configuration, or so many backends
/// that none is seen.
fn everywhere(data: &Observations) -> Option<Plot> {
    let all: Vec<BTreeMap<usize, f64>> =
        data.configurations.iter().map(|one| by_backend(&loads(one))).collect();
    let backends = all.iter().filter_map(|of| of.keys().last()).max().map_or(0, |last| last + 1);
    if all.len() < 2 || backends > MOST_BACKENDS {
        return None;
    }
    let series = (0..backends).map(|backend| {
        let points = all.iter().enumerate().filter_map(|(at, sums)| {
            let total: f64 = sums.values().sum();
            let share = sums.get(&backend).copied().unwrap_or(0.0) / total;
            (total > 0.0).then(|| Point::new(exact_f64(at), 100.0 * share))
        });
        Series::new(format!("backend {}", backend + 1), Mark::Points, backend, points)
    });
    let named = all.len() <= MOST_NAMED;
    let x = if named {
        let names = data.configurations.iter().map(|one| data.name_of(one)).collect();
        Axis::categories("configuration", names)
    } else {
        Axis::from_zero("configuration, in the order of the table")
    };
    Some(Plot {
        id: "plot-backends-everywhere".to_owned(),
        title: "Requests to each backend, at every configuration".to_owned(),
        description:
            "Share of all requests of a configuration; an even division lies on one level."
                .to_owned(),
        x,
        y: Axis::from_zero("share of requests (%)"),
        series: series.collect(),
    })
}

fn table(data: &Observations) -> Table {
    let rows = data.configurations.iter().flat_map(|c| {
        let loads = loads(c);
        let total: f64 = by_backend(&loads).values().sum();
        loads.into_values().map(move |load| (c, load, total.max(1.0)))
    });
    let title = "Requests and keys sent to each backend";
    with_levels("backends", title, data, rows, |(c, ..)| c)
        .column("instance", "Instance", Unit::Count, |(_, load, _)| f64::from(load.instance + 1))
        .column("backend", "Backend", Unit::Count, |(_, load, _)| exact_f64(load.backend + 1))
        .column("requests", "Requests", Unit::Count, |(_, load, _)| exact_f64(load.requests))
        .column("keys", "Keys", Unit::Count, |(_, load, _)| exact_f64(load.keys))
        .column("share", "Share (%)", Unit::Percent, |(_, load, all)| {
            exact_f64(load.requests) / all
        })
        .column("errors", "Errors", Unit::Count, |(_, load, _)| exact_f64(load.errors))
        .column("backend_time_mean_s", "Mean answer (ms)", Unit::Milliseconds, |(_, load, _)| {
            (load.backend_time_mean_s, "no request")
        })
        .table()
        .folded()
}
