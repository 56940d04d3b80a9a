//! A station that no tier shows, found in response times of an open load, as [`crate::hidden`] finds it in the throughput
//! of a closed one: a pool of m workers or connections, or a lock, that each request holds for a time s.
//!
//! R = what the tiers explain + e + f·W(λ), with W of M/M/m, f for how uneven gaps or times are, and e for what a request
//! takes in no tier at any load. Where it is the times, f is less at low load ([`Uneven`]). A request may hold the station while
//! tiers work, so that e says nothing of s. Candidates are weighted by their errors in groups of windows of neighboring loads, as
//! logarithms: a shape that is wrong errs in whole groups, where single windows would hide it. A group errs by chance, the more the
//! fuller the station is, and by a share that is not known.

use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample::{mean, sorted_quantile};
use kendall_units::{exact_f64, whole_u64};

use super::residence::{Uneven, waiting_s};
use crate::hidden::sizes;
use crate::model::CONFIDENCE;

/// Groups of windows of neighboring loads, at most, and how many tell a shape.
const GROUPS: usize = 20;
const FEWEST: usize = 6;
/// Share of the capacity that the highest load left: from, to, and how many are tried between.
const SPARE: (f64, f64) = (0.005, 0.75);
const SPARES: u32 = 60;
/// (c_a² + c_s²)/2 of the station, and how likely each is: constant times and even gaps, to bursts.
const FACTORS: [(f64, f64); 13] = [
    (0.5, 0.1),
    (0.57, 0.1),
    (0.67, 0.1),
    (0.8, 0.15),
    (1.0, 0.2),
    (1.2, 0.1),
    (1.5, 0.1),
    (1.9, 0.07),
    (2.4, 0.05),
    (3.0, 0.03),
    (4.0, 0.02),
    (5.5, 0.015),
    (8.0, 0.01),
];
/// Shares by which groups err beside chance that are tried.
const SCATTERS: [f64; 7] = [0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16];
/// By which share of f − 1 waits for several servers are not f of what they are in M/M/m.
const UNEVEN: f64 = 0.05;
/// Draws of what the windows leave.
const DRAWS: usize = 400;

/// A station that no tier shows.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Hidden {
    /// m.
    pub servers: u32,
    /// m/s.
    pub capacity_per_s: f64,
    /// f.
    pub waiting_factor: f64,
    /// Of service times, or of bursts.
    #[serde(skip)]
    uneven: Uneven,
    /// The highest load that it carried, 1/s.
    pub carried_per_s: f64,
    /// e, s.
    #[serde(skip)]
    pub(super) elsewhere_s: f64,
    /// All that the windows leave, as equally likely draws.
    #[serde(skip)]
    draws: Vec<Self>,
}

/// What one window says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    pub(super) rate_per_s: f64,
    /// R.
    pub(super) measured_s: f64,
    /// R less what the tiers explain.
    pub(super) missing_s: f64,
}

