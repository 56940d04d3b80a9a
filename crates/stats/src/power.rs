//! How many runs a study needs, before it is made: the power of its tests.
//!
//! Power is the share of such studies that tell an effect of a given size from chance. It is taken
//! from the noncentral t distribution, whose deviation is the one that runs of the same
//! configuration are expected to have.

use kendall_units::{exact_f64, whole_u64};
use serde::{Deserialize, Serialize};

use crate::compare::confidence_by_ranks;
use crate::distribution::{normal_cdf, t_two_sided};

/// Power that studies are usually planned for.
pub const USUAL_POWER: f64 = 0.8;

/// Most repetitions that are considered.
const MOST_REPLICATIONS: u64 = 1_000;

/// A two-level design 2^k r, or a fraction of it, whose effects are tested against its error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TwoLevel {
    /// Configurations.
    pub cells: u64,
    /// Standard deviation between runs of one configuration.
    pub deviation: f64,
    /// Effect q to be detected: half the change from the low to the high level.
    pub effect: f64,
    /// Of the test.
    pub confidence: f64,
}

impl TwoLevel {
    /// Power with so many repetitions, at least 2.
    ///
    /// # Source
    /// s_q = s/√(cells·r) with cells·(r − 1) degrees of freedom [Jain91 §18.4].
    ///
    /// # Example
    /// ```
    /// let plan = kendall_stats::power::TwoLevel { cells: 8, deviation: 1.0, effect: 0.5, confidence: 0.95 };
    /// assert!(plan.power(2) < plan.power(4));
    /// assert_eq!(plan.replications_for(0.8), Some(5));
    /// ```
    #[must_use]
    pub fn power(&self, replications: u64) -> f64 {
        let (cells, r) = (exact_f64(self.cells), exact_f64(replications));
        let shift = self.effect.abs() * (cells * r).sqrt() / self.deviation;
        t_power(shift, cells * (r - 1.0), self.confidence)
    }

    /// The fewest repetitions that have this power; `None` beyond 1,000.
    #[must_use]
    pub fn replications_for(&self, power: f64) -> Option<u64> {
        (2..=MOST_REPLICATIONS).find(|r| self.power(*r) >= power)
    }

    /// The smallest effect that so many repetitions tell with this power.
    #[must_use]
    pub fn smallest_effect(&self, replications: u64, power: f64) -> f64 {
        smallest(self.deviation, |effect| Self { effect, ..*self }.power(replications) >= power)
    }
}

/// Two systems compared by so many runs each, or by pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TwoSystems {
    /// Standard deviation between runs of one system (of differences within a pair, over √2, where
    /// runs are paired), as a share of the mean.
    pub deviation: f64,
    /// Relative change to be detected.
    pub change: f64,
    /// Of the test.
    pub confidence: f64,
    /// Whether runs are pairs.
    pub paired: bool,
}

impl TwoSystems {
    /// Power with so many runs a side, at least 2, by the test that a comparison of them takes:
    /// Student's t (Welch's for sets) of few, ranks of more. Runs are taken as log-normal, with equal
    /// deviations, and none of them as disturbed.
    ///
    /// # Source
    /// Welch's test: averaged over the ratio of the two variances. Ranks: t with the efficiency 3/π of
    /// Wilcoxon's tests [Hollander, Wolfe 1999 §3.11], at the confidence that so few ranks achieve. Both
    /// within 1 % of simulations (the test below).
    #[must_use]
    pub fn power(&self, runs: u64) -> f64 {
        self.power_by(self.achieved(runs), runs, self.change)
    }

    /// The fewest runs a side that have this power; `None` beyond 1,000.
    #[must_use]
    pub fn runs_for(&self, power: f64) -> Option<u64> {
        // No test does better than t with one deviation for both, which is soon computed.
        let most = |n: u64| t_power(self.shift(n, self.change), self.degrees(n), self.confidence);
        (2..=MOST_REPLICATIONS).find(|n| most(*n) >= power && self.power(*n) >= power)
    }

    /// The smallest relative change that so many runs tell with this power.
    #[must_use]
    pub fn smallest_change(&self, runs: u64, power: f64) -> f64 {
        let achieved = self.achieved(runs);
        smallest(self.deviation, |change| self.power_by(achieved, runs, change) >= power)
    }

