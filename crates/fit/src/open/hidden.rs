//! A station that no tier shows, found in response times of an open load, as [`crate::hidden`] finds it in the throughput
//! of a closed one: a pool of m workers or connections, or a lock, that each request holds for a time s.
//!
//! R = what the tiers explain + e + f·W(λ), with W of M/M/m, f for how uneven gaps and times are, and e for what a request
//! takes in no tier at any load. A request may hold the station while tiers work, so that e says nothing of s. Candidates
//! are weighted by their relative errors in groups of windows of neighboring loads: a shape that is wrong errs in whole
//! groups, where single windows would hide it.

use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample::{mean, sorted_quantile};
use kendall_units::{exact_f64, whole_u64};

use super::residence::waiting_s;
use crate::hidden::sizes;
use crate::model::CONFIDENCE;

/// Groups of windows of neighboring loads, at most, and how many tell a shape.
const GROUPS: usize = 20;
const FEWEST: usize = 6;
/// Share of the capacity that the highest load left: from, to, and how many are tried between.
const SPARE: (f64, f64) = (0.005, 0.75);
const SPARES: u32 = 60;
/// (c_a² + c_s²)/2 of the station, and how likely each is: constant times and even gaps, to bursts.
const FACTORS: [(f64, f64); 5] = [(0.5, 0.2), (0.7, 0.25), (1.0, 0.3), (1.4, 0.15), (2.0, 0.1)];
/// What is believed of the errors of groups before any was seen: so much, worth one of them.
const SCATTER: f64 = 0.03;
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
    /// The likeliest beside windows, the highest of which carried so much.
    pub(super) fn find(mut windows: Vec<Beside>, carried_per_s: f64) -> Option<Self> {
        windows.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
        let together = windows.len().div_ceil(GROUPS).max(1);
        let groups: Vec<Group> = windows.chunks(together).map(Group::of).collect();
        if groups.len() < FEWEST {
            return None;
        }
        // A request holds it for as long as it is there, at most.
        let longest_s = groups.iter().map(|group| group.measured_s).fold(f64::INFINITY, f64::min);
        let mut all: Vec<(Self, f64)> = Vec::new();
        for servers in sizes(4.0 * carried_per_s * longest_s) {
            for (waiting_factor, likely) in FACTORS {
                for place in 0..SPARES {
                    let share = f64::from(place) / f64::from(SPARES - 1);
                    let spare = SPARE.0 * (SPARE.1 / SPARE.0).powf(share);
                    let capacity_per_s = carried_per_s / (1.0 - spare);
                    let found = Self {
                        servers,
                        capacity_per_s,
                        waiting_factor,
                        carried_per_s,
                        elsewhere_s: 0.0,
                        draws: Vec::new(),
                    };
                    let weighed = found.beside(&groups).filter(|_| found.hold_s() <= longest_s);
                    all.extend(weighed.map(|(found, weight)| (found, weight + likely.ln())));
                }
            }
        }
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let (best, most) = all.first().cloned()?;
        all.iter_mut().for_each(|(_, weight)| *weight = (*weight - most).exp());
        Some(Self { draws: drawn(&all), ..best })
    }

    /// The same with e by least squares of relative errors, and its weight as a logarithm.
    fn beside(&self, groups: &[Group]) -> Option<(Self, f64)> {
        let waits = groups.iter().map(|group| group.waiting_s(self));
        let waits = waits.collect::<Option<Vec<f64>>>()?;
        let rest = || {
            let both = groups.iter().zip(&waits);
            both.map(|(group, wait)| (group.missing_s - wait, group.measured_s))
        };
        let weights: f64 = rest().map(|(_, scale)| scale.powi(-2)).sum();
        let sum: f64 = rest().map(|(rest, scale)| rest * scale.powi(-2)).sum();
        let elsewhere_s = (sum / weights).max(0.0);
        let errors = rest().map(|(rest, scale)| ((rest - elsewhere_s) / scale).powi(2));
        let squares = SCATTER * SCATTER + errors.sum::<f64>();
        let weight = -0.5 * exact_f64(groups.len()) * squares.ln();
        Some((Self { elsewhere_s, ..self.clone() }, weight))
    }

    /// s.
    pub fn hold_s(&self) -> f64 {
        f64::from(self.servers) / self.capacity_per_s
    }

    /// How long a request waits for it at a load, s; `None` where it carries less.
    pub(super) fn waiting_s(&self, rate_per_s: f64) -> Option<f64> {
        let waiting_s = waiting_s(rate_per_s, u64::from(self.servers), self.hold_s())?;
        Some(self.waiting_factor * waiting_s)
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

/// Windows of neighboring loads.
struct Group {
    /// Lowest, mean and highest load.
    rates_per_s: [f64; 3],
    measured_s: f64,
    missing_s: f64,
}

impl Group {
    /// Of windows by rising load.
    fn of(windows: &[Beside]) -> Self {
        let of = |pick: fn(&Beside) -> f64| mean(&windows.iter().map(pick).collect::<Vec<f64>>());
        let at = |window: Option<&Beside>| window.map_or(0.0, |window| window.rate_per_s);
        let middle = of(|window| window.rate_per_s);
        Self {
            rates_per_s: [at(windows.first()), middle, at(windows.last())],
            measured_s: of(|window| window.measured_s),
            missing_s: of(|window| window.missing_s),
        }
    }

    /// The mean wait, by Simpson's rule: it is longer than that at the mean load.
    fn waiting_s(&self, station: &Hidden) -> Option<f64> {
        let [low, middle, high] = self.rates_per_s.map(|rate| station.waiting_s(rate));
        Some((low? + 4.0 * middle? + high?) / 6.0)
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

    use super::*;

    /// Response times of a pool of three that each request holds for 20 ms, 5 ms of other work beside it, and a hundredth of noise.
    fn windows(most: f64) -> Vec<Beside> {
        let truth = Hidden {
            servers: 3,
            capacity_per_s: 150.0,
            waiting_factor: 1.0,
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
        let found = Hidden::find(windows(140.0), 140.0).unwrap();
        let interval = found.capacity().interval.unwrap();
        // The load reached 93 % of it.
        assert!(interval.contains(150.0) && interval.high < 1.1 * interval.low, "{interval:?}");
        let [least, most] = found.sizes();
        assert!(least <= 3 && (3..=8).contains(&most), "{least} to {most}");
        let (at, truth) = (found.waiting_s(145.0).unwrap(), 0.2 * erlang_c(2.9, 3).unwrap());
        assert!((at / truth - 1.0).abs() < 0.25, "{at} for {truth} s");
        assert!(found.waiting_s(200.0).is_none());
    }

    #[test]
    fn few_loads_tell_no_pool() {
        let few: Vec<Beside> = windows(140.0).into_iter().step_by(30).collect();
        assert!(Hidden::find(few, 140.0).is_none());
    }
}
