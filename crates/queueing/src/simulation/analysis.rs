//! From what the replications counted to estimates: ratios of totals with their intervals, the end
//! of the warm-up, the dependence of batches, the stopping rule.

use statrs::distribution::{ChiSquared, ContinuousCDF as _, StudentsT};

use super::plan::Plan;
use super::tally::{Cumulative, Times, Totals, cell_of, lower_edge};
use super::{Doubt, Measured, Settings};

/// Lag-1 correlation of batch means above which a replication counts as too short. With
/// exponentially decaying dependence of relaxation time τ it is 0.33 for batches of 2 τ, so that 20
/// batches below it cover 40 relaxation times and more.
const MOST_CORRELATION: f64 = 0.3;
/// Independent batches that a replication must be worth for intervals, with one replication. Of an empty start there is
/// left the e-th part for each, and half-widths fall with the root of the replications: half of their logarithm more.
/// At 8.1, of 24 replications, 94 to 99 % of the intervals of runs that mostly pass cover (`coverage.rs`); at 3 the start
/// makes them miss one in seven.
const LEAST_INDEPENDENT: f64 = 6.5;
/// How sure it must be that there are enough independent observations beyond a quantile. Runs that
/// are too short and pass by luck saw too few long times: they are those whose intervals miss, so
/// that almost none may pass.
const SURE_OF_BEYOND: f64 = 0.999;
/// Stations in whose series the end of the warm-up is searched: the busiest.
const STATIONS_WATCHED: usize = 5;

/// What one batch of a replication saw.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    /// Mean number at each station.
    pub(super) numbers: Vec<f64>,
    /// Sum and count of the response times of each class.
    pub(super) responses: Vec<(f64, f64)>,
}

/// Two-sided quantile of Student's t.
pub(super) fn t_quantile(confidence: f64, degrees: f64) -> f64 {
    let p = f64::midpoint(1.0, confidence);
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |t| t.inverse_cdf(p))
}

/// The ratio of two totals over independent replications. Replications may differ in their
/// denominators; the variance is that of the residuals numerator − ratio · denominator.
///
/// # Source
/// Ratio estimator, e.g. Law 2015 §9.5; Cochran 1977 §6.3.
pub(super) fn ratio(pairs: &[(f64, f64)], confidence: f64) -> Option<Measured> {
    let numerator: f64 = pairs.iter().map(|(a, _)| a).sum();
    let denominator: f64 = pairs.iter().map(|(_, b)| b).sum();
    if denominator <= 0.0 || !numerator.is_finite() {
        return None;
    }
    let center = numerator / denominator;
    let n = kendall_units::exact_f64(pairs.len());
    let half_width = (pairs.len() >= 2).then(|| {
        let mean = denominator / n;
        let residuals = pairs.iter().map(|(a, b)| (a - center * b) / mean).collect::<Vec<_>>();
        skewed_half_width(&residuals, confidence)
    });
    Some(Measured { center, half_width })
}

/// The mean of one figure a replication around a center that all of them gave together.
pub(super) fn around(center: f64, figures: &[f64], confidence: f64) -> Measured {
    let half_width = (figures.len() >= 2).then(|| skewed_half_width(figures, confidence));
    Measured { center, half_width }
}

/// Half-width of an interval for the mean of `values`, as wide to both sides as to the wider one: where
/// [`skewed_t`] reaches Student's quantile.
fn skewed_half_width(values: &[f64], confidence: f64) -> f64 {
    let n = kendall_units::exact_f64(values.len());
    let (_, deviation, skewness) = moments(values);
    let most = t_quantile(confidence, n - 1.0) / n.sqrt();
    let reaches = |t: f64| {
        let cubic = t - skewness / (6.0 * n);
        if skewness.abs() < 1e-6 {
            return cubic;
        }
        3.0 / skewness * ((1.0 + skewness * cubic).cbrt() - 1.0)
    };
    deviation * reaches(most).abs().max(reaches(-most).abs())
}

