//! One server that knows how long services are: the shortest first.

use super::general::{Load, checked};
use super::{Moments, StationError, StationSolution};
use crate::Distribution;

/// Cells between the least and the greatest service time.
const CELLS: f64 = 2_000.0;
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

/// Most kinks of all services: single values beside others, and ends of ranges.
const MOST_KINKS: usize = 1_000;

/// M/G/1 with the shortest service, or the shortest remaining service, first. Means only.
///
/// # Errors
/// As [`mg1_by_size_classes`].
///
/// # Source
/// Phipps 1956 (SJF), Schrage and Miller 1966 (SRPT); [HB13 ch. 31, 33].
pub fn mg1_by_size(
    arrival_rate: f64,
    service: &Distribution,
    rule: BySize,
) -> Result<StationSolution, StationError> {
    let Load { lambda, mean, second, rho, idle } = checked(arrival_rate, service)?;
    let excess = mg1_by_size_classes(&[(arrival_rate, service)], rule)?[0];
    let name = rule.name();
    Ok(StationSolution {
        notation: format!("M/{}/1 ({name})", service.letter()),
        method: rule.method(),
        p_queueing: (rule == BySize::Shortest).then_some(rho),
        number: Moments::mean_only(rho + lambda * excess),
        number_waiting: Moments::mean_only(lambda * excess),
        response_time: Moments::mean_only(mean + excess),
        waiting_time: Moments::mean_only(excess),
        busy_period: Some(super::general::busy_period(lambda, service, second, idle)),
        more: vec![("service_time_scv", service.scv())],
        ..StationSolution::one_server(lambda, rho, idle)
    })
}

impl BySize {
    fn name(self) -> &'static str {
        match self {
            Self::Shortest => "SJF",
            Self::ShortestRemaining => "SRPT",
        }
    }

    /// How it is solved.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Self::Shortest => "M/G/1, shortest service first [HB13 ch. 31]",
            Self::ShortestRemaining => "M/G/1, shortest remaining first [HB13 ch. 33]",
        }
    }
}

/// Mean time at the station beyond the service itself, of each class with its arrival rate and service. A class
/// counts by its sizes alone: what a customer of one size waits for is the mixture of all.
///
/// # Errors
/// [`StationError::Unstable`] when all classes together offer 1 erlang or more; [`StationError::Number`] where of
/// a service no more than moments are known, since the order depends on its shape.
///
/// # Source
/// As [`mg1_by_size`]. Services between two neighboring points of a fine grid are taken as one priority class,
/// with every point, every second and every fourth, and the errors of second and fourth order are removed
/// (Romberg 1955). Grids end at values that a service takes with a probability of their own, and where its
/// range ends.
pub fn mg1_by_size_classes(
    classes: &[(f64, &Distribution)],
    rule: BySize,
) -> Result<Vec<f64>, StationError> {
    let mixture = Mixture::of(classes)?;
    let unknown = || {
        let scv = classes.iter().map(|(_, service)| service.scv()).fold(0.0, f64::max);
        StationError::Number {
            name: "service time scv",
            value: scv,
            expected: "that of a named distribution: the order depends on more than two moments",
        }
    };
    let pieces = mixture.pieces().ok_or_else(unknown)?;
    let sum = |own: usize| -> f64 {
        let excess = |points: &mut dyn Iterator<Item = &Point>, between: bool| {
            mixture.excess(points, own, rule, between)
        };
        let of = |piece: &Piece| match piece {
            Piece::Step(ends) => excess(&mut ends.iter(), false),
            Piece::Grid(list) => {
                let [fine, middle, coarse] =
                    [1, 2, 4].map(|every| excess(&mut list.iter().step_by(every), true));
                (64.0 * fine - 20.0 * middle + coarse) / 45.0
            }
        };
        pieces.iter().map(of).sum()
    };
    Ok((0..classes.len()).map(sum).collect())
}

/// A service time, and what is known of those up to it.
#[derive(Debug, Clone)]
struct Point {
    time: f64,
    /// P(S ≤ time) of each class.
    own: Vec<f64>,
    /// 1 − λ·E\[S; S ≤ time\] of all.
    idle: f64,
    /// λ·(E\[S²; S ≤ time\] + time²·P(S > time))/2 of all.
    residual: f64,
}

enum Piece {
    /// Two points between which there is no service, or all are those of the second.
    Step([Point; 2]),
    /// Points in between which there are others.
    Grid(Vec<Point>),
}

/// The services of all classes.
struct Mixture<'a> {
    classes: &'a [(f64, &'a Distribution)],
    /// What is left of the server.
    idle: f64,
    /// λ·E\[S²\]/2.
    residual: f64,
}