impl Hidden {
    /// The likeliest beside windows of so many seconds, the highest of which carried so much.
    pub(super) fn find(
        mut windows: Vec<Beside>,
        window_s: f64,
        carried_per_s: f64,
    ) -> Option<Self> {
        windows.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
        let together = windows.len().div_ceil(GROUPS).max(1);
        let groups: Vec<Group> =
            windows.chunks(together).map(|some| Group::of(some, window_s)).collect();
        if groups.len() < FEWEST {
            return None;
        }
        // A request holds it for as long as it is there, at most.
        let longest_s = groups.iter().map(|group| group.measured_s).fold(f64::INFINITY, f64::min);
        let mut all: Vec<(Self, f64)> = Vec::new();
        for servers in sizes(4.0 * carried_per_s * longest_s) {
            let kinds = kinds(u64::from(servers));
            for place in 0..SPARES {
                let share = f64::from(place) / f64::from(SPARES - 1);
                let spare = SPARE.0 * (SPARE.1 / SPARE.0).powf(share);
                let capacity_per_s = carried_per_s / (1.0 - spare);
                let hold_s = f64::from(servers) / capacity_per_s;
                if hold_s > longest_s {
                    continue;
                }
                let even = groups.iter().map(|group| group.evenly(servers, hold_s));
                let Some(even) = even.collect::<Option<Vec<_>>>() else { continue };
                for &(waiting_factor, uneven, likely) in &kinds {
                    let found = Self {
                        servers,
                        capacity_per_s,
                        waiting_factor,
                        uneven,
                        carried_per_s,
                        elsewhere_s: 0.0,
                        draws: Vec::new(),
                    };
                    let (found, weight) = found.beside(&groups, &even)?;
                    all.push((found, weight + likely.ln()));
                }
            }
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (best, most) = all.first().cloned()?;
        all.iter_mut().for_each(|(_, weight)| *weight = (*weight - most).exp());
        Some(Self { draws: drawn(&all), ..best })
    }

    /// The same with e by least squares, and its weight as a logarithm.
    fn beside(&self, groups: &[Group], even: &[[(f64, f64); 3]]) -> Option<(Self, f64)> {
        let wait = |at: &[(f64, f64); 3]| {
            let [low, middle, high] = at.map(|(used, even_s)| self.uneven.at(used) * even_s);
            // By Simpson's rule: it is longer than that at the mean load.
            (low + 4.0 * middle + high) / 6.0
        };
        let waits: Vec<f64> = even.iter().map(wait).collect();
        let chances = groups.iter().zip(&waits).map(|(group, wait)| group.by_chance(self, *wait));
        let chances: Vec<f64> = chances.collect();
        let with = |scatter: f64| {
            let all = || groups.iter().zip(&waits).zip(&chances);
            let square =
                |group: &Group, chance: f64| chance * chance + (scatter * group.measured_s).powi(2);
            let weights: f64 =
                all().map(|((group, _), chance)| square(group, *chance).recip()).sum();
            let rest = all()
                .map(|((group, wait), chance)| (group.missing_s - wait) / square(group, *chance));
            let elsewhere_s = (rest.sum::<f64>() / weights).max(0.0);
            let likely = |((group, wait), chance): ((&Group, &f64), &f64)| {
                let said_s = group.measured_s - group.missing_s + elsewhere_s + wait;
                let square = square(group, *chance) / said_s.powi(2);
                (group.measured_s / said_s).ln().powi(2) / square + square.ln()
            };
            (elsewhere_s, -0.5 * all().map(likely).sum::<f64>())
        };
        let all = SCATTERS.map(with);
        let (elsewhere_s, most) = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let weight = most + all.iter().map(|one| (one.1 - most).exp()).sum::<f64>().ln();
        Some((Self { elsewhere_s, ..self.clone() }, weight))
    }

    /// s.
    pub fn hold_s(&self) -> f64 {
        f64::from(self.servers) / self.capacity_per_s
    }

    /// How long a request waits for it at a load, s; `None` where it carries less.
    pub(super) fn waiting_s(&self, rate_per_s: f64) -> Option<f64> {
        let even_s = waiting_s(rate_per_s, u64::from(self.servers), self.hold_s())?;
        Some(self.uneven.at(rate_per_s / self.capacity_per_s) * even_s)
    }

    /// One of those that the windows leave, by a number from 0 to 1.
    pub(super) fn draw(&self, share: f64) -> Self {
        let place = whole_u64((share * exact_f64(self.draws.len())).floor());
        let place = usize::try_from(place).unwrap_or(0).min(self.draws.len().saturating_sub(1));
        self.draws.get(place).unwrap_or(self).clone()
    }

    /// m/s, with its interval.
    pub fn capacity(&self) -> Estimate {
        let [low, high] = self.between(|one| one.capacity_per_s);
        let interval = Interval { low, high, confidence: CONFIDENCE };
        Estimate::with_interval(self.capacity_per_s, interval)
    }

    /// Between which m lies.
    pub fn sizes(&self) -> [u64; 2] {
        self.between(|one| f64::from(one.servers)).map(|size| whole_u64(size.round()))
    }

    fn between(&self, of: fn(&Self) -> f64) -> [f64; 2] {
        let mut values: Vec<f64> = self.draws.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let tail = (1.0 - CONFIDENCE) / 2.0;
        [tail, 1.0 - tail].map(|share| sorted_quantile(&values, share))
    }
}

/// f, what is uneven, and how likely it is: for one server times are as bursts.
fn kinds(servers: u64) -> Vec<(f64, Uneven, f64)> {
    let of = |(factor, likely): (f64, f64)| {
        let kinds = [Uneven::bursts(factor), Uneven::services(factor, servers)];
        kinds.map(|uneven| (factor, uneven, likely / 2.0))
    };
    let mut kinds: Vec<_> = FACTORS.into_iter().flat_map(of).collect();
    kinds.dedup_by(|a, b| {
        let is_one = servers == 1 || a.0.total_cmp(&1.0).is_eq();
        let same = is_one && a.0.total_cmp(&b.0).is_eq();
        b.2 += if same { a.2 } else { 0.0 };
        same
    });
    kinds
}

/// Windows of neighboring loads.
struct Group {
    /// Lowest, mean and highest load.
    rates_per_s: [f64; 3],
    measured_s: f64,
    missing_s: f64,
    /// How many there were.
    requests: f64,
}

impl Group {
    /// Of windows by rising load.
    fn of(windows: &[Beside], window_s: f64) -> Self {
        let of = |pick: fn(&Beside) -> f64| mean(&windows.iter().map(pick).collect::<Vec<f64>>());
        let at = |window: Option<&Beside>| window.map_or(0.0, |window| window.rate_per_s);
        let middle = of(|window| window.rate_per_s);
        Self {
            rates_per_s: [at(windows.first()), middle, at(windows.last())],
            measured_s: of(|window| window.measured_s),
            missing_s: of(|window| window.missing_s),
            requests: middle * window_s * exact_f64(windows.len()),
        }
    }

