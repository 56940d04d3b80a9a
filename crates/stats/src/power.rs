//! How many runs a study needs, before it is made: the power of its tests.
//!
//! Power is the share of such studies that tell an effect of a given size from chance. It is taken
//! from the noncentral t distribution, whose deviation is the one that runs of the same
//! configuration are expected to have.

use kendall_units::{exact_f64, whole_u64};
use serde::{Deserialize, Serialize};

use crate::distribution::{normal_cdf, t_two_sided};

/// Power that studies are usually planned for.
pub const USUAL_POWER: f64 = 0.8;

/// Repetitions beyond which nobody goes.
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
        let at = |effect: f64| Self { effect, ..*self }.power(replications);
        let (mut low, mut high) = (0.0, self.deviation);
        while at(high) < power && high < 1e6 * self.deviation {
            high *= 2.0;
        }
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if at(middle) < power { low = middle } else { high = middle }
        }
        high
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
    /// Power with so many runs a side, at least 2.
    #[must_use]
    pub fn power(&self, runs: u64) -> f64 {
        let n = exact_f64(runs);
        let shift = self.change.abs().ln_1p() / (self.deviation * (2.0 / n).sqrt());
        let degrees = if self.paired { n - 1.0 } else { 2.0 * (n - 1.0) };
        t_power(shift, degrees, self.confidence)
    }

    /// The fewest runs a side that have this power; `None` beyond 1,000.
    #[must_use]
    pub fn runs_for(&self, power: f64) -> Option<u64> {
        (2..=MOST_REPLICATIONS).find(|n| self.power(*n) >= power)
    }
}

/// Probability that a two-sided t test rejects when t is shifted by `shift` standard errors.
///
/// Source: P(|Z + δ| > t·s) averaged over s = √(χ²/ν), by Simpson's rule; the other tail counts.
fn t_power(shift: f64, degrees: f64, confidence: f64) -> f64 {
    if degrees <= 0.0 || !shift.is_finite() {
        return if shift.is_finite() { 0.0 } else { 1.0 };
    }
    let critical = t_two_sided(confidence, degrees);
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
        let beyond = normal_cdf(shift - critical * s) + normal_cdf(-shift - critical * s);
        rejected += weight * beyond;
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