impl<'a> Mixture<'a> {
    fn of(classes: &'a [(f64, &'a Distribution)]) -> Result<Self, StationError> {
        let (mut idle, mut residual) = (1.0, 0.0);
        for (rate, service) in classes {
            let mean = super::positive("mean service time", service.mean())?;
            idle = (-rate).mul_add(mean, idle);
            residual += rate * mean * mean * (1.0 + service.scv()) / 2.0;
        }
        if idle <= 0.0 {
            let rate: f64 = classes.iter().map(|class| class.0).sum();
            super::stable((1.0 - idle).max(1.0), 1, rate)?;
        }
        Ok(Self {
            classes,
            idle,
            residual: super::positive("second moment of service time", residual)?,
        })
    }

    /// What is known up to a time, or below it.
    fn at(&self, time: f64, atoms: &[Vec<(f64, f64)>], below: bool) -> Option<Point> {
        let (mut own, mut idle, mut residual) = (Vec::new(), self.idle, 0.0);
        for ((rate, service), atoms) in self.classes.iter().zip(atoms) {
            let [mut probability, mut first, mut second] = service.all_below(time)?;
            if below && let Ok(at) = atoms.binary_search_by(|atom| atom.0.total_cmp(&time)) {
                let mass = atoms[at].1;
                (probability, first, second) =
                    (probability - mass, first - mass * time, second - mass * time * time);
            }
            let probability = probability.clamp(0.0, 1.0);
            // What is above, so that near saturation nothing is lost.
            idle += rate * (service.mean() - first).max(0.0);
            residual += rate * (second + time * time * (1.0 - probability)) / 2.0;
            own.push(probability);
        }
        Some(Point { time, own, idle, residual })
    }

    /// All services, from none on.
    fn pieces(&self) -> Option<Vec<Piece>> {
        let atoms: Vec<Vec<(f64, f64)>> =
            self.classes.iter().map(|(_, service)| service.atoms().unwrap_or_default()).collect();
        let smooth = self.classes.iter().zip(&atoms).filter(|(_, atoms)| atoms.is_empty());
        let smooth: Vec<&Distribution> = smooth.map(|((_, service), _)| *service).collect();
        let mut ends = Vec::new();
        for service in &smooth {
            ends.extend(edges(service)?);
            ends.extend(service.range());
        }
        let [low, high] = [f64::min, f64::max].map(|of| ends.iter().copied().reduce(of));
        ends.extend(atoms.iter().flatten().map(|atom| atom.0));
        ends.sort_by(f64::total_cmp);
        ends.dedup_by(|a, b| a.total_cmp(b).is_eq());
        if ends.len() > MOST_KINKS && !smooth.is_empty() {
            return None;
        }
        let nothing = vec![0.0; self.classes.len()];
        let all: f64 = self.classes.iter().map(|(rate, service)| rate * service.mean()).sum();
        let mut last = Point { time: 0.0, own: nothing, idle: self.idle + all, residual: 0.0 };
        let mut pieces = Vec::new();
        for time in ends {
            let inside =
                low.is_some_and(|low| last.time >= low) && high.is_some_and(|high| time <= high);
            let below = self.at(time, &atoms, true)?;
            if inside {
                let width =
                    (time / last.time).ln() / high.zip(low).map_or(1.0, |(h, l)| (h / l).ln());
                let cells = 4 * kendall_units::whole_u64((width * CELLS / 4.0).ceil().max(1.0));
                let step = (time / last.time).ln() / kendall_units::exact_f64(cells);
                let (from, first) = (last.time, last.clone());
                let grid = (1..cells).map(|i| {
                    self.at(from * (step * kendall_units::exact_f64(i)).exp(), &atoms, false)
                });
                let grid = std::iter::once(Some(first)).chain(grid).chain([Some(below.clone())]);
                pieces.push(Piece::Grid(grid.collect::<Option<_>>()?));
            } else {
                pieces.push(Piece::Step([last.clone(), below.clone()]));
            }
            last = self.at(time, &atoms, false)?;
            pieces.push(Piece::Step([below, last.clone()]));
        }
        Some(pieces)
    }

    /// What the services between some points add to the mean time beyond the service itself.
    fn excess(
        &self,
        points: &mut dyn Iterator<Item = &Point>,
        own: usize,
        rule: BySize,
        between: bool,
    ) -> f64 {
        let Some(mut before) = points.next() else { return 0.0 };
        let mut sum = 0.0;
        for point in points {
            let residual = match rule {
                BySize::Shortest => self.residual,
                BySize::ShortestRemaining if between => {
                    f64::midpoint(before.residual, point.residual)
                }
                BySize::ShortestRemaining => point.residual,
            };
            sum += (point.own[own] - before.own[own]) * residual / (before.idle * point.idle);
            if rule == BySize::ShortestRemaining {
                // Stretched by arrivals of less than what is left: ∫ P(S > t)·ρ(t)/(1 − ρ(t)) dt.
                let stretch = |p: &Point| (1.0 - p.own[own]) * (1.0 - p.idle) / p.idle;
                sum += if between {
                    // On a grid of equal ratios, by the trapezoid of the logarithm.
                    let ends = before.time * stretch(before) + point.time * stretch(point);
                    ends / 2.0 * (point.time / before.time).ln()
                } else {
                    (point.time - before.time) * stretch(before)
                };
            }
            before = point;
        }
        sum
    }
}

/// The ends of a service: next to nothing is below the first, and of the second moment above the last.
fn edges(service: &Distribution) -> Option<[f64; 2]> {
    let (mean, second) = (service.mean(), service.moment(2)?);
    let start = edge(mean, |x| Some(service.below(0, x)? > LEFT_OUT))?;
    let end = edge(mean, |x| Some(second - service.below(2, x)? <= LEFT_OUT * second))?;
    Some([start, end])
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