/// Mean, standard deviation and skewness; two values have no skewness.
fn moments(values: &[f64]) -> (f64, f64, f64) {
    let n = kendall_units::exact_f64(values.len());
    let mean = values.iter().sum::<f64>() / n;
    let moment = |power| values.iter().map(|z| (z - mean).powi(power)).sum::<f64>();
    let deviation = (moment(2) / (n - 1.0)).sqrt();
    let unbiased = if n > 2.0 { n / (n - 1.0) / (n - 2.0) } else { 0.0 };
    let skewness = if deviation > 0.0 { moment(3) * unbiased / deviation.powi(3) } else { 0.0 };
    (mean, deviation, skewness)
}

/// A quantile of all times recorded. Its interval holds the times x for which the share of
/// longer ones is compatible with 1 − p over the replications; it is as wide to both sides as to
/// the wider one. There is none where the replications may be worth fewer independent observations
/// beyond the quantile than [`least_beyond`].
///
/// Long times come in few and long busy periods, so that most replications have less than their
/// share of them and a few have much more. Student's t of such shares, or of the replications' own
/// quantiles, covers far less than it says; the transformed one allows for the skewness.
///
/// # Source
/// Hall 1992, On the removal of skewness by transformation, J. R. Stat. Soc. B 54.
pub(super) fn quantile(times: &[Times], p: f64, confidence: f64) -> Option<Measured> {
    let mut all = Times::default();
    times.iter().for_each(|own| all.add(own));
    let center = all.histogram.quantile(p)?;
    let (first, end) = all.histogram.cells().unwrap_or((0, 0));
    let own: Vec<Cumulative> = times.iter().map(|own| own.histogram.cumulative()).collect();
    let surely = independent(&own, all.histogram.quantile(0.5)?);
    let enough = own.len() >= 2 && surely * p.min(1.0 - p) >= least_beyond(confidence);
    let half_width = enough.then(|| {
        let degrees = kendall_units::exact_f64(own.len() - 1);
        let most = t_quantile(confidence, degrees);
        let at = |x: f64| skewed_t(&own, p, x);
        let cell = cell_of(center);
        let up = ((cell + 1).max(first)..=end.max(cell + 1)).map(lower_edge);
        let down = (first.min(cell)..=cell).rev().map(lower_edge).chain([0.0]);
        let high = crossing(center, up, most, |x| -at(x));
        let low = crossing(center, down, most, at);
        (high - center).max(center - low)
    });
    Some(Measured { center, half_width })
}

/// Independent observations that must be expected beyond a quantile: with fewer, all of them are
/// missing, and the interval ends below the quantile, more often than it may miss on one side:
/// e^−n ≤ (1 − confidence)/2.
fn least_beyond(confidence: f64) -> f64 {
    (2.0 / (1.0 - confidence)).ln()
}

/// How many independent observations the replications are worth at least, with the probability
/// [`SURE_OF_BEYOND`]: the variance of "longer than x" over that of its share, as the replications
/// have it. With x in the middle it hardly depends on how many long times were seen by luck, as
/// the mean and the share beyond the quantile itself do.
fn independent(own: &[Cumulative], x: f64) -> f64 {
    let n = kendall_units::exact_f64(own.len());
    let count: f64 = own.iter().map(Cumulative::count).sum();
    let share = own.iter().map(|own| own.above(x)).sum::<f64>() / count;
    let squares: f64 = own.iter().map(|own| (own.above(x) - share * own.count()).powi(2)).sum();
    // Σ residuals²/σ² has a χ² distribution: σ² is at most so much.
    let least = ChiSquared::new(n - 1.0).map_or(0.0, |law| law.inverse_cdf(1.0 - SURE_OF_BEYOND));
    let of_share = squares / least * n / (count * count);
    if of_share > 0.0 { share * (1.0 - share) / of_share } else { f64::INFINITY }
}