    /// The confidence of ranks, where so many runs are compared by them.
    fn achieved(&self, runs: u64) -> Option<f64> {
        let runs = usize::try_from(runs).unwrap_or(usize::MAX);
        confidence_by_ranks(runs, self.paired, self.confidence)
    }

    /// The change in standard errors.
    fn shift(&self, runs: u64, change: f64) -> f64 {
        change.abs().ln_1p() / (self.deviation * (2.0 / exact_f64(runs)).sqrt())
    }

    fn degrees(&self, runs: u64) -> f64 {
        let n = exact_f64(runs);
        if self.paired { n - 1.0 } else { 2.0 * (n - 1.0) }
    }

    fn power_by(&self, achieved: Option<f64>, runs: u64, change: f64) -> f64 {
        let (shift, degrees) = (self.shift(runs, change), self.degrees(runs));
        match achieved {
            Some(confidence) => t_power(shift * EFFICIENCY.sqrt(), degrees, confidence),
            None if self.paired => t_power(shift, degrees, self.confidence),
            None => welch_power(shift, exact_f64(runs), self.confidence),
        }
    }
}

/// Of Wilcoxon's tests beside t, with normal values.
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

/// Power of Welch's test of n values a side with one deviation. The share B of the first variance in the sum
/// of both has a Beta((n−1)/2, (n−1)/2) distribution, independent of that sum, and says the
/// degrees of freedom: (n − 1)/(B² + (1 − B)²).
fn welch_power(shift: f64, n: f64, confidence: f64) -> f64 {
    let steps = 32_u32;
    let (mut told, mut all) = (0.0, 0.0);
    for index in 0..steps {
        // B = sin²θ, whose density in θ is smooth also for two values a side.
        let angle = (f64::from(index) + 0.5) / f64::from(steps) * std::f64::consts::FRAC_PI_2;
        let share = angle.sin().powi(2);
        let weight = (angle.sin() * angle.cos()).powf(n - 2.0);
        let degrees = (n - 1.0) / (share * share + (1.0 - share).powi(2));
        let critical = t_two_sided(confidence, degrees);
        told += weight * beyond(shift, 2.0 * (n - 1.0), critical);
        all += weight;
    }
    told / all
}

/// The smallest size that is told, to 60 bits; some size near 10⁶ deviations where none is.
fn smallest(deviation: f64, told: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, deviation);
    while !told(high) && high < 1e6 * deviation {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if told(middle) { high = middle } else { low = middle }
    }
    high
}

/// Probability that a two-sided t test rejects when t is shifted by `shift` standard errors.
fn t_power(shift: f64, degrees: f64, confidence: f64) -> f64 {
    if degrees <= 0.0 || !shift.is_finite() {
        return if shift.is_finite() { 0.0 } else { 1.0 };
    }
    beyond(shift, degrees, t_two_sided(confidence, degrees))
}

