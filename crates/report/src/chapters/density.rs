//! Response times over time as a heat map: what a mean and a percentile hide, such as two kinds of
//! requests, or a stall.

use std::collections::BTreeMap;

use kendall_observations::Observations;
use kendall_units::exact_f64;

use crate::plot::heat::{counts, shade};
use crate::plot::{Axis, Mark, Plot, Point, Series};

use super::{time_axis, trace};

/// Bins of a factor of ten.
const BINS_A_DECADE: f64 = 6.0;

/// The first run of highest throughput.
pub(super) fn of_first_run(data: &Observations) -> Plot {
    let periods = data.traces.first().map_or(&[][..], |trace| trace.periods.as_slice());
    let width = data.traces.first().map_or(1, |trace| trace.width_s);
    let half = exact_f64(width) / if trace::minutes(data) { 120.0 } else { 2.0 };
    let longest = periods.iter().filter_map(|period| period.times.max());
    let (label, factor) = time_axis("response time", longest.map(|ns| exact_f64(ns) / 1e9));
    // By period and bin: how many.
    let mut cells: BTreeMap<(usize, i32), u64> = BTreeMap::new();
    for (number, period) in periods.iter().enumerate() {
        for (low_ns, high_ns, count) in period.times.cells() {
            let middle = (exact_f64(low_ns) + exact_f64(high_ns)) / 2.0;
            *cells.entry((number, bin(middle / 1e9))).or_default() += count;
        }
    }
    let largest = cells.values().copied().max().unwrap_or(0);
    let series = (1..=5).filter_map(|wanted| {
        let (least, most) = counts(wanted, largest)?;
        let points = cells.iter().filter(|(_, count)| shade(**count, largest) == wanted);
        let points = points.map(|((number, bin), _)| {
            let (low, high) = (edge(*bin) * factor, edge(bin + 1) * factor);
            let x = trace::at(data, &periods[*number]) + half;
            Point { x, y: (low * high).sqrt(), interval: Some((low, high)) }
        });
        let name = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let points: Vec<Point> = points.collect();
        let name = format!("{name} requests");
        (!points.is_empty()).then_some(Series { name, mark: Mark::Cells(wanted), color: 0, points })
    });
    Plot {
        id: "plot-density".to_owned(),
        title: "Density of the response time over time".to_owned(),
        description:
            "How many requests of a period took how long: the darker, the more. The first \
                      run of highest throughput; bins of response time are logarithmic, six a \
                      factor of ten."
                .to_owned(),
        x: trace::time(data),
        y: Axis::log(label),
        series: series.collect(),
    }
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
