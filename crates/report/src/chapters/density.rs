//! Response times over time as a heat map: what a mean and a percentile hide, such as two kinds of
//! requests, or a stall.

use std::collections::BTreeMap;

use kendall_observations::Observations;
use kendall_protocols::snapshot::stage::WAITING_TIME;
use kendall_stats::histogram::Histogram;
use kendall_units::exact_f64;

use crate::plot::{Axis, Cell, Plot, Series, density};

use super::time_axis;

/// Bins of a factor of ten.
const BINS_A_DECADE: f64 = 6.0;

/// How much is in each cell, by its place along time and its bin.
type Cells = BTreeMap<(u64, i32), u64>;

/// Response times of the first run of highest throughput.
pub(super) fn of_first_run(data: &Observations) -> Plot {
    let periods = data.traces.first().map_or(&[][..], |trace| trace.periods.as_slice());
    let longest = periods.iter().filter_map(|period| period.times.max());
    let (label, factor) = time_axis("response time", longest.map(|ns| exact_f64(ns) / 1e9));
    let mut cells = Cells::new();
    for period in periods {
        add(&mut cells, kendall_units::whole_u64(period.clients.from_s), &period.times);
    }
    Plot {
        id: "plot-density".to_owned(),
        title: "Density of the response time over time".to_owned(),
        description:
            "How many requests of a period took how long: the darker, the more. The first \
                      run of highest throughput; bins of response time are logarithmic, six a \
                      factor of ten."
                .to_owned(),
        x: time(data),
        y: Axis::log(label),
        series: series(data, &cells, "requests", |bin| {
            (edge(bin) * factor, edge(bin + 1) * factor)
        }),
    }
}

/// Times in each stage that a tier names, of the same run: of the tier furthest back that names it.
pub(super) fn of_stages(data: &Observations) -> Vec<Plot> {
    let Some(trace) = data.traces.first() else { return Vec::new() };
    // Waiting time is for the workers of its own tier; other stages are reported by the tier that asked
    // for them as well, and are those of the tier furthest back.
    let mut found: BTreeMap<(String, Option<&str>), (usize, &str, Cells)> = BTreeMap::new();
    for (from_s, tiers) in &trace.pools {
        for (tier, pool) in tiers {
            for (stage, times) in &pool.stages {
                let of = (stage == WAITING_TIME).then_some(tier.as_str());
                let known = found
                    .entry((stage.clone(), of))
                    .or_insert_with(|| (pool.depth, tier.as_str(), Cells::new()));
                if pool.depth > known.0 {
                    *known = (pool.depth, tier.as_str(), Cells::new());
                }
                if known.1 == tier {
                    add(&mut known.2, *from_s, times);
                }
            }
        }
    }
    let plots = found.into_iter().filter(|(_, (_, _, cells))| !cells.is_empty());
    let plots = plots.map(|((stage, _), (_, tier, cells))| {
        let longest = cells.keys().map(|(_, bin)| edge(bin + 1));
        let name = stage.replace('_', " ");
        let (label, factor) = time_axis(&name, longest);
        Plot {
            id: format!("plot-density-{tier}-{stage}"),
            title: format!("Density over time: {name}, {tier}"),
            description: format!(
                "How many requests of a period spent how long in the stage `{stage}` of {tier}: the \
                 darker, the more. The same run and bins."
            ),
            x: time(data),
            y: Axis::log(label),
            series: series(data, &cells, "requests", |bin| {
                (edge(bin) * factor, edge(bin + 1) * factor)
            }),
        }
    });
    plots.collect()
}

/// Busy workers of each tier that has a pool of them, of the same run.
pub(super) fn of_busy_workers(data: &Observations) -> Vec<Plot> {
    let Some(trace) = data.traces.first() else { return Vec::new() };
    let mut found: BTreeMap<&str, Cells> = BTreeMap::new();
    for (from_s, tiers) in &trace.pools {
        for (tier, pool) in tiers {
            for (busy, ns) in &pool.busy {
                let bin = i32::try_from(*busy).unwrap_or(i32::MAX - 1);
                // Whole seconds, and at least one: what is there is shown.
                let seconds = ((ns + 500_000_000) / 1_000_000_000).max(1);
                *found.entry(tier.as_str()).or_default().entry((*from_s, bin)).or_default() +=
                    seconds;
            }
        }
    }
    let plots = found.into_iter().map(|(tier, cells)| Plot {
        id: format!("plot-busy-{tier}"),
        title: format!("Busy workers over time: {tier}"),
        description: format!(
            "For how many seconds of a period so many workers of an instance of {tier} were busy, in \
             the mean of a second: the darker, the longer. The same run."
        ),
        x: time(data),
        y: Axis::from_zero("busy workers of an instance"),
        series: series(data, &cells, "s", |bin| {
            ((f64::from(bin) - 0.5).max(0.0), f64::from(bin) + 0.5)
        }),
    });
    plots.collect()
}

fn add(cells: &mut Cells, from_s: u64, times: &Histogram) {
    for (low_ns, high_ns, count) in times.cells() {
        let middle = (exact_f64(low_ns) + exact_f64(high_ns)) / 2.0;
        *cells.entry((from_s, bin(middle / 1e9))).or_default() += count;
    }
}

/// A series for each shade that occurs.
fn series(
    data: &Observations,
    cells: &Cells,
    unit: &str,
    ends: impl Fn(i32) -> (f64, f64),
) -> Vec<Series> {
    let width = data.traces.first().map_or(1, |trace| trace.width_s);
    let scale = seconds_a_unit(data);
    let place = |((from_s, bin), count): (&(u64, i32), &u64)| Cell {
        at: (exact_f64(*from_s) + exact_f64(width) / 2.0) / scale,
        ends: ends(*bin),
        count: *count,
    };
    let cells: Vec<Cell> = cells.iter().map(place).collect();
    density(&cells, unit)
}

/// The bin of a time in seconds.
#[expect(clippy::cast_possible_truncation, reason = "within a few hundred, whatever the time")]
fn bin(seconds: f64) -> i32 {
    (seconds.max(1e-9).log10() * BINS_A_DECADE).floor() as i32
}

/// The lower edge of a bin, in seconds.
fn edge(bin: i32) -> f64 {
    10_f64.powf(f64::from(bin) / BINS_A_DECADE)
}

/// The label of an axis of time, and how many seconds its unit has: minutes where the runs are long.
pub(super) fn unit(width_s: u64) -> (&'static str, f64) {
    if width_s >= 30 { ("time (min)", 60.0) } else { ("time (s)", 1.0) }
}

/// The unit of the runs that are traced.
fn of_traces(data: &Observations) -> (&'static str, f64) {
    unit(data.traces.iter().map(|trace| trace.width_s).max().unwrap_or(1))
}

/// Seconds of a unit on the axis of [`time`].
pub(super) fn seconds_a_unit(data: &Observations) -> f64 {
    of_traces(data).1
}

pub(super) fn time(data: &Observations) -> Axis {
    Axis::from_zero(of_traces(data).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_within_its_bin() {
        for seconds in [1e-9, 3.2e-5, 0.01, 0.99, 4.0, 1_000.0] {
            let bin = bin(seconds);
            assert!(edge(bin) <= seconds * 1.000_001 && seconds < edge(bin + 1), "{seconds}");
        }
    }
}
