//! A station that no counter shows, found in the curve alone: m servers that a request holds for a
//! time s each, beside all that it does elsewhere.
//!
//! The curve of a closed loop says two things of it: how much it carries, m/s, and, by the sharpness
//! of the knee, how many requests it holds at once. Candidates are closed networks of one station
//! M/M/m and a delay, whose times are exponential, and curves between those and their asymptotes
//! N/(R₁ + Z) and m/s, which constant times come near to. Sizes that the runs do not tell apart are
//! told together.

use kendall_stats::estimate::Estimate;
use kendall_stats::load_curve::{Evidence, Posterior, Shape};
use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

/// A station that the curve shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HiddenStation {
    /// Sizes m that the runs leave, by rising size, with their probability.
    pub sizes: Vec<(u32, f64)>,
    /// m/s: the most that it carries a second.
    pub capacity_per_s: Estimate,
    /// s for the likeliest size.
    pub hold_s: Estimate,
    /// Largest relative error of the throughput at a load, of the likeliest station.
    pub worst_error: f64,
}

impl HiddenStation {
    /// The likeliest size.
    #[must_use]
    pub fn size(&self) -> u32 {
        let best = self.sizes.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(1, |(size, _)| *size)
    }

    /// The size, where the runs leave only one.
    #[must_use]
    pub fn only_size(&self) -> Option<u32> {
        match self.sizes.as_slice() {
            [(size, _)] => Some(*size),
            _ => None,
        }
    }
}

/// Loads up to which the candidates are solved.
const HIGHEST_LOAD: f64 = 2_000.0;
/// Share of the probability that sizes must hold together to be told.
const TOLD: f64 = 0.95;
/// How far a curve lies between exponential times and its asymptotes, and how likely each is.
const REGULAR: [(f64, f64); 3] = [(0.0, 0.5), (0.4, 0.3), (0.8, 0.2)];
/// Share of the prior of a request that does nothing outside the station.
const NOTHING_ELSE: f64 = 0.3;
const STEPS: u32 = 40;

/// Finds it in the runs of a closed loop; `None` where the loads are no numbers of clients.
#[must_use]
pub fn hidden_station(runs: &Evidence, confidence: f64) -> Option<HiddenStation> {
    let posterior = stations(runs)?;
    let shapes = posterior.shapes();
    let mut sizes: Vec<u32> = shapes.iter().map(|station| station.servers).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut sizes: Vec<(u32, f64)> = sizes
        .into_iter()
        .map(|size| (size, posterior.probability(|at| shapes[at].servers == size)))
        .collect();
    sizes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let size = sizes.first()?.0;
    let mut told = 0.0;
    sizes.retain(|(_, probability)| {
        let keep = told < TOLD;
        told += probability;
        keep
    });
    sizes.sort_unstable_by_key(|(size, _)| *size);
    let capacity = posterior.level(confidence, |at| shapes[at].crossing);
    Some(HiddenStation {
        sizes,
        hold_s: capacity.map(|per_s| f64::from(size) / per_s),
        capacity_per_s: capacity,
        worst_error: posterior.worst_error(runs, |at| shapes[at].servers == size),
    })
}

/// X of one more run at another load, by all stations that the runs leave: median and interval.
pub(crate) fn station_at(runs: &Evidence, load: f64, confidence: f64) -> Option<Estimate> {
    let solved = load <= HIGHEST_LOAD && load.fract() == 0.0;
    solved.then(|| stations(runs)).flatten().map(|found| found.run_at(runs, load, confidence))
}

fn stations(runs: &Evidence) -> Option<Posterior<Station>> {
    let levels = runs.levels();
    let high = *levels.last()?;
    if high > HIGHEST_LOAD || levels.iter().any(|load| load.fract() != 0.0) {
        return None;
    }
    let mut cells = Cells::whole(high);
    for _ in 0..2 {
        cells = cells.iter().map(|cells| cells.around(runs)).collect();
    }
    Some(runs.posterior(cells.iter().flat_map(Cells::stations).collect()))
}

/// M/M/m and a delay, in a closed loop whose cycle at light load is one unit of time.
#[derive(Debug, Clone, Copy)]
struct Station {
    servers: u32,
    /// ln(m/s), which is where its asymptotes cross.
    crossing: f64,
    regular: f64,
    prior: f64,
}

impl Station {
    /// X of `clients` with exponential times: the stationary state of the requests in the station.
    fn exponential(&self, clients: f64) -> f64 {
        let servers = f64::from(self.servers);
        let hold = servers / self.crossing.exp();
        let outside = 1.0 - hold;
        if outside < 1e-9 {
            return clients.min(servers) / hold;
        }
        let (mut weight, mut all, mut served, mut inside) = (1.0, 1.0, 0.0, 0.0);
        while inside < clients {
            weight *= (clients - inside) / outside;
            inside += 1.0;
            weight *= hold / inside.min(servers);
            all += weight;
            served += weight * inside.min(servers);
            if all > 1e200 {
                (weight, all, served) = (weight * 1e-200, all * 1e-200, served * 1e-200);
            }
        }
        served / all / hold
    }
}

