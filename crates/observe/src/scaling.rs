//! The Universal Scalability Law through the windows, where the number in the tier varied enough.

use kendall_queueing::scalability::{self, UslFit};

use crate::analysis::Analysis;

/// Highest over lowest number in the tier from which a curve is more than a line.
const VARIED: f64 = 3.0;

/// Windows that a fit needs: three coefficients and as many degrees of freedom.
const FEWEST: usize = 6;

/// Number in the tier from which its requests meet each other.
const TOGETHER: f64 = 1.0;

/// Number in a tier and its throughput, one a window that is used.
pub fn points(analysis: &Analysis, tier: usize) -> Vec<(f64, f64)> {
    analysis
        .windows
        .used()
        .filter_map(|window| {
            let means = &window.tiers[tier];
            let throughput = means.throughput_per_s?;
            // By Little's law where the number itself is not counted.
            let number = means.number.or_else(|| Some(throughput * means.response_time_s?))?;
            (number > 0.0 && throughput > 0.0).then_some((number, throughput))
        })
        .collect()
}

/// X(N) of a tier.
///
/// # Errors
/// In words, where the number of requests in the tier varied too little for a curve.
pub fn usl(analysis: &Analysis, tier: usize) -> Result<UslFit, String> {
    let points = points(analysis, tier);
    if points.len() < FEWEST {
        return Err(format!(
            "{} windows say how many requests are in it, {FEWEST} are needed",
            points.len()
        ));
    }
    let low = points.iter().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|point| point.0).fold(0.0, f64::max);
    if high < VARIED * low || high < TOGETHER {
        return Err(format!(
            "the number of requests in it went from {low:.3} to {high:.3}: a curve needs {VARIED:.0} \
             times the lowest, and {TOGETHER:.0} at least; look at a time with more different loads"
        ));
    }
    scalability::fit(&points, &scalability::Options::default()).map_err(|error| error.to_string())
}
