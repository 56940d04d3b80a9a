//! Operational laws as checks of a measurement: the one check, and the one tolerance.
//!
//! They hold for any system in any interval in which arrivals match completions, so a deviation
//! accuses the measurement (or a think time, a population or a visit ratio that is not what it was
//! said to be), not the system.

use crate::estimate::{Caveat, Law};

/// Relative difference that is passed over whatever the length of a run: what is read from several
/// processes one after the other, histograms of three digits, and a generator's own work between an
/// answer and the next request. It is what a report calls a difference that matters.
const PASSED_OVER: f64 = 0.05;

/// Relative difference that a sound measurement may show.
///
/// Requests under way at the two ends of the period are counted on one side of a law and not on the
/// other: at most 2(R + Z)/T of them. Requests that failed are on neither side.
///
/// # Source
/// Flow balance, \[DB78\].
///
/// # Example
/// ```
/// // Cycles of 10 ms, ten seconds of run, nothing failed.
/// assert!((kendall_stats::law::tolerance(0.01, 10.0, 0.0) - 0.052).abs() < 1e-12);
/// ```
#[must_use]
pub fn tolerance(cycle_s: f64, duration_s: f64, failed_share: f64) -> f64 {
    let edges = if duration_s > 0.0 { 2.0 * cycle_s / duration_s } else { 0.0 };
    PASSED_OVER + edges + failed_share
}

/// What a law makes of a measurement.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LawCheck {
    /// Which law.
    pub law: Law,
    /// The side that was measured directly.
    pub measured: f64,
    /// The side that the law gives from other measurements.
    pub by_law: f64,
    /// `measured / by_law − 1`; `None` where the law gives 0.
    pub relative_difference: Option<f64>,
    /// What the measurement itself allows; see [`tolerance`].
    pub tolerance: f64,
    /// What the difference amounts to, in words, where there is more to say than its size.
    pub explanation: Option<String>,
}

impl LawCheck {
    /// Both sides of a law.
    #[must_use]
    pub fn new(law: Law, measured: f64, by_law: f64, tolerance: f64) -> Self {
        // NaN is a difference too, and one that does not hold.
        let known = by_law.abs() > 0.0 || by_law.is_nan();
        let relative_difference = known.then(|| measured / by_law - 1.0);
        Self { law, measured, by_law, relative_difference, tolerance, explanation: None }
    }

    /// With what the difference amounts to.
    #[must_use]
    pub fn explained(mut self, explanation: Option<String>) -> Self {
        self.explanation = explanation;
        self
    }

    /// Whether the difference lies within the tolerance. What cannot be computed does not hold;
    /// against 0, the tolerance is taken as it is.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self.relative_difference {
            Some(difference) => difference.abs() <= self.tolerance,
            None => self.measured.abs() <= self.tolerance,
        }
    }

    /// The caveat of the numbers, where the law does not hold.
    #[must_use]
    pub fn caveat(&self) -> Option<Caveat> {
        (!self.holds()).then_some(Caveat::LawViolated {
            law: self.law,
            measured: self.measured,
            expected: self.by_law,
            tolerance: self.tolerance,
        })
    }
}

/// X against N / (R + Z) in a closed loop. `tolerance` is relative.
///
/// # Source
/// [Jain91 §33.5], [LZGS84 §3.4].
///
/// # Example
/// ```
/// // 10 clients, no think time, 5 ms: 2000 requests a second.
/// let check = kendall_stats::law::interactive_response_time(1_990.0, 10.0, 0.005, 0.05);
/// assert!(check.holds());
/// ```
#[must_use]
pub fn interactive_response_time(
    throughput: f64,
    population: f64,
    cycle_s: f64,
    tolerance: f64,
) -> LawCheck {
    LawCheck::new(Law::InteractiveResponseTime, throughput, population / cycle_s, tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violated_law_is_a_caveat_with_its_numbers() {
        let check = interactive_response_time(1_000.0, 10.0, 0.005, 0.05);
        assert_eq!(
            check.caveat().unwrap().to_string(),
            "the interactive response-time law violated: measured 1000.0, the law gives 2000.0 \
             (-50.0 %, limit 5.0 %)"
        );
    }

    #[test]
    fn what_cannot_be_computed_does_not_pass() {
        assert!(!interactive_response_time(f64::NAN, 1.0, 1.0, 0.05).holds());
        assert!(!interactive_response_time(1.0, 0.0, 1.0, 0.05).holds());
        assert!(interactive_response_time(0.0, 0.0, 1.0, 0.05).holds());
    }
}