    /// Standard error of the mean wait of its requests, s: that of M/M/1 under heavy load, 2/√n(1 − ρ) of the wait, for those that
    /// wait.
    ///
    /// # Source
    /// Whitt 1989, Management Science 35(11).
    fn by_chance(&self, station: &Hidden, wait_s: f64) -> f64 {
        let used = self.rates_per_s[1] / station.capacity_per_s;
        let left = 1.0 - used;
        let even_s = wait_s / station.uneven.at(used);
        let waiting = (even_s * station.capacity_per_s * left).clamp(1e-6, 1.0);
        let square = 4.0 * station.waiting_factor / (self.requests * left * left * waiting);
        let several = 1.0 - f64::from(station.servers).recip();
        let uneven = UNEVEN * (station.waiting_factor - 1.0) * several;
        wait_s * (square.min(1.0 / waiting) + uneven * uneven).sqrt()
    }

    /// Utilizations of a station at the three loads, and how long even requests wait there, s.
    fn evenly(&self, servers: u32, hold_s: f64) -> Option<[(f64, f64); 3]> {
        let [low, middle, high] = self.rates_per_s.map(|rate| {
            let used = rate * hold_s / f64::from(servers);
            Some((used, waiting_s(rate, u64::from(servers), hold_s)?))
        });
        Some([low?, middle?, high?])
    }
}

/// Equally likely draws of what is weighted, at even distances, each anywhere in its cell of the grid.
fn drawn(all: &[(Hidden, f64)]) -> Vec<Hidden> {
    // Multiples of it are spread evenly, however many are taken.
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let cell = (SPARE.1 / SPARE.0).powf(1.0 / f64::from(SPARES - 1));
    let sum: f64 = all.iter().map(|(_, weight)| weight).sum();
    let (mut so_far, mut draws) = (0.0, Vec::with_capacity(DRAWS));
    for (one, weight) in all {
        so_far += weight;
        while draws.len() < DRAWS
            && (exact_f64(draws.len()) + 0.5) / exact_f64(DRAWS) * sum <= so_far
        {
            let spare = 1.0 - one.carried_per_s / one.capacity_per_s;
            let spare = spare * cell.powf((GOLDEN * exact_f64(draws.len())).fract() - 0.5);
            draws.push(Hidden { capacity_per_s: one.carried_per_s / (1.0 - spare), ..one.clone() });
        }
    }
    draws
}

#[cfg(test)]
mod tests {
    use kendall_queueing::station::erlang_c;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Response times of a pool of three that each request holds for 20 ms, 5 ms of other work beside it, and a hundredth of noise.
    fn windows(most: f64) -> Vec<Beside> {
        let truth = Hidden {
            servers: 3,
            capacity_per_s: 150.0,
            waiting_factor: 1.0,
            uneven: Uneven::bursts(1.0),
            carried_per_s: most,
            elsewhere_s: 0.025,
            draws: Vec::new(),
        };
        let window = |place: u32| {
            let rate_per_s = 20.0 + (most - 20.0) * f64::from(place) / 119.0;
            let noise = 1.0 + (f64::from(place * 7_919 % 1_000) / 1_000.0 - 0.5) / 50.0;
            let missing_s = truth.elsewhere_s + truth.waiting_s(rate_per_s).unwrap();
            let measured_s = (missing_s + 0.005) * noise;
            Beside { rate_per_s, measured_s, missing_s: measured_s - 0.005 }
        };
        (0..120).map(window).collect()
    }

