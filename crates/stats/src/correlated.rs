//! Means and percentiles of observations that depend on one another, with intervals that hold.
//!
//! Response times of successive requests share a queue, so n of them carry the information of far
//! fewer: 1 to 2 % at 80 % utilization. The formulas for independent observations then cover the
//! truth 4–22 % of the time instead of 95 (`correlated/tests.rs` keeps the contrast). Here:
//!
//! 1. the series is cut into batches, fewer and longer ones until von Neumann's test no longer sees
//!    that neighboring batch means resemble each other;
//! 2. at most 20 of them give the standard error, widened by what is left of the correlation;
//! 3. the t quantile is bent by the skewness of the batch means (Johnson 1978), as Skart does;
//! 4. for a percentile, the series is the indicator "above the sample percentile", and the interval
//!    ends at the order statistics that the error of its mean leaves possible;
//! 5. where too little is left after 1–4, there is a caveat and no interval.
//!
//! What it leaves out: differences between runs. Replications see those ([`crate::sample`]).

use kendall_units::{exact_f64, whole_u64};

use crate::distribution::t_two_sided;
use crate::estimate::{Caveat, Estimate, Interval};
use crate::histogram::Histogram;
use crate::sample::{
    BEYOND_PERCENTILE, SampleError, check, check_confidence, check_quantile, mean, sum_of_squares,
    variance,
};
use crate::steady::{autocorrelation, von_neumann};

/// Batches that the search for independence starts from.
const MOST_BATCHES: usize = 1024;

/// Batches that the standard error is made of. More would leave correlation between neighbors,
/// fewer would waste degrees of freedom; by simulation 16 to 30 cover alike.
const BATCHES: usize = 20;

/// Independent batches below which nothing is said: t has 9 degrees of freedom there.
const FEWEST_BATCHES: usize = 10;

/// One-sided significance of von Neumann's test at each batch size.
const INDEPENDENCE_SIGNIFICANCE: f64 = 0.05;

/// Effectively independent observations that a mean needs: five to each of the twenty batches, so
/// that batch means are near enough to normal. By simulation of M/M/1, at 50 the share of all runs
/// that get a wrong interval rises above 6 %.
const EFFECTIVE_FOR_MEAN: f64 = 100.0;

/// The largest values are one in so many.
const LARGEST: u64 = 100;

/// Largest values below which nothing is said of how they fall off: the index has a standard error
/// of a seventh of itself then.
const FEWEST_OF_TAIL: u64 = 50;

/// The mean, and the batches that its interval is made of, if it has one.
///
/// Source: batch means [Jain91 §25.5.2]; skewness and correlation as in Tafazzoli, Wilson, Lada, Steiger
/// 2011 (Skart).
fn of_windows(series: &[f64], confidence: f64) -> (Estimate, Option<Batches>) {
    let estimate = Estimate::exact(mean(series));
    if let Some(caveat) = too_short(series.len()) {
        return (estimate.doubt(caveat), None);
    }
    let batches = Batches::of(series, exact_f64(FEWEST_BATCHES));
    if sum_of_squares(series) <= 0.0 {
        return (constant(estimate, series.len(), confidence), Some(batches));
    }
    if let Some(caveat) = batches.refusal() {
        return (estimate.doubt(caveat), None);
    }
    let (low, high) = batches.errors(confidence);
    let interval =
        Interval { low: estimate.center + low, high: estimate.center + high, confidence };
    (Estimate { interval: Some(interval), ..estimate }, Some(batches))
}

/// A percentile over windows that each kept a histogram, in nanoseconds: what a load test stores.
///
/// The center is the percentile of all values (the mean of percentiles of batches would be biased). Each
/// window is the smallest batch, and weighs by how many values it holds.
///
/// # Errors
/// [`SampleError`] when all histograms are empty, or for a quantile or confidence outside (0, 1).
///
/// # Source
/// Order statistics [David, Nagaraja 2003 §7.1] at the effective size of the indicator series, as
/// in Chen, Kelton 2006.
pub fn quantile_of_windows(
    windows: &[Histogram],
    quantile: f64,
    confidence: f64,
) -> Result<Estimate, SampleError> {
    check_quantile(quantile)?;
    check_confidence(confidence)?;
    let all = Histogram::merged(windows);
    let center = all.quantile(quantile).ok_or(SampleError::Empty)?;
    if let Some(caveat) = too_short(windows.len()) {
        return Ok(Estimate::exact(exact_f64(center)).doubt(caveat));
    }
    let above =
        kendall_units::ratio(all.count_above(center), all.count()).ok_or(SampleError::Empty)?;
    let per_window = exact_f64(all.count()) / exact_f64(windows.len());
    // Residuals of a ratio: a window with twice the requests has twice the say.
    let indicator: Vec<f64> = windows
        .iter()
        .map(|window| {
            let excess = exact_f64(window.count_above(center)) - above * exact_f64(window.count());
            excess / per_window
        })
        .collect();
    let batches = Batches::of(&indicator, exact_f64(FEWEST_BATCHES));
    let ends = |share: f64| all.quantile(share).map_or(f64::NAN, exact_f64);
    let (value, count) = (exact_f64(center), exact_f64(all.count()));
    let center = Center { value, quantile, above, count };
    Ok(quantile_estimate(center, &batches, confidence, ends))
}

