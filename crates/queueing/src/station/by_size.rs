//! One server that knows how long services are: the shortest first.

use super::general::{Load, checked};
use super::{Moments, StationError, StationSolution};
use crate::Distribution;

/// Cells between the least and the greatest service time; a multiple of 4.
const CELLS: usize = 4_000;
/// Share of the probability, or of the second moment, that is left out at either end.
const LEFT_OUT: f64 = 1e-13;

/// Which of the waiting services goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BySize {
    /// The shortest, without preemption (SJF).
    Shortest,
    /// The one with the least remaining service, preemptive (SRPT).
    ShortestRemaining,
}

/// M/G/1 with the shortest service, or the shortest remaining service, first. Means only.
///
/// # Errors
/// [`StationError::Unstable`] when λ·E\[S\] ≥ 1; [`StationError::Number`] where of the service no
/// more than moments are known, since the order depends on its shape.
///
/// # Source
/// Phipps 1956 (SJF), Schrage and Miller 1966 (SRPT); [HB13 ch. 31, 33]. Services between two
/// neighboring points of a fine grid are taken as one priority class, with every point, every second
/// and every fourth, and the errors of second and fourth order are removed (Romberg 1955).
pub fn mg1_by_size(
    arrival_rate: f64,
    service: &Distribution,
    rule: BySize,
) -> Result<StationSolution, StationError> {
    let load = checked(arrival_rate, service)?;
    let Some(points) = points(service, &load) else {
        return Err(StationError::Number {
            name: "service time scv",
            value: service.scv(),
            expected: "that of a named distribution: the order depends on more than two moments",
        });
    };
    let excess = match &points {
        Points::Values(list) => excess(list.iter(), &load, rule, false),
        Points::Grid(list) => {
            let [fine, middle, coarse] =
                [1, 2, 4].map(|every| excess(list.iter().step_by(every), &load, rule, true));
            (64.0 * fine - 20.0 * middle + coarse) / 45.0
        }
    };
    let Load { lambda, mean, rho, idle, .. } = load;
    let (name, method) = match rule {
        BySize::Shortest => ("SJF", "M/G/1, shortest service first [HB13 ch. 31]"),
        BySize::ShortestRemaining => ("SRPT", "M/G/1, shortest remaining first [HB13 ch. 33]"),
    };
    Ok(StationSolution {
        notation: format!("M/{}/1 ({name})", service.letter()),
        method,
        p_queueing: (rule == BySize::Shortest).then_some(rho),
        number: Moments::mean_only(rho + lambda * excess),
        number_waiting: Moments::mean_only(lambda * excess),
        response_time: Moments::mean_only(mean + excess),
        waiting_time: Moments::mean_only(excess),
        busy_period: Some(super::general::busy_period(lambda, service, load.second, idle)),
        more: vec![("service_time_scv", service.scv())],
        ..StationSolution::one_server(lambda, rho, idle)
    })
}

/// A service time, and what is known of those up to it.
#[derive(Debug, Clone, Copy)]
struct Point {
    time: f64,
    /// P(S ≤ time).
    probability: f64,
    /// 1 − λ·E\[S; S ≤ time\].
    idle: f64,
    /// λ·(E\[S²; S ≤ time\] + time²·P(S > time))/2.
    residual: f64,
}

enum Points {
    /// All the values that there are.
    Values(Vec<Point>),
    /// Points in between which there are others.
    Grid(Vec<Point>),
}

fn points(service: &Distribution, load: &Load) -> Option<Points> {
    let at = |time: f64| -> Option<Point> {
        let [probability, first, second] = service.all_below(time)?;
        let probability = probability.min(1.0);
        // What is above, so that near saturation nothing is lost.
        let above = load.mean - first;
        let second = second + time * time * (1.0 - probability);
        Some(Point {
            time,
            probability,
            idle: load.idle + load.lambda * above.max(0.0),
            residual: load.lambda * second / 2.0,
        })
    };
    if let Some(atoms) = service.atoms() {
        return atoms.iter().map(|(time, _)| at(*time)).collect::<Option<_>>().map(Points::Values);
    }
    // The ends: next to nothing is below the first, and of the second moment above the last.
    let start = edge(load.mean, |x| Some(service.below(0, x)? > LEFT_OUT))?;
    let end =
        edge(load.mean, |x| Some(load.second - service.below(2, x)? <= LEFT_OUT * load.second))?;
    let step = (end / start).ln() / kendall_units::exact_f64(CELLS);
    let grid = (0..=CELLS).map(|i| at(start * (step * kendall_units::exact_f64(i)).exp()));
    grid.collect::<Option<_>>().map(Points::Grid)
}

/// Where a condition that holds from some time on begins to hold, starting to look at `near`.
fn edge(near: f64, holds: impl Fn(f64) -> Option<bool>) -> Option<f64> {
    let (mut low, mut high) = (near, near);
    for _ in 0..900 {
        if !holds(low)? || low < 1e-280 {
            break;
        }
        low /= 2.0;
    }
    for _ in 0..900 {
        if holds(high)? || high > 1e280 {
            break;
        }
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if holds(middle)? { high = middle } else { low = middle }
    }
    Some(high)
}

/// Mean time at the station beyond the service itself.
fn excess<'a>(
    points: impl Iterator<Item = &'a Point>,
    load: &Load,
    rule: BySize,
    between: bool,
) -> f64 {
    let first = Point {
        time: 0.0,
        probability: 0.0,
        idle: load.idle + load.lambda * load.mean,
        residual: 0.0,
    };
    let whole = load.lambda * load.second / 2.0;
    let mut sum = 0.0;
    let mut before = first;
    for &point in points {
        let residual = match rule {
            BySize::Shortest => whole,
            BySize::ShortestRemaining if between => f64::midpoint(before.residual, point.residual),
            BySize::ShortestRemaining => point.residual,
        };
        sum += (point.probability - before.probability) * residual / (before.idle * point.idle);
        if rule == BySize::ShortestRemaining {
            // Stretched by arrivals of less than what is left: ∫ P(S > t)·ρ(t)/(1 − ρ(t)) dt.
            let stretch = |p: &Point| (1.0 - p.probability) * (1.0 - p.idle) / p.idle;
            sum += if between && before.time > 0.0 {
                // On a grid of equal ratios, by the trapezoid of the logarithm.
                let ends = before.time * stretch(&before) + point.time * stretch(&point);
                ends / 2.0 * (point.time / before.time).ln()
            } else {
                (point.time - before.time) * stretch(&before)
            };
        }
        before = point;
    }
    sum
}