    #[test]
    fn a_pool_is_found_by_how_requests_wait_for_it() {
        let found = Hidden::find(windows(140.0), 60.0, 140.0).unwrap();
        let interval = found.capacity().interval.unwrap();
        // The load reached 93 % of it.
        assert!(interval.contains(150.0) && interval.high < 1.1 * interval.low, "{interval:?}");
        let [least, most] = found.sizes();
        assert!(least <= 3 && (3..=8).contains(&most), "{least} to {most}");
        let (at, truth) = (found.waiting_s(145.0).unwrap(), 0.2 * erlang_c(2.9, 3).unwrap());
        assert!((at / truth - 1.0).abs() < 0.25, "{at} for {truth} s");
        assert!(found.waiting_s(200.0).is_none());
    }

    /// Windows of a minute each of simulated servers with 150/s, beside a tier of 5 ms; service times have this squared coefficient of
    /// variation: constant, exponential, or hyperexponential ones of balanced means.
    fn simulated(servers: usize, scv: f64, most: f64, seed: u64) -> Vec<Beside> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let short = f64::midpoint(1.0, ((scv - 1.0).max(0.0) / (scv + 1.0)).sqrt());
        let mut exponential = |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
        let mut of_phase = Xoshiro256PlusPlus::seed_from_u64(seed + 1_000);
        let hold_s = exact_f64(servers) / 150.0;
        let (mut free, mut now) = (vec![0.0_f64; servers], 0.0);
        let window = |number: u32| {
            let wave = (1.0 - (f64::from(number) / 10.0).cos()) / 2.0;
            let rate = most * (0.2 + 0.8 * wave);
            let (end, mut stays) = (f64::from(number + 1) * 60.0, Vec::new());
            while now < end {
                now += exponential(1.0 / rate);
                let first = free.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
                let share = if of_phase.random::<f64>() < short { short } else { 1.0 - short };
                let mean_s = hold_s / (2.0 * share);
                *first = first.max(now) + if scv > 0.0 { exponential(mean_s) } else { hold_s };
                stays.push(*first - now);
            }
            let missing_s = mean(&stays);
            let rate_per_s = exact_f64(stays.len()) / 60.0;
            Beside { rate_per_s, measured_s: missing_s + 0.005, missing_s }
        };
        (0..120).map(window).collect()
    }

    /// Binomial(120, 0.95) is 106 or more with probability 0.999.
    #[test]
    fn intervals_of_a_simulated_pool_hold_its_capacity() {
        let mut held = 0;
        let all = [(1, 1.0, 135.0), (3, 1.0, 140.0), (8, 0.0, 140.0), (4, 3.7, 135.0)];
        for (servers, scv, most) in all {
            for seed in 0..30 {
                let windows = simulated(servers, scv, most, seed);
                let carried = windows.iter().map(|one| one.rate_per_s).fold(0.0, f64::max);
                let found = Hidden::find(windows, 60.0, carried).unwrap();
                let interval = found.capacity().interval.unwrap();
                assert!(interval.high < 1.4 * interval.low, "{interval:?}");
                held += u32::from(interval.contains(150.0));
            }
        }
        assert!(held >= 106, "{held} of 120");
    }

    #[test]
    fn few_loads_tell_no_pool() {
        let few: Vec<Beside> = windows(140.0).into_iter().step_by(30).collect();
        assert!(Hidden::find(few, 60.0, 140.0).is_none());
    }
}
