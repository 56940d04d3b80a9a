//! Maximum likelihood of distributions with long tails, and how long a tail is.

use super::Sample;

/// Halvings of an interval that holds a maximum: 1e-12 of its width.
const HALVINGS: u32 = 60;

/// Order statistics that the tail index is estimated from: this power of their number.
const TAIL_POWER: f64 = 0.5;

/// Shape and scale of a Weibull distribution; `None` where a time is 0.
///
/// # Source
/// Law 2015 §6.2.2: the shape solves Σtᵏ ln t/Σtᵏ − 1/k = mean of ln t; by bisection, since the
/// left side rises.
pub(super) fn weibull(sample: &Sample<'_>) -> Option<(f64, f64)> {
    let log_mean = sample.log_mean?;
    let largest = sample.sorted.last().copied()?.ln();
    // Powers of t over its largest value, so that none overflows.
    let sums = |k: f64| {
        sample.sorted.iter().fold((0.0, 0.0), |(sum, weighted), t| {
            let power = (k * (t.ln() - largest)).exp();
            (sum + power, weighted + power * t.ln())
        })
    };
    let excess = |k: f64| {
        let (sum, weighted) = sums(k);
        weighted / sum - 1.0 / k - log_mean
    };
    let (mut low, mut high) = (0.01_f64.ln(), 1e4_f64.ln());
    if excess(low.exp()) > 0.0 || excess(high.exp()) < 0.0 {
        return None;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if excess(middle.exp()) > 0.0 { high = middle } else { low = middle }
    }
    let shape = f64::midpoint(low, high).exp();
    let scale = ((sums(shape).0 / sample.n).ln() / shape + largest).exp();
    (scale.is_finite() && scale > 0.0).then_some((shape, scale))
}

/// Shape and lowest value of Pareto's distribution; `None` where a time is 0.
pub(super) fn pareto(sample: &Sample<'_>) -> Option<(f64, f64)> {
    let low = sample.sorted[0];
    let excess = sample.log_mean? - low.ln();
    (low > 0.0 && excess > 0.0).then(|| (1.0 / excess, low))
}

/// Shape and scale of the Pareto distribution that starts at 0 (Lomax); `None` where the tail is
/// no longer than an exponential's, to which it tends.
pub(super) fn lomax(sample: &Sample<'_>) -> Option<(f64, f64)> {
    let shape =
        |scale: f64| sample.n / sample.sorted.iter().map(|t| (t / scale).ln_1p()).sum::<f64>();
    let height = |log_scale: f64| {
        let scale = log_scale.exp();
        let alpha = shape(scale);
        // Σ ln(1 + t/scale) is n/alpha.
        sample.n * (alpha.ln() - log_scale - (alpha + 1.0) / alpha)
    };
    let (least, most) = ((sample.mean * 1e-4).ln(), (sample.mean * 1e3).ln());
    let (mut low, mut high) = (least, most);
    // Golden section: the profile likelihood has one maximum.
    let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
    for _ in 0..HALVINGS {
        let (a, b) = (high - golden * (high - low), low + golden * (high - low));
        if height(a) < height(b) { low = a } else { high = b }
    }
    let best = f64::midpoint(low, high);
    let inside = best - least > 0.01 && most - best > 0.01;
    inside.then(|| (shape(best.exp()), best.exp()))
}

/// Tail index by the largest √n times: P(T > t) falls as t to its negative. At 2 or below the
/// variance is infinite, at 1 or below the mean is. `None` for fewer than 100 times.
///
/// # Source
/// Hill 1975.
pub(super) fn tail_index(sample: &Sample<'_>) -> Option<f64> {
    if sample.sorted.len() < 100 {
        return None;
    }
    let top = kendall_units::whole_u64(sample.n.powf(TAIL_POWER).floor());
    let top = usize::try_from(top).unwrap_or(10).max(10);
    let beyond = &sample.sorted[sample.sorted.len() - top..];
    let threshold = sample.sorted[sample.sorted.len() - top - 1];
    let excess =
        beyond.iter().map(|t| (t / threshold).ln()).sum::<f64>() / kendall_units::exact_f64(top);
    (threshold > 0.0 && excess > 0.0).then(|| 1.0 / excess)
}