/// Probability that t, shifted by `shift` standard errors, lies further from 0 than `critical`.
///
/// Source: P(|Z + δ| > t·s) averaged over s = √(χ²/ν), by Simpson's rule; the other tail counts.
fn beyond(shift: f64, degrees: f64, critical: f64) -> f64 {
    let density = |s: f64| ((degrees - 1.0) * s.ln() + degrees / 2.0 * (1.0 - s * s)).exp();
    let width = 8.0 / (2.0 * degrees).sqrt();
    let (low, high) = ((1.0 - width).max(1e-6), 1.0 + width.max(0.5) * 1.5);
    let steps = 400_u32;
    let step = (high - low) / f64::from(steps);
    let (mut rejected, mut all) = (0.0, 0.0);
    for index in 0..=steps {
        let s = low + step * f64::from(index);
        let simpson = match index {
            0 => 1.0,
            index if index == steps => 1.0,
            index if index % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let weight = simpson * density(s);
        let tails = normal_cdf(shift - critical * s) + normal_cdf(-shift - critical * s);
        rejected += weight * tails;
        all += weight;
    }
    rejected / all
}

/// Repetitions that an interval of relative half-width `width` needs, for runs that scatter by
/// `deviation` of their mean; `None` beyond 1,000.
#[must_use]
pub fn replications_for_width(deviation: f64, width: f64, confidence: f64) -> Option<u64> {
    (2..=MOST_REPLICATIONS).find(|n| {
        let count = exact_f64(*n);
        t_two_sided(confidence, count - 1.0) * deviation / count.sqrt() <= width
    })
}

/// Runs in all of a two-level design.
#[must_use]
pub fn runs(cells: u64, replications: u64) -> u64 {
    whole_u64(exact_f64(cells) * exact_f64(replications))
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::distribution::{normal_quantile, t_p_value};
    use crate::sample::{mean, variance};

    /// Cohen 1988, table 2.3.5 (two-sided 5 %, d = 0.5, n = 64 a side: 0.80), and R's
    /// power.t.test(n = 20, delta = 1): 0.8689528.
    #[test]
    fn power_agrees_with_the_tables() {
        assert!((t_power(0.5 * 32.0_f64.sqrt(), 126.0, 0.95) - 0.8015).abs() < 2e-4);
        assert!((t_power(10.0_f64.sqrt(), 38.0, 0.95) - 0.868_952_8).abs() < 1e-5);
        assert!((t_power(0.0, 7.0, 0.95) - 0.05).abs() < 1e-6);
    }

    /// Against simulation: 2,000 studies of 2 configurations × 4 repetitions; three standard errors
    /// are 3.3 %.
    #[test]
    fn power_is_the_share_of_studies_that_tell() {
        let plan = TwoLevel { cells: 2, deviation: 2.0, effect: 2.0, confidence: 0.95 };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let told = (0..2_000)
            .filter(|_| {
                let mut side = |center: f64| -> Vec<f64> {
                    (0..4)
                        .map(|_| center + 2.0 * normal_quantile(rng.random::<f64>().max(1e-12)))
                        .collect()
                };
                let (low, high) = (side(-2.0), side(2.0));
                let pooled = (variance(&low).unwrap() + variance(&high).unwrap()) / 2.0;
                let error = (pooled * 2.0 / 4.0).sqrt();
                t_p_value((mean(&high) - mean(&low)) / error, 6.0) < 0.05
            })
            .count();
        let share = exact_f64(told) / 2_000.0;
        assert!((share - plan.power(4)).abs() < 0.033, "{share} {}", plan.power(4));
        let smallest = plan.smallest_effect(4, 0.8);
        assert!((TwoLevel { effect: smallest, ..plan }.power(4) - 0.8).abs() < 1e-6);
    }

    /// Shares of 4,000 sessions of `tests/comparisons.rs` (deviation 2 %, change 3 %) that tell the change:
    /// two standard errors are 1.6 %. By t alone, 5 + 5 runs would have 54 %.
    #[test]
    fn two_systems_have_the_power_of_the_test_that_compares_them() {
        for (runs, paired, told) in [
            (3, false, 0.217),
            (5, false, 0.422),
            (7, false, 0.642),
            (10, false, 0.850),
            (20, false, 0.994),
            (3, true, 0.191),
            (5, true, 0.421),
            (7, true, 0.603),
            (10, true, 0.822),
            (20, true, 0.991),
        ] {
            let plan = TwoSystems { deviation: 0.02, change: 0.03, confidence: 0.95, paired };
            let power = plan.power(runs);
            assert!((power - told).abs() < 0.016 + 0.01, "{runs} {paired}: {power} {told}");
            let change = plan.smallest_change(runs, power);
            assert!((change - 0.03).abs() < 1e-9, "{runs} {paired}: {change}");
        }
    }

    #[test]
    fn runs_and_widths_are_counted() {
        let systems = TwoSystems { deviation: 0.02, change: 0.05, confidence: 0.95, paired: false };
        let runs = systems.runs_for(0.8).unwrap();
        assert!((3..=5).contains(&runs) && systems.power(runs - 1) < 0.8, "{runs}");
        assert_eq!(replications_for_width(0.02, 0.02, 0.95), Some(7));
        assert_eq!(TwoSystems { change: 1e-6, ..systems }.runs_for(0.8), None);
        assert_eq!(super::runs(8, 3), 24);
    }
}
