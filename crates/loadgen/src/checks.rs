//! Did the generator do what was asked? Computed after the run from the moments that it kept.

use kendall_units::{exact_f64, ratio};

use crate::clock::MILLISECOND_NS;
use kendall_protocols::load_result::{Dispersion, GapCheck};

/// Windows over which arrivals are counted for the index of dispersion.
const WINDOWS_NS: [u64; 3] = [MILLISECOND_NS, 10 * MILLISECOND_NS, 100 * MILLISECOND_NS];

/// Compares the stream of requests as planned with the stream as sent.
pub(crate) fn check_gaps(planned: &[u64], sent: &[u64], poisson: bool) -> Option<GapCheck> {
    let (planned_gaps, sent_gaps) = (gaps(planned), gaps(sent));
    let rate = |moments: &[u64]| {
        let span = moments.last()?.checked_sub(*moments.first()?)?;
        (span > 0).then(|| exact_f64(moments.len() - 1) * 1e9 / exact_f64(span))
    };
    Some(GapCheck {
        requests: sent.len() as u64,
        planned_rate_per_s: rate(planned)?,
        sent_rate_per_s: rate(sent)?,
        planned_variation: coefficient_of_variation(&planned_gaps)?,
        sent_variation: coefficient_of_variation(&sent_gaps)?,
        distance_to_plan: two_sample_distance(planned_gaps, sent_gaps.clone())?,
        distance_to_exponential: if poisson { exponential_distance(&sent_gaps) } else { None },
        dispersion: WINDOWS_NS
            .into_iter()
            .filter_map(|window_ns| {
                Some(Dispersion {
                    window_ns,
                    planned: dispersion(planned, window_ns)?,
                    sent: dispersion(sent, window_ns)?,
                })
            })
            .collect(),
    })
}

/// Differences of neighbors, of moments in order.
pub(crate) fn gaps(moments: &[u64]) -> Vec<u64> {
    moments.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
}

/// Standard deviation over mean; `None` for fewer than two gaps or a mean of 0.
pub(crate) fn coefficient_of_variation(gaps: &[u64]) -> Option<f64> {
    if gaps.len() < 2 {
        return None;
    }
    let count = exact_f64(gaps.len());
    let mean = gaps.iter().map(|gap| exact_f64(*gap)).sum::<f64>() / count;
    let squares: f64 = gaps.iter().map(|gap| (exact_f64(*gap) - mean).powi(2)).sum();
    (mean > 0.0).then(|| (squares / (count - 1.0)).sqrt() / mean)
}

/// Kolmogorov–Smirnov distance of the gaps to the exponential distribution of the same mean.
pub(crate) fn exponential_distance(gaps: &[u64]) -> Option<f64> {
    let mut sorted = gaps.to_vec();
    sorted.sort_unstable();
    let count = exact_f64(sorted.len());
    let mean = sorted.iter().map(|gap| exact_f64(*gap)).sum::<f64>() / count;
    if sorted.is_empty() || mean <= 0.0 {
        return None;
    }
    let distances = sorted.iter().enumerate().map(|(index, gap)| {
        let expected = -(-exact_f64(*gap) / mean).exp_m1();
        let below = exact_f64(index) / count;
        (expected - below).abs().max((expected - below - 1.0 / count).abs())
    });
    distances.max_by(f64::total_cmp)
}

/// Kolmogorov–Smirnov distance of two samples.
fn two_sample_distance(mut one: Vec<u64>, mut other: Vec<u64>) -> Option<f64> {
    one.sort_unstable();
    other.sort_unstable();
    let (mut at_one, mut at_other) = (0, 0);
    let mut largest: f64 = 0.0;
    while at_one < one.len() && at_other < other.len() {
        let value = one[at_one].min(other[at_other]);
        at_one += one[at_one..].iter().take_while(|gap| **gap <= value).count();
        at_other += other[at_other..].iter().take_while(|gap| **gap <= value).count();
        let share_one = ratio(at_one as u64, one.len() as u64)?;
        let share_other = ratio(at_other as u64, other.len() as u64)?;
        largest = largest.max((share_one - share_other).abs());
    }
    (!one.is_empty() && !other.is_empty()).then_some(largest)
}

/// Index of dispersion: variance over mean of the counts in windows; 1 for a Poisson process.
/// `None` for fewer than ten whole windows.
fn dispersion(moments: &[u64], window_ns: u64) -> Option<f64> {
    let (first, last) = (*moments.first()?, *moments.last()?);
    let windows = usize::try_from(last.checked_sub(first)? / window_ns).ok()?;
    if !(10..100_000_000).contains(&windows) {
        return None;
    }
    let mut counts = vec![0_u32; windows];
    for moment in moments {
        let index = usize::try_from(moment.saturating_sub(first) / window_ns).ok()?;
        if let Some(count) = counts.get_mut(index) {
            *count += 1;
        }
    }
    let mean = counts.iter().map(|count| f64::from(*count)).sum::<f64>() / exact_f64(windows);
    let squares: f64 = counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum();
    (mean > 0.0).then(|| squares / exact_f64(windows - 1) / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_sent_five_at_a_time_is_told_from_an_even_one() {
        let even: Vec<u64> = (0..5_000).map(|index| index * 200_000).collect();
        let bunched: Vec<u64> = (0..5_000).map(|index| index / 5 * 1_000_000).collect();
        let check = check_gaps(&even, &bunched, false).unwrap();
        assert!(check.planned_variation < 1e-9);
        // Gaps 0, 0, 0, 0, 1 ms: mean 0.2 ms, deviation 0.4 ms.
        assert!((check.sent_variation - 2.0).abs() < 0.01, "{check:?}");
        assert!((check.distance_to_plan - 0.8).abs() < 0.01, "{check:?}");
        assert!((check.sent_rate_per_s / 5_000.0 - 1.0).abs() < 0.001);
    }

    /// By hand: of {1, 2, 3, 4} and {2, 3, 4, 5} it is 1/4.
    #[test]
    fn the_distance_of_two_small_samples() {
        assert_eq!(two_sample_distance(vec![1, 2, 3, 4], vec![2, 3, 4, 5]), Some(0.25));
        assert_eq!(two_sample_distance(vec![], vec![1]), None);
    }
}
