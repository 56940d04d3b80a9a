//! Percentiles of response time in open networks whose customers do not overtake each other.

use std::collections::BTreeSet;

use crate::model::{Class, Discipline, Leg, Model, Place, Station, Workload};
use crate::numeric::{Complex, falls_to, invert_laplace};
use crate::station::mmm;

/// Most paths through a network, and most stations.
const MOST_PATHS: usize = 1_000;
const MOST_STATIONS: usize = 64;

/// A station on the way: µ, and with a probability a wait before at a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stop {
    service: f64,
    waits: f64,
    wait: f64,
}

/// A path through the network, its probability and its stations.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Path {
    probability: f64,
    stops: Vec<Stop>,
}

/// The paths of a class through a network of M/M/1 stations, M/M/m or delays at their ends, when no customer of any class
/// overtakes another on a path (no two stations of it are joined by a second way). Then the times at the stations
/// of a path are independent.
///
/// # Source
/// Reich 1957, Burke 1969 and 1972; Walrand and Varaiya 1980; [HB13 ch. 17].
pub(super) fn paths(model: &Model, visits: &[Vec<f64>], class: usize) -> Option<Vec<Path>> {
    let poisson = |class: &Class| match &class.workload {
        Workload::Open { interarrival, .. } => interarrival.is_exponential(),
        Workload::Closed { .. } => false,
    };
    let keeps_class = model.routes.iter().all(|leg| leg.class == leg.to_class);
    let small = model.stations.len() <= MOST_STATIONS && model.pools.is_empty();
    let small = small && model.stations.iter().all(|station| station.capacity.is_none());
    if !(small && keeps_class && model.classes.iter().all(poisson)) {
        return None;
    }
    let ways = if model.routes.is_empty() {
        // An order is assumed; with visits of 1 any order is a series.
        if visits.iter().flatten().any(|visits| (visits - 1.0).abs() > 1e-12) {
            return None;
        }
        vec![(1.0, (0..model.stations.len()).collect())]
    } else if model.classes.len() > 1 && leads_round(model) {
        return None;
    } else {
        ways(model, class)?
    };
    let mut checked = BTreeSet::new();
    let mut paths = Vec::new();
    for (probability, way) in ways {
        let mut stops = Vec::new();
        for (place, at) in way.iter().enumerate() {
            let between = place > 0 && place + 1 < way.len();
            let station = &model.stations[*at];
            if between && (station.is_delay() || station.servers != 1) {
                return None;
            }
            let rates = model.classes.iter().zip(&visits[*at]);
            let rate = rates.map(|(class, visits)| class.arrival_rate_per_s() * visits).sum();
            stops.push(stop(station, class, &visits[*at], rate)?);
            for later in way.iter().skip(place + 2) {
                let around = [*at, way[place + 1], *later];
                if checked.insert(around) && overtakes(model, around) {
                    return None;
                }
            }
        }
        paths.push(Path { probability, stops });
    }
    Some(paths)
}

fn stop(station: &Station, class: usize, visits: &[f64], arrival_rate: f64) -> Option<Stop> {
    let demand = station.demand_at(class)?;
    let mean = demand.service.mean();
    // Who waits in one line has one exponential service time.
    let alike = |other: usize| {
        let service = &station.demand_at(other)?.service;
        Some(service.is_exponential() && (service.mean() - mean).abs() <= 1e-12 * mean)
    };
    let mut others = (0..visits.len()).filter(|other| visits[*other] > 0.0);
    let plain = station.rate_multipliers.is_empty()
        && station.fork.is_none()
        && (station.is_delay()
            || station.discipline == Discipline::Fcfs
                && others.all(|other| alike(other) == Some(true)));
    if !(plain && demand.service.is_exponential() && mean > 0.0) {
        return None;
    }
    let service = 1.0 / mean;
    if station.is_delay() {
        return Some(Stop { service, waits: 0.0, wait: 1.0 });
    }
    let alone = mmm(arrival_rate, service, station.servers).ok()?;
    let wait = kendall_units::exact_f64(station.servers) * service - arrival_rate;
    (wait > 0.0).then_some(Stop { service, waits: alone.p_queueing?, wait })
}

/// All ways of a class from outside to outside with their probabilities; none where they are too many or lead
/// round.
fn ways(model: &Model, class: usize) -> Option<Vec<(f64, Vec<usize>)>> {
    let mut open = vec![(1.0, Vec::new())];
    let mut done = Vec::new();
    while let Some((probability, way)) = open.pop() {
        let from = way.last().map_or(Place::Outside, |station| Place::Station(*station));
        let leaves = |leg: &&Leg| leg.class == class && leg.from == from && leg.probability > 0.0;
        for leg in model.routes.iter().filter(leaves) {
            let probability = probability * leg.probability;
            match leg.to {
                Place::Outside => done.push((probability, way.clone())),
                Place::Station(next) if way.contains(&next) => return None,
                Place::Station(next) => {
                    let mut longer = way.clone();
                    longer.push(next);
                    open.push((probability, longer));
                }
            }
        }
        if open.len() + done.len() > MOST_PATHS {
            return None;
        }
    }
    Some(done)
}