/// The mean over windows that each kept a histogram, in nanoseconds, weighted by their counts.
///
/// No interval where fewer than 100 effectively independent values or 10 independent windows are
/// left.
///
/// # Errors
/// [`SampleError`] when all histograms are empty, or for a confidence outside (0, 1).
///
/// # Source
/// Ratio estimator over batches [Law, Kelton 2000 §9.5.3].
pub fn mean_of_histograms(windows: &[Histogram], confidence: f64) -> Result<Estimate, SampleError> {
    check_confidence(confidence)?;
    let counts: Vec<f64> = windows.iter().map(|window| exact_f64(window.count())).collect();
    let sums: Vec<f64> =
        windows.iter().zip(&counts).map(|(w, n)| n * w.mean().unwrap_or(0.0)).collect();
    let (spread, batches) = ratio_of_windows(&sums, &counts, confidence)?;
    let count: f64 = counts.iter().sum();
    let all = Histogram::merged(windows);
    let spread = match heavy_tail(&all) {
        Some(caveat) => spread.doubt(caveat),
        None => spread,
    };
    let variance = all.standard_deviation().unwrap_or(0.0).powi(2);
    let effective = batches.and_then(|batches| batches.effective(variance));
    // One value in all has windows that do not differ, and says nothing of the error.
    let effective = effective.map_or(count, |effective| effective.min(count));
    if spread.interval.is_none() || effective >= EFFECTIVE_FOR_MEAN {
        return Ok(spread);
    }
    let (batches, need) = (whole_u64(effective), whole_u64(EFFECTIVE_FOR_MEAN));
    Ok(Estimate { interval: None, ..spread }
        .doubt(Caveat::Autocorrelated { count: whole_u64(count), effective })
        .doubt(Caveat::TooCorrelated { batches, need }))
}

/// Whether the largest values fall off like a power at which the variance is infinite: Hill's
/// estimate of the index from the largest hundredth, at least 50 values, lies below 2.
///
/// Source: Hill 1975. Exponential times have 4.6 there, hyper-exponential ones of c² = 4 have 2.4.
fn heavy_tail(all: &Histogram) -> Option<Caveat> {
    let values = all.count() / LARGEST;
    if values < FEWEST_OF_TAIL {
        return None;
    }
    let threshold = exact_f64(all.quantile(1.0 - 1.0 / exact_f64(LARGEST))?.max(1));
    let (mut logs, mut beyond) = (0.0, 0_u64);
    for (from, to, count) in all.cells() {
        let middle = exact_f64(from) / 2.0 + exact_f64(to) / 2.0;
        if middle > threshold {
            logs += exact_f64(count) * (middle / threshold).ln();
            beyond += count;
        }
    }
    let index = exact_f64(beyond) / logs;
    (beyond >= FEWEST_OF_TAIL && index < 2.0).then_some(Caveat::HeavyTail { index, values: beyond })
}

/// A rate over windows of different lengths: `counts` over `lengths`, such as requests a second.
///
/// # Errors
/// [`SampleError`] when there are no windows or they have no length.
///
/// # Source
/// As [`mean_of_histograms`].
pub fn rate_of_windows(
    counts: &[f64],
    lengths: &[f64],
    confidence: f64,
) -> Result<Estimate, SampleError> {
    check_confidence(confidence)?;
    let mut rate = ratio_of_windows(counts, lengths, confidence)?.0;
    // However wide its error, no rate is below 0.
    if let Some(interval) = &mut rate.interval {
        interval.low = interval.low.max(0.0);
    }
    Ok(rate)
}

/// Σ`above`/Σ`below`, with an error by the residuals of a ratio: a window with twice the weight has
/// twice the say.
fn ratio_of_windows(
    above: &[f64],
    below: &[f64],
    confidence: f64,
) -> Result<(Estimate, Option<Batches>), SampleError> {
    let total: f64 = below.iter().sum();
    if total <= 0.0 {
        return Err(SampleError::Empty);
    }
    let center = above.iter().sum::<f64>() / total;
    let mean_weight = total / exact_f64(below.len());
    let residuals: Vec<f64> = above
        .iter()
        .zip(below)
        .map(|(sum, weight)| (sum - center * weight) / mean_weight)
        .collect();
    check(&residuals)?;
    let (spread, batches) = of_windows(&residuals, confidence);
    let interval = spread.interval.map(|i| Interval {
        low: center + i.low,
        high: center + i.high,
        confidence,
    });
    Ok((Estimate { center, interval, caveats: spread.caveats }, batches))
}