/// Student's t of "a share 1 − p is longer than x" over replications, freed of its skewness.
fn skewed_t(own: &[Cumulative], p: f64, x: f64) -> f64 {
    let n = kendall_units::exact_f64(own.len());
    let surplus: Vec<f64> = own.iter().map(|own| own.above(x) - (1.0 - p) * own.count()).collect();
    let (mean, deviation, skewness) = moments(&surplus);
    if deviation <= 0.0 {
        return if mean == 0.0 { 0.0 } else { mean.signum() * f64::INFINITY };
    }
    let u = mean / deviation;
    let cubic = u + skewness * u * u / 3.0 + (skewness * u).powi(2) * u / 27.0;
    n.sqrt() * (cubic + skewness / (6.0 * n))
}

/// Where `of` first reaches `most` on the way from `start` along `steps`; the last step otherwise.
fn crossing(
    start: f64,
    steps: impl Iterator<Item = f64>,
    most: f64,
    of: impl Fn(f64) -> f64,
) -> f64 {
    let (mut before, mut value) = (start, of(start).min(most));
    for x in steps {
        let next = of(x);
        if next >= most {
            return before + (x - before) * ((most - value) / (next - value)).clamp(0.0, 1.0);
        }
        (before, value) = (x, next);
    }
    before
}

/// Halves a series by joining neighbors; an odd last one is dropped.
pub(super) fn merge_pairs(batches: &mut Vec<Batch>) {
    let merged: Vec<Batch> = batches
        .chunks_exact(2)
        .map(|pair| Batch {
            numbers: pair[0]
                .numbers
                .iter()
                .zip(&pair[1].numbers)
                .map(|(a, b)| f64::midpoint(*a, *b))
                .collect(),
            responses: pair[0]
                .responses
                .iter()
                .zip(&pair[1].responses)
                .map(|(a, b)| (a.0 + b.0, a.1 + b.1))
                .collect(),
        })
        .collect();
    *batches = merged;
}

/// Whether the marginal standard error rule finds the end of the warm-up in the first half of the
/// series, averaged over replications, at each of the busiest stations.
///
/// # Source
/// MSER: White 1997; batches averaged over replications as in Welch's method, Law 2015 §9.5.1.
pub(super) fn settled(series: &[&[Batch]]) -> bool {
    let Some(first) = series.first().and_then(|batches| batches.first()) else { return true };
    let length = series.iter().map(|batches| batches.len()).min().unwrap_or(0);
    let average = |station: usize| -> Vec<f64> {
        let count = kendall_units::exact_f64(series.len());
        (0..length)
            .map(|b| series.iter().map(|batches| batches[b].numbers[station]).sum::<f64>() / count)
            .collect()
    };
    let mut stations: Vec<(f64, Vec<f64>)> = (0..first.numbers.len())
        .map(|station| {
            let line = average(station);
            (line.iter().sum::<f64>(), line)
        })
        .collect();
    stations.sort_by(|a, b| b.0.total_cmp(&a.0));
    stations.iter().take(STATIONS_WATCHED).all(|(_, line)| 2 * truncation(line) <= line.len())
}

/// Batches to cut so that the mean of the others is most certain.
fn truncation(line: &[f64]) -> usize {
    let n = line.len();
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    // From the back, so that each step adds one value. The last five are too few to judge by.
    for start in (0..n).rev() {
        sum += line[start];
        squares += line[start] * line[start];
        let count = kendall_units::exact_f64(n - start);
        if n - start > 5 {
            let spread = (squares - sum * sum / count).max(0.0) / (count * count);
            // Rounding leaves a constant series a spread of almost nothing: prefer to cut less.
            if spread <= best.0 * (1.0 + 1e-9) {
                best = (spread, start);
            }
        }
    }
    best.1
}