/// Whether the routes of all classes together lead from a station back to it.
fn leads_round(model: &Model) -> bool {
    let leads = |from: usize| {
        let next = move |leg: &Leg| match (leg.from, leg.to) {
            (Place::Station(at), Place::Station(to)) if at == from && leg.probability > 0.0 => {
                Some(to)
            }
            _ => None,
        };
        model.routes.iter().filter_map(next)
    };
    // Stations that only lead out of what is left are taken away, until there are none.
    let mut left: BTreeSet<usize> = (0..model.stations.len()).collect();
    while let Some(last) = left.iter().copied().find(|at| leads(*at).all(|to| !left.contains(&to)))
    {
        left.remove(&last);
    }
    !left.is_empty()
}

/// Whether there is a way from the first to the last beside the one in the middle.
fn overtakes(model: &Model, [from, beside, to]: [usize; 3]) -> bool {
    let (mut open, mut seen) = (vec![from], BTreeSet::from([from, beside]));
    while let Some(station) = open.pop() {
        for leg in model.routes.iter().filter(|leg| leg.from == Place::Station(station)) {
            if let Place::Station(next) = leg.to
                && leg.probability > 0.0
                && seen.insert(next)
            {
                open.push(next);
            }
        }
    }
    seen.contains(&to)
}

/// Variance of the time along one of the paths.
pub(super) fn variance(paths: &[Path]) -> f64 {
    let (mut mean, mut second) = (0.0, 0.0);
    for path in paths {
        let times = path.stops.iter().map(|stop| 1.0 / stop.service + stop.waits / stop.wait);
        let along: f64 = times.sum();
        let spread = |stop: &Stop| {
            stop.service.powi(-2) + stop.waits * (2.0 - stop.waits) / (stop.wait * stop.wait)
        };
        let spreads: f64 = path.stops.iter().map(spread).sum();
        mean += path.probability * along;
        second += path.probability * (spreads + along * along);
    }
    (second - mean * mean).max(0.0)
}

/// Quantile of the time along one of the paths; about 1e-8.
pub(super) fn quantile(paths: &[Path], quantile: f64) -> Option<f64> {
    if !(quantile > 0.0 && quantile < 1.0) {
        return None;
    }
    let time = |stop: &Stop| 1.0 / stop.service + stop.waits / stop.wait;
    let mean: f64 =
        paths.iter().map(|path| path.probability * path.stops.iter().map(time).sum::<f64>()).sum();
    let one = Complex::new(1.0, 0.0);
    let transform = |s: Complex| {
        let of = |stop: &Stop| {
            let wait = one.over(one.plus(s.scaled(1.0 / stop.wait))).scaled(stop.waits);
            let service = one.over(one.plus(s.scaled(1.0 / stop.service)));
            wait.plus(Complex::new(1.0 - stop.waits, 0.0)).times(service)
        };
        let along = |path: &Path| {
            path.stops.iter().map(of).fold(Complex::new(path.probability, 0.0), Complex::times)
        };
        let sum = paths.iter().map(along).fold(Complex::new(0.0, 0.0), Complex::plus);
        one.plus(sum.scaled(-1.0)).over(s)
    };
    let survival =
        |t: f64| if t <= 0.0 { 1.0 } else { invert_laplace(transform, t).clamp(0.0, 1.0) };
    falls_to(survival, 1.0 - quantile, mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mm1(service: f64, arrivals: f64) -> Stop {
        Stop { service, waits: arrivals / service, wait: service - arrivals }
    }

    /// Two equal stages: P(T > t) = (1 + rt)·e^(−rt); at t = 3/r that is 4·e^(−3).
    #[test]
    fn equal_stages_are_erlang() {
        let path = |rates: &[f64]| {
            let stops = rates.iter().map(|rate| mm1(rate + 1.0, 1.0)).collect();
            Path { probability: 1.0, stops }
        };
        let level = 4.0 * (-3.0_f64).exp();
        let t = quantile(&[path(&[2.0, 2.0])], 1.0 - level).unwrap();
        assert!((t - 1.5).abs() < 1e-7, "{t}");
        // Unequal ones: P(T > t) = (a·e^(−bt) − b·e^(−at))/(a − b).
        let (a, b, t) = (3.0_f64, 1.0_f64, 2.0);
        let level = (a * (-b * t).exp() - b * (-a * t).exp()) / (a - b);
        let found = quantile(&[path(&[a, b])], 1.0 - level).unwrap();
        assert!((found - t).abs() < 1e-7, "{found}");
        assert!(quantile(&[path(&[1.0])], 1.5).is_none());
        assert!((variance(&[path(&[a, b])]) - (a.powi(-2) + b.powi(-2))).abs() < 1e-12);
        // One of two: 0.25·e^(−t) + 0.75·e^(−3t) at t = 1.
        let ways = [(0.25, 1.0), (0.75, 3.0)]
            .map(|(probability, rate)| Path { probability, ..path(&[rate]) });
        let level = 0.25 * (-1.0_f64).exp() + 0.75 * (-3.0_f64).exp();
        let found = quantile(&ways, 1.0 - level).unwrap();
        assert!((found - 1.0).abs() < 1e-7, "{found}");
        let second = 0.25 * 2.0 + 0.75 * 2.0 / 9.0;
        assert!((variance(&ways) - (second - 0.25)).abs() < 1e-12);
    }
}
