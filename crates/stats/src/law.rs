//! Operational laws as checks of a measurement.
//!
//! They hold for any system in any interval in which arrivals match completions, so a deviation
//! accuses the measurement (or a think time, a population or a visit ratio that is not what it was
//! said to be), not the system.

use crate::estimate::{Caveat, Law};

/// What a law makes of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LawCheck {
    /// Which law.
    pub law: Law,
    /// What was measured.
    pub measured: f64,
    /// What the law makes of the other measurements.
    pub expected: f64,
    /// measured / expected − 1.
    pub relative_error: f64,
    /// Relative deviation that is still accepted.
    pub tolerance: f64,
}

impl LawCheck {
    fn new(law: Law, measured: f64, expected: f64, tolerance: f64) -> Self {
        Self { law, measured, expected, relative_error: measured / expected - 1.0, tolerance }
    }

    /// Whether the law is violated; what cannot be computed counts as violated.
    #[must_use]
    pub fn is_violated(&self) -> bool {
        // NaN fails every comparison, and must not pass for a law that holds.
        !matches!(
            self.relative_error.abs().partial_cmp(&self.tolerance),
            Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
        )
    }

    /// The doubt that goes beside the numbers, if there is one.
    #[must_use]
    pub fn caveat(&self) -> Option<Caveat> {
        self.is_violated().then_some(Caveat::LawViolated {
            law: self.law,
            measured: self.measured,
            expected: self.expected,
            tolerance: self.tolerance,
        })
    }
}

/// X against N / (R + Z) in a closed loop. `tolerance` is relative; 0.05 is usual.
///
/// # Source
/// [Jain91 §33.5], [LZGS84 §3.4].
///
/// # Example
/// ```
/// // 10 clients, no think time, 5 ms: 2000 requests a second.
/// let check = kendall_stats::law::interactive_response_time(1_990.0, 10.0, 0.005, 0.0, 0.05);
/// assert!(!check.is_violated());
/// ```
#[must_use]
pub fn interactive_response_time(
    throughput: f64,
    population: f64,
    response_time: f64,
    think_time: f64,
    tolerance: f64,
) -> LawCheck {
    let expected = population / (response_time + think_time);
    LawCheck::new(Law::InteractiveResponseTime, throughput, expected, tolerance)
}

/// N against X·R.
///
/// # Source
/// Little 1961; [Jain91 §33.4].
#[must_use]
pub fn little(number: f64, throughput: f64, response_time: f64, tolerance: f64) -> LawCheck {
    LawCheck::new(Law::Little, number, throughput * response_time, tolerance)
}

/// U against X·D.
///
/// # Source
/// [Jain91 §33.1].
#[must_use]
pub fn utilization(utilization: f64, throughput: f64, demand: f64, tolerance: f64) -> LawCheck {
    LawCheck::new(Law::Utilization, utilization, throughput * demand, tolerance)
}

/// Xₖ against X·Vₖ.
///
/// # Source
/// [Jain91 §33.2].
#[must_use]
pub fn forced_flow(at_center: f64, throughput: f64, visits: f64, tolerance: f64) -> LawCheck {
    LawCheck::new(Law::ForcedFlow, at_center, throughput * visits, tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violated_law_is_a_caveat_with_its_numbers() {
        let check = interactive_response_time(1_000.0, 10.0, 0.005, 0.0, 0.05);
        assert_eq!(
            check.caveat().unwrap().to_string(),
            "the interactive response-time law violated: measured 1000.0, the law gives 2000.0 \
             (-50.0 %, limit 5.0 %)"
        );
    }

    #[test]
    fn what_cannot_be_computed_does_not_pass() {
        assert!(little(0.0, 0.0, 0.0, 0.05).is_violated());
        assert!(interactive_response_time(f64::NAN, 1.0, 1.0, 0.0, 0.05).is_violated());
    }
}