/// Lag-1 correlation of batch means, pooled over replications; the largest of the busiest stations.
fn correlation(series: &[&[Batch]]) -> f64 {
    let Some(first) = series.first().and_then(|batches| batches.first()) else { return 0.0 };
    let mut stations: Vec<(f64, f64)> = (0..first.numbers.len())
        .map(|station| {
            let (mut level, mut products, mut squares) = (0.0, 0.0, 0.0);
            let (mut pairs, mut singles) = (0.0, 0.0);
            for batches in series {
                let count = kendall_units::exact_f64(batches.len());
                let mean = batches.iter().map(|b| b.numbers[station]).sum::<f64>() / count;
                level += mean;
                for pair in batches.windows(2) {
                    products +=
                        (pair[0].numbers[station] - mean) * (pair[1].numbers[station] - mean);
                    pairs += 1.0;
                }
                for batch in *batches {
                    squares += (batch.numbers[station] - mean).powi(2);
                    singles += 1.0;
                }
            }
            let variance = squares / singles;
            let negligible = variance <= (1e-9 * level).powi(2);
            let value = if negligible || pairs < 1.0 { 0.0 } else { products / pairs / variance };
            (level, value)
        })
        .collect();
    stations.sort_by(|a, b| b.0.total_cmp(&a.0));
    stations.iter().take(STATIONS_WATCHED).map(|(_, value)| *value).fold(0.0, f64::max)
}

/// What the stopping rule uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verdict {
    pub(super) precise: bool,
    /// Largest half-width over center among the figures that the rule watches.
    pub(super) widest: f64,
    /// The same from all batches of all replications.
    pub(super) pooled: f64,
    wanted: f64,
    correlation: f64,
    /// Independent batches that each replication is worth, and how many it must be.
    worth: f64,
    needed: f64,
}

impl Verdict {
    /// Narrow enough by both measures, and of batches that hardly depend on one another.
    pub(super) fn enough(&self) -> bool {
        self.precise && self.pooled <= self.wanted && self.correlation <= MOST_CORRELATION
    }

    /// By how much to lengthen what was run.
    pub(super) fn growth(&self) -> f64 {
        let narrower = (self.widest.max(self.pooled) / self.wanted).powi(2) * 1.1;
        let longer = if self.correlation > MOST_CORRELATION { 2.0 } else { 1.0 };
        let growth = narrower.max(longer);
        if growth.is_finite() { growth.clamp(1.3, 4.0) } else { 4.0 }
    }

    /// Whether what is left of the start, and of the replications' dependence on it, is little beside the intervals.
    pub(super) fn long_enough(&self) -> bool {
        self.worth >= self.needed
    }

    pub(super) fn doubts(&self, settings: &Settings) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if !self.precise {
            doubts.push(Doubt::CapReached {
                most_customers: settings.most_customers,
                reached: self.widest,
                wanted: self.wanted,
            });
        }
        if !self.long_enough() {
            doubts.push(Doubt::NoIntervals { worth: self.worth, needed: self.needed });
        } else if self.correlation > MOST_CORRELATION {
            doubts.push(Doubt::TooShort { correlation: self.correlation });
        }
        doubts
    }
}

/// Judges the mean response time and the throughput of every class.
pub(super) fn judge(
    plan: &Plan,
    totals: &[&Totals],
    series: &[&[Batch]],
    settings: &Settings,
) -> Verdict {
    let mut widest: f64 = 0.0;
    for (class, class_plan) in plan.classes.iter().enumerate() {
        if matches!(class_plan.kind, super::plan::Kind::Child) {
            continue;
        }
        let pairs = |of: &dyn Fn(&Totals) -> (f64, f64)| -> Vec<(f64, f64)> {
            totals.iter().map(|totals| of(totals)).collect()
        };
        let response = pairs(&|totals| {
            let times = &totals.systems[class].response;
            (times.sum, kendall_units::exact_f64(times.count))
        });
        let throughput = pairs(&|totals| {
            (kendall_units::exact_f64(totals.systems[class].completions), totals.time)
        });
        let seen = totals.iter().any(|totals| totals.systems[class].offered > 0)
            || totals.iter().any(|totals| totals.systems[class].completions > 0);
        for pairs in [response, throughput] {
            if let Some(measured) = ratio(&pairs, settings.confidence)
                && let Some(half_width) = measured.half_width
            {
                if measured.center > 0.0 {
                    widest = widest.max(half_width / measured.center);
                }
            } else if seen {
                widest = f64::INFINITY;
            }
        }
    }
    let correlation = correlation(series);
    let batches = series.iter().map(|batches| batches.len()).min().unwrap_or(0);
    let worth = |correlation: f64| {
        kendall_units::exact_f64(batches) * (1.0 - correlation) / (1.0 + correlation)
    };
    // Batches of one replication stand for replications themselves.
    let needed = match series.len() {
        1 => worth(MOST_CORRELATION),
        several => LEAST_INDEPENDENT + kendall_units::exact_f64(several).ln() / 2.0,
    };
    Verdict {
        precise: widest <= settings.relative_half_width,
        widest,
        pooled: pooled(plan, series, settings.confidence),
        wanted: settings.relative_half_width,
        correlation,
        worth: worth(correlation),
        needed,
    }
}