/// Why so few windows carry no interval.
fn too_short(windows: usize) -> Option<Caveat> {
    let need = whole_u64(exact_f64(FEWEST_BATCHES));
    let windows = whole_u64(exact_f64(windows));
    (windows < need).then_some(Caveat::TooFewWindows { windows, need })
}

/// The sample percentile, and the share of the observations above it.
#[derive(Debug, Clone, Copy)]
struct Center {
    value: f64,
    quantile: f64,
    above: f64,
    /// How many observations: they are worth no more independent ones, however evenly they alternate.
    count: f64,
}

fn quantile_estimate(
    center: Center,
    batches: &Batches,
    confidence: f64,
    order_statistic: impl Fn(f64) -> f64,
) -> Estimate {
    let estimate = Estimate::exact(center.value);
    let tail = center.quantile.min(1.0 - center.quantile);
    let need = (BEYOND_PERCENTILE * (1.0 - tail) / tail).max(EFFECTIVE_FOR_MEAN);
    let quantile = center.quantile;
    // Variance of the indicator from the quantile that was asked for: the sample's own share above
    // is 0 when the percentile is the maximum.
    let effective = batches.effective(quantile * (1.0 - quantile)).unwrap_or(0.0).min(center.count);
    if center.above <= 0.0 || effective < need {
        return estimate.doubt(Caveat::TooFewSamples { quantile, effective, need });
    }
    if let Some(caveat) = batches.refusal() {
        return estimate.doubt(caveat);
    }
    // The share above the true percentile is 1 − quantile plus an error; the signs turn round
    // because here the truth is fixed and the sample errs.
    let (low, high) = batches.errors_of_clusters(confidence);
    // A share beyond the sample ends at its smallest or largest value, which lie far outside.
    let (lower_share, upper_share) = ((quantile + low).max(0.0), (quantile + high).min(1.0));
    let interval = Interval {
        low: order_statistic(lower_share),
        high: order_statistic(upper_share),
        confidence,
    };
    Estimate { interval: Some(interval), ..estimate }
}

fn constant(estimate: Estimate, count: usize, confidence: f64) -> Estimate {
    if count < FEWEST_BATCHES {
        let have = whole_u64(exact_f64(count));
        let need = whole_u64(exact_f64(FEWEST_BATCHES));
        return estimate.doubt(Caveat::TooCorrelated { batches: have, need });
    }
    let center = estimate.center;
    Estimate { interval: Some(Interval::around(center, 0.0, confidence)), ..estimate }
}

/// A series cut into batches long enough to be independent.
#[derive(Debug)]
struct Batches {
    /// Most batches at which neighbors did not resemble each other; 0 if they always did.
    independent: usize,
    /// Batches that the error is made of.
    used: usize,
    /// Standard error of the mean, widened by the correlation that is left.
    standard_error: f64,
    /// Skewness of the batch means over 6√batches: Johnson's term.
    bend: f64,
    /// Excess kurtosis of the batch means: by how much their variance is less sure than that of
    /// normal ones.
    kurtosis: f64,
}

impl Batches {
    fn of(series: &[f64], fewest_observations: f64) -> Self {
        let enough = exact_f64(series.len()) >= fewest_observations;
        let found = independent_batches(series);
        let Some(independent) = found.filter(|_| enough) else {
            // Still an error, for the effective size that the refusal prints.
            let used = Cut::at_most(FEWEST_BATCHES, series.len());
            let standard_error = standard_error(&used.means(series));
            let independent = found.map_or(0, |cut| cut.count).min(used.count);
            return Self {
                independent,
                used: used.count,
                standard_error,
                bend: 0.0,
                kurtosis: 0.0,
            };
        };
        // Fewer where there are more than it takes; cut once, since each cut rounds.
        let fewer = Cut::at_most(BATCHES, series.len());
        let used = if fewer.count < independent.count { fewer } else { independent };
        let means = used.means(series);
        let bend = skewness(&means) / (6.0 * exact_f64(used.count).sqrt());
        // Judged from all independent batches, of which it shrinks by merging.
        let merged = exact_f64(used.count) / exact_f64(independent.count);
        let kurtosis = merged * excess_kurtosis(&independent.means(series));
        let standard_error = standard_error(&means);
        Self { independent: independent.count, used: used.count, standard_error, bend, kurtosis }
    }

