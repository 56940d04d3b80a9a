//! Requests by class: GET and PUT, found and not found, whatever the monitoring tells apart.

use kendall_fit::demands::LoadPoint;
use kendall_fit::open::{NOTABLE, regress_classes};
use kendall_stats::estimate::Estimate;
use kendall_stats::sample::mean;
use kendall_units::exact_f64;

use crate::analysis::Analysis;
use crate::fetch::{Observed, TierSeries};
use crate::quantity::Quantity;
use crate::system::System;
use crate::windows::{present, weighted_mean};

/// One class at one tier.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassFound {
    /// Its labels' values.
    pub name: String,
    /// Share of the tier's requests.
    pub share: f64,
    /// Mean over the windows that are used, 1/s.
    pub throughput_per_s: f64,
    /// Highest of a window, 1/s.
    pub highest_per_s: f64,
    /// Mean over its requests, s.
    pub response_time_s: Option<f64>,
    /// One a window.
    pub points: Vec<ClassPoint>,
}

/// One class in one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassPoint {
    /// Load of the system, 1/s.
    pub load_per_s: f64,
    /// X of the class, 1/s.
    pub throughput_per_s: f64,
    /// R of the class, s.
    pub response_time_s: Option<f64>,
}

/// Classes of one tier.
#[derive(Debug, Clone, PartialEq)]
pub struct Classes {
    /// The most frequent first.
    pub classes: Vec<ClassFound>,
    /// Time for which one request of each class keeps a server busy, s; or why it cannot be estimated.
    pub demands: Result<Vec<Estimate>, String>,
}

/// Classes of a tier, over the windows that are used; `None` where there are fewer than two.
pub fn classes(
    system: &System,
    observed: &Observed,
    analysis: &Analysis,
    tier: usize,
) -> Option<Classes> {
    let series = &observed.tiers[tier];
    let mut found: Vec<ClassFound> = Vec::new();
    // Throughputs by window, for the regression, in the order of `found`.
    let mut columns: Vec<Vec<Option<f64>>> = Vec::new();
    for (name, values) in series.parts(Quantity::Classes) {
        let times = series.split.get(&Quantity::ClassTimes).and_then(|all| all.get(name));
        let (class, column) = class(system, analysis, name, values, times)?;
        found.push(class);
        columns.push(column);
    }
    let all: f64 = found.iter().map(|class| class.throughput_per_s).sum();
    if found.len() < 2 || all <= 0.0 {
        return None;
    }
    for class in &mut found {
        class.share = class.throughput_per_s / all;
    }
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by(|a, b| found[*b].share.total_cmp(&found[*a].share));
    let notable: Vec<usize> =
        order.iter().copied().filter(|index| found[*index].share >= NOTABLE).collect();
    let chosen: Vec<&Vec<Option<f64>>> = notable.iter().map(|index| &columns[*index]).collect();
    let demands = demands(analysis, tier, &chosen);
    Some(Classes { classes: order.iter().map(|index| found[*index].clone()).collect(), demands })
}

fn class(
    system: &System,
    analysis: &Analysis,
    name: &str,
    values: &[f64],
    times: Option<&Vec<f64>>,
) -> Option<(ClassFound, Vec<Option<f64>>)> {
    let (mut points, mut column) = (Vec::new(), Vec::new());
    let (mut busy, mut weight) = (0.0, 0.0);
    for (index, window) in analysis.windows.all.iter().enumerate() {
        if window.left_out.is_some() {
            continue;
        }
        let steps = analysis.windows.steps_of(index);
        let throughput = present(values.get(steps.clone())?);
        column.push(throughput);
        let (Some(throughput), Some(load)) = (throughput, crate::analysis::rate(system, window))
        else {
            continue;
        };
        let time = times.and_then(|times| weighted_mean(times.get(steps.clone())?, &values[steps]));
        if let Some(time) = time {
            busy += time * throughput;
            weight += throughput;
        }
        points.push(ClassPoint {
            load_per_s: load,
            throughput_per_s: throughput,
            response_time_s: time,
        });
    }
    let rates: Vec<f64> = points.iter().map(|point: &ClassPoint| point.throughput_per_s).collect();
    let class = ClassFound {
        name: name.to_owned(),
        share: 0.0,
        throughput_per_s: if rates.is_empty() { 0.0 } else { mean(&rates) },
        highest_per_s: rates.iter().copied().fold(0.0, f64::max),
        response_time_s: (weight > 0.0).then(|| busy / weight),
        points,
    };
    Some((class, column))
}

/// Busy servers against the throughputs of all classes together.
fn demands(
    analysis: &Analysis,
    tier: usize,
    columns: &[&Vec<Option<f64>>],
) -> Result<Vec<Estimate>, String> {
    if let Some(found) = &analysis.tiers[tier].impossible {
        return Err(found.why.clone());
    }
    let servers = exact_f64(analysis.tiers[tier].servers);
    let points: Vec<LoadPoint> = analysis
        .windows
        .used()
        .enumerate()
        .filter_map(|(index, window)| {
            let utilization = (window.tiers[tier].busy? / servers).clamp(0.0, 1.0);
            let throughputs: Option<Vec<f64>> =
                columns.iter().map(|column| *column.get(index)?).collect();
            Some(LoadPoint { utilization, throughputs_per_s: throughputs? })
        })
        .collect();
    if points.is_empty() {
        return Err("no query gives how many of its servers are busy".to_owned());
    }
    let demands = regress_classes(&points, servers)?;
    Ok(demands.into_iter().map(|demand| demand.estimate).collect())
}

/// Mean time in each stage over all steps, s, longest first.
pub fn stages(series: &TierSeries) -> Vec<(String, f64)> {
    let mut found: Vec<(String, f64)> = series
        .parts(Quantity::Stages)
        .filter_map(|(name, values)| {
            // The stages' own rates are not known; the tier's throughput weighs them.
            let even = vec![1.0; values.len()];
            let rates = series.series.get(&Quantity::Throughput).map_or(&even, |rates| rates);
            Some((name.to_owned(), weighted_mean(values, rates)?))
        })
        .collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}