impl Shape for Station {
    fn height(&self, load: f64) -> f64 {
        let bound = load.ln().min(self.crossing);
        self.regular * bound + (1.0 - self.regular) * self.exponential(load).ln()
    }

    fn prior(&self) -> f64 {
        self.prior
    }
}

/// Sizes that are tried: all small ones, then some.
fn sizes(high: f64) -> impl Iterator<Item = u32> {
    let some = [20, 24, 28, 32, 40, 48, 64, 80, 96, 128];
    (1..=16).chain(some).filter(move |size| f64::from(*size) <= high)
}

/// Stations of one size and regularity, over a range of crossings.
#[derive(Debug, Clone, Copy)]
struct Cells {
    servers: u32,
    regular: f64,
    range: (f64, f64),
    /// Prior of a unit of the range; of one point, all of it.
    density: f64,
}

impl Cells {
    /// Over all that loads up to `high` may show.
    fn whole(high: f64) -> Vec<Self> {
        let of_size = 1.0 / exact_f64(sizes(high).count());
        let most = (2.0 * high).ln();
        let mut cells = Vec::new();
        for servers in sizes(high) {
            let least = f64::from(servers).ln();
            cells.extend(REGULAR.map(|(regular, likely)| {
                let density = of_size * (1.0 - NOTHING_ELSE) * likely / (most - least);
                Self { servers, regular, range: (least, most), density }
            }));
            let density = of_size * NOTHING_ELSE;
            cells.push(Self { servers, regular: 0.0, range: (least, least), density });
        }
        cells
    }

    fn step(&self) -> f64 {
        (self.range.1 - self.range.0) / f64::from(STEPS)
    }

    /// Middles of the cells.
    fn stations(&self) -> Vec<Station> {
        let Self { servers, regular, range, density } = *self;
        let step = self.step();
        if step <= 0.0 {
            return vec![Station { servers, crossing: range.0, regular, prior: density }];
        }
        let at = |place: u32| range.0 + step * (f64::from(place) + 0.5);
        let prior = density * step;
        (0..STEPS).map(|place| Station { servers, crossing: at(place), regular, prior }).collect()
    }

    /// The part of the range in which stations are not far less likely than the best of them.
    fn around(&self, runs: &Evidence) -> Self {
        const FAR: f64 = 9.0;
        let stations = self.stations();
        let weights = runs.log_weights(&stations);
        let best = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let near = || {
            let both = stations.iter().zip(&weights);
            both.filter(|(_, weight)| **weight > best - FAR).map(|(station, _)| station.crossing)
        };
        let low = near().fold(f64::INFINITY, f64::min) - self.step();
        let high = near().fold(f64::NEG_INFINITY, f64::max) + self.step();
        Self { range: (low.max(self.range.0), high.min(self.range.1)), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use kendall_stats::load_curve::CurveRun;

    use super::*;

    /// Two runs a load that differ by some percent, of a truth.
    fn evidence(truth: impl Fn(f64) -> f64) -> Evidence {
        let off = [0.01, -0.02, 0.015, -0.005, 0.02, -0.01, 0.0, 0.01, -0.015, 0.005, -0.01, 0.02];
        let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        let runs: Vec<CurveRun> = (loads.iter().cycle().zip(off))
            .map(|(&load, off)| CurveRun {
                load,
                throughput_per_s: truth(load) * (1.0 + off),
                weight: 1.0,
            })
            .collect();
        Evidence::of(&runs).unwrap()
    }

    /// A lock that is held for 2.5 ms: the curve is flat from one client on.
    #[test]
    fn a_lock_is_a_station_of_size_one() {
        let found = hidden_station(&evidence(|_| 400.0), 0.95).unwrap();
        assert_eq!(found.only_size(), Some(1), "{found:?}");
        assert!((found.hold_s.center - 2.5e-3).abs() < 0.1e-3, "{found:?}");
        assert!(found.worst_error < 0.05);
    }

    /// A semaphore of four, each held for 10 ms of a request of 11 ms.
    #[test]
    fn a_pool_is_found_with_its_size_and_hold_time() {
        let truth = |n: f64| (n / 11e-3).min(4.0 / 10e-3);
        let found = hidden_station(&evidence(truth), 0.95).unwrap();
        assert_eq!(found.size(), 4, "{found:?}");
        let interval = found.hold_s.interval.unwrap();
        assert!(interval.contains(10e-3) && interval.half_width() < 1e-3, "{found:?}");
        assert!(found.worst_error < 0.1, "{found:?}");
    }

    /// Where nothing is reached, no size can be told.
    #[test]
    fn a_line_tells_no_size() {
        let found = hidden_station(&evidence(|n| 50.0 * n), 0.95).unwrap();
        assert!(found.only_size().is_none() && found.sizes.len() > 3, "{found:?}");
    }
}