    /// Observations of variance `variance` that would have this standard error if independent: n·s²/σ², where
    /// σ²/n is the variance of the mean by batch means [Law, Kelton 2000 §9.5.3].
    fn effective(&self, variance: f64) -> Option<f64> {
        (self.standard_error > 0.0).then(|| variance / self.standard_error.powi(2))
    }

    fn refusal(&self) -> Option<Caveat> {
        (self.independent < FEWEST_BATCHES).then(|| Caveat::TooCorrelated {
            batches: whole_u64(exact_f64(self.independent)),
            need: whole_u64(exact_f64(FEWEST_BATCHES)),
        })
    }

    /// The two ends of truth minus estimate, at `confidence`.
    fn errors(&self, confidence: f64) -> (f64, f64) {
        self.errors_at(confidence, exact_f64(self.used - 1))
    }

    /// The same for batches of rare events that come in clusters, as those beyond a high percentile
    /// do: their variance is estimated as well as that of fewer normal ones.
    ///
    /// Var(s²) = σ⁴·(2/(n − 1) + κ/n), set equal to that of a normal sample, 2σ⁴/degrees.
    fn errors_of_clusters(&self, confidence: f64) -> (f64, f64) {
        let count = exact_f64(self.used);
        let spread = 2.0 / (count - 1.0) + self.kurtosis.max(0.0) / count;
        self.errors_at(confidence, (2.0 / spread).max(2.0))
    }

    fn errors_at(&self, confidence: f64, degrees: f64) -> (f64, f64) {
        let t = t_two_sided(confidence, degrees);
        (
            -johnson(t, self.bend) * self.standard_error,
            -johnson(-t, self.bend) * self.standard_error,
        )
    }
}

/// Most batches, at most 1024, whose neighbors do not resemble each other; `None` if they always do.
fn independent_batches(series: &[f64]) -> Option<Cut> {
    let mut cut = Cut::at_most(MOST_BATCHES, series.len());
    while cut.count >= FEWEST_BATCHES {
        match von_neumann(&cut.means(series)) {
            Some(test) if test.p_value < INDEPENDENCE_SIGNIFICANCE => {
                cut = Cut::at_most(cut.count * 3 / 4, series.len());
            }
            _ => return Some(cut),
        }
    }
    None
}

/// Equal batches of a series. What does not fill them is left out at the start, where a remnant of the
/// warm-up would be.
#[derive(Debug, Clone, Copy)]
struct Cut {
    length: usize,
    count: usize,
}

impl Cut {
    /// At most `most` batches that leave less than one out: a run of 60 windows is not 45 batches of one, or a
    /// quarter of it would be in the mean and in no error.
    fn at_most(most: usize, len: usize) -> Self {
        let length = len.div_ceil(most.max(1)).max(1);
        Self { length, count: len / length }
    }

    fn means(self, series: &[f64]) -> Vec<f64> {
        let used = &series[series.len() - self.length * self.count..];
        used.chunks_exact(self.length).map(mean).collect()
    }
}

fn standard_error(means: &[f64]) -> f64 {
    let Some(variance) = variance(means) else { return 0.0 };
    let left = autocorrelation(means, 1).unwrap_or(0.0).clamp(0.0, 0.9);
    (variance / exact_f64(means.len()) * (1.0 + left) / (1.0 - left)).sqrt()
}

fn skewness(values: &[f64]) -> f64 {
    let count = exact_f64(values.len());
    let Some(deviation) = variance(values).map(f64::sqrt).filter(|s| *s > 0.0 && count > 2.0)
    else {
        return 0.0;
    };
    let center = mean(values);
    let cubes: f64 = values.iter().map(|value| ((value - center) / deviation).powi(3)).sum();
    cubes * count / ((count - 1.0) * (count - 2.0))
}

/// Fourth moment over the square of the second, less 3; 0 for a constant.
fn excess_kurtosis(values: &[f64]) -> f64 {
    let (count, center) = (exact_f64(values.len()), mean(values));
    let moment =
        |power: i32| values.iter().map(|value| (value - center).powi(power)).sum::<f64>() / count;
    let second = moment(2);
    if second > 0.0 { moment(4) / (second * second) - 3.0 } else { 0.0 }
}

/// Johnson's transformation of a t quantile, inverted in closed form by Willink 2005.
fn johnson(t: f64, bend: f64) -> f64 {
    if bend.abs() < 1e-6 {
        return t;
    }
    ((1.0 + 6.0 * bend * (t - bend)).cbrt() - 1.0) / (2.0 * bend)
}

#[cfg(test)]
mod tests;
