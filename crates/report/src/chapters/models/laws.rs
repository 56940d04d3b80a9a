//! Distributions that M/M/1 and M/M/m say, beside those that were measured: of the response time, of the
//! waiting time, and of the number at the station.

use kendall_fit::score::{Comparison, Variable};
use kendall_observations::{Configuration, Curve, Distribution, Observations, STEP_NS};
use kendall_queueing::station::{StationSolution, TimeLaw};
use kendall_units::exact_f64;

use crate::number;
use crate::plot::{Axis, Mark, Plot, Point, Series};

use super::super::time_axis;

/// Points of a drawn distribution.
const POINTS: u32 = 80;
const MOST_STATES: u64 = 60;

/// A model with what it says at one load.
struct At<'a> {
    model: &'a str,
    solution: &'a StationSolution,
}

/// Drawings of one curve, at the highest load for which a model of the first tier has an answer.
pub(super) fn plots(data: &Observations, curve: &Curve, comparisons: &[Comparison]) -> Vec<Plot> {
    let of_tier =
        |one: &&Comparison| !one.solutions.is_empty() && one.variable == Variable::TierResponseTime;
    let models: Vec<&Comparison> = comparisons.iter().filter(of_tier).collect();
    let answered = |place: usize| {
        let found = models.iter().filter_map(|one| {
            let solution = one.solutions.get(place)?.as_ref()?;
            Some(At { model: &one.model, solution })
        });
        found.collect::<Vec<_>>()
    };
    let along: Vec<&Configuration> = data.along(curve).collect();
    let Some(place) = (0..along.len()).rev().find(|place| !answered(*place).is_empty()) else {
        return Vec::new();
    };
    let (configuration, models) = (along[place], answered(place));
    let load = number::plain(data.load_of(configuration));
    let of = format!("{}, load {load}", curve.name);
    let key = curve.configurations[0];
    [
        times(
            (format!("plot-cdf-r-{key}"), format!("Distribution of the response time: {of}")),
            configuration.tier.as_ref(),
            &models,
            |solution| solution.response_law.as_ref(),
        ),
        times(
            (format!("plot-cdf-w-{key}"), format!("Distribution of the waiting time: {of}")),
            configuration.waiting.as_ref(),
            &models,
            |solution| solution.waiting_law.as_ref(),
        ),
        states((format!("plot-states-{key}"), format!("Number at the station: {of}")), &models),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Shares of requests that took no longer than a time.
fn times(
    (id, title): (String, String),
    measured: Option<&Distribution>,
    models: &[At<'_>],
    law: fn(&StationSolution) -> Option<&TimeLaw>,
) -> Option<Plot> {
    let laws = || models.iter().filter_map(|at| Some((at.model, law(at.solution)?)));
    let quantiles = laws().filter_map(|(_, law)| law.quantile(0.99));
    let p99 = measured.and_then(|times| times.percentiles_s.last().copied());
    // A model that runs away must not flatten what was measured.
    let far = p99.unwrap_or(f64::INFINITY) * 2.5;
    let end =
        quantiles.map(|t| t.min(far)).chain(p99).filter(|t| t.is_finite()).fold(0.0, f64::max);
    if end <= 0.0 || laws().next().is_none() {
        return None;
    }
    let (label, factor) = time_axis("time", std::iter::once(end));
    let mut series: Vec<Series> =
        measured.map(|times| cumulative(times, end, factor)).into_iter().collect();
    series.extend(laws().enumerate().map(|(place, (model, law))| {
        Series::new(
            model,
            Mark::Dashed,
            place + 1,
            (0..=POINTS)
                .map(|step| end * f64::from(step) / f64::from(POINTS))
                .map(|t| Point::new(t * factor, 100.0 * law.cdf(t))),
        )
    }));
    Some(Plot {
        id,
        title,
        description:
            "Share of requests that take no longer, at the tier; measured in steps of 0.1 ms."
                .to_owned(),
        x: Axis::from_zero(label),
        y: Axis::from_zero("share of requests (%)"),
        series,
    })
}

/// The measured distribution: at the end of each step, the share of what is in it and before it.
fn cumulative(times: &Distribution, end: f64, factor: f64) -> Series {
    let step_s = exact_f64(STEP_NS) / 1e9;
    let total = exact_f64(times.count.max(1));
    let mut below = 0;
    let mut points = vec![Point::new(0.0, 0.0)];
    for (step, count) in &times.steps {
        below += count;
        let at = exact_f64(step + 1) * step_s;
        points.push(Point::new(at * factor, 100.0 * exact_f64(below) / total));
        if at > end {
            break;
        }
    }
    // What is drawn as a line needs no more points than there is room for.
    let every = points.len().div_ceil(400).max(1);
    let last = points.len() - 1;
    let kept = points.into_iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last);
    Series::new("measured", Mark::Dashed, 0, kept.map(|(_, point)| point))
}

/// Probabilities of the numbers at the station; a real tier does not count them.
fn states((id, title): (String, String), models: &[At<'_>]) -> Option<Plot> {
    let laws: Vec<_> =
        models.iter().filter_map(|at| Some((at.model, at.solution.states.as_ref()?))).collect();
    let end = laws.iter().filter_map(|(_, law)| law.exceeded_with(0.001)).max()?;
    let count = end.clamp(4, MOST_STATES) + 1;
    let series = laws.iter().enumerate().map(|(color, (model, law))| {
        Series::new(
            *model,
            Mark::Points,
            color + 1,
            (0..).zip(law.first(count)).map(|(n, p)| Point::new(f64::from(n), p)),
        )
    });
    Some(Plot {
        id,
        title,
        description:
            "Probability of each number of requests at the station, in service included, as \
                      the models say; a tier records the mean of it only."
                .to_owned(),
        x: Axis::from_zero("requests at the station"),
        y: Axis::from_zero("probability"),
        series: series.collect(),
    })
}