/// Relative half-width of the mean response times by the batches of all replications together:
/// with hundreds of degrees of freedom, where the interval over replications has nine.
///
/// A rule that stops when the interval itself is narrow stops where its variance came out small by
/// accident, and covers less than it says. This one hardly depends on that accident.
fn pooled(plan: &Plan, series: &[&[Batch]], confidence: f64) -> f64 {
    let classes = plan.classes.iter().enumerate();
    classes
        .filter(|(_, class)| !matches!(class.kind, super::plan::Kind::Child))
        .filter_map(|(class, _)| pooled_response(series, class, confidence))
        .fold(0.0, f64::max)
}

/// Ratio estimator over batches; neighbors that correlate by ρ count as if there were
/// (1 − ρ)/(1 + ρ) as many, as in a first-order autoregressive series.
fn pooled_response(series: &[&[Batch]], class: usize, confidence: f64) -> Option<f64> {
    let all = || series.iter().flat_map(|batches| batches.iter()).map(|b| b.responses[class]);
    let (sum, count) = all().fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let n = kendall_units::exact_f64(series.iter().map(|batches| batches.len()).sum::<usize>());
    if count <= 0.0 || sum <= 0.0 || n < 2.0 {
        return None;
    }
    let center = sum / count;
    let residual = |batch: &Batch| {
        let (sum, count) = batch.responses[class];
        sum - center * count
    };
    let (mut squares, mut products) = (0.0, 0.0);
    for batches in series {
        squares += batches.iter().map(|batch| residual(batch).powi(2)).sum::<f64>();
        products += batches.windows(2).map(|b| residual(&b[0]) * residual(&b[1])).sum::<f64>();
    }
    if squares <= 0.0 {
        return Some(0.0);
    }
    let dependence = (products / squares).clamp(0.0, 0.9);
    let variance = squares * (1.0 + dependence) / (1.0 - dependence);
    Some(t_quantile(confidence, n - 1.0) * variance.sqrt() / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rising_series_is_not_settled_and_a_flat_one_is() {
        let series = |of: &dyn Fn(i32) -> f64| -> Vec<Batch> {
            (0..200).map(|b| Batch { numbers: vec![of(b)], responses: Vec::new() }).collect()
        };
        let rising = series(&|b| f64::from(b));
        let wave = |b: i32| f64::from(b * 37 % 11);
        let flat = series(&wave);
        let start = series(&|b| wave(b) + if b < 20 { 50.0 } else { 0.0 });
        assert!(!settled(&[&rising]));
        assert!(settled(&[&flat]));
        assert!(settled(&[&start]));
        let line: Vec<f64> = start.iter().map(|b| b.numbers[0]).collect();
        assert!((18..=30).contains(&truncation(&line)));
    }

    #[test]
    fn a_ratio_of_equal_replications_is_certain() {
        let measured = ratio(&[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)], 0.95).unwrap();
        assert!((measured.center - 2.0).abs() < 1e-15);
        assert!(measured.half_width.unwrap() < 1e-12);
        assert!(ratio(&[(0.0, 0.0)], 0.95).is_none());
    }
}
