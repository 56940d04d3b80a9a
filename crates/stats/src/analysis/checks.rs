//! Whether the assumptions of an analysis hold: figures, words, and what to plot.

use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use crate::distribution::{f_p_value, normal_cdf, normal_quantile, t_p_value};
use crate::estimate::{Assumption, Caveat, figures};
use crate::sample::{correlation, mean, median, sum_of_squares};

/// What a model leaves of one run, in the unit of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Residual {
    /// Row of the table, from 1.
    pub row: u64,
    /// Position in time, if known.
    pub order: Option<f64>,
    /// Response (its log₁₀ for the multiplicative model).
    pub observed: f64,
    /// What the model says.
    pub predicted: f64,
    /// Observed minus predicted.
    pub residual: f64,
    /// Residual over its own standard deviation; `None` where the run alone decides its prediction.
    pub studentized: Option<f64>,
    /// How much the run decides its own prediction (0 to 1).
    pub leverage: f64,
}

/// Significance from which nothing speaks against an assumption. Between it and [`DOUBT`] the data
/// do not decide, and "holds" would be said although one sound experiment in twenty shows as much.
const CLEAR: f64 = 0.05;

/// Significance below which an assumption gets a caveat. Strict: each analysis makes several tests,
/// and a caveat that appears in one sound experiment of five would be ignored by readers.
const DOUBT: f64 = 0.01;

/// What a check of an assumption found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing speaks against it.
    Holds,
    /// Something does.
    Doubtful,
    /// Something may: more runs would tell.
    CannotTell,
    /// The data cannot tell.
    NotTestable,
}

/// One assumption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Which.
    pub assumption: Assumption,
    /// What was found.
    pub verdict: Verdict,
    /// The test's statistic.
    pub statistic: Option<f64>,
    /// Probability of so extreme a statistic when the assumption holds.
    pub p_value: Option<f64>,
    /// In words, with the figures and what to do.
    pub words: String,
}

impl Check {
    fn untestable(assumption: Assumption, words: &str) -> Self {
        Self {
            assumption,
            verdict: Verdict::NotTestable,
            statistic: None,
            p_value: None,
            words: words.to_owned(),
        }
    }

    fn tested(assumption: Assumption, statistic: f64, p_value: f64, words: String) -> Self {
        let verdict = match p_value {
            p if p < DOUBT => Verdict::Doubtful,
            p if p < CLEAR => Verdict::CannotTell,
            _ => Verdict::Holds,
        };
        Self { assumption, verdict, statistic: Some(statistic), p_value: Some(p_value), words }
    }

    /// The caveat of the numbers, where the assumption is doubtful.
    #[must_use]
    pub fn caveat(&self) -> Option<Caveat> {
        (self.verdict == Verdict::Doubtful).then(|| Caveat::AssumptionDoubtful {
            assumption: self.assumption,
            detail: self.words.clone(),
        })
    }
}

/// One point of a normal quantile plot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QuantilePoint {
    /// Normal quantile of the residual's rank.
    pub normal: f64,
    /// The residual.
    pub residual: f64,
    /// Where 95 % of such residuals would lie if they were normal: lower end.
    pub band_low: f64,
    /// Upper end.
    pub band_high: f64,
}

/// What the checks use.
pub(super) struct Evidence<'a> {
    pub(super) residuals: &'a [Residual],
    /// Responses of every cell, in the unit of the model.
    pub(super) cells: &'a [Vec<f64>],
    pub(super) error_degrees: usize,
    pub(super) center_points: &'a [f64],
    pub(super) responses: &'a [f64],
}

pub(super) fn all(evidence: &Evidence<'_>) -> Vec<Check> {
    let mut checks = vec![normality(evidence), equal_variance(evidence), spread_and_mean(evidence)];
    checks.push(independence(evidence));
    if !evidence.center_points.is_empty() {
        checks.push(linearity(evidence));
    }
    checks
}

/// What a test found, in words that say no more than its verdict: `doubtful`, that more runs would
/// tell `whether`, or `holds`.
fn judged(p_value: f64, doubtful: &str, whether: &str, holds: &str) -> String {
    match p_value {
        p if p < DOUBT => doubtful.to_owned(),
        p if p < CLEAR => format!("cannot tell; more runs would tell whether {whether}"),
        _ => holds.to_owned(),
    }
}

/// Blom's position of the i-th of n, from 0.
fn position(index: usize, count: usize) -> f64 {
    (exact_f64(index) + 0.625) / (exact_f64(count) + 0.25)
}

pub(super) fn quantile_points(residuals: &[f64]) -> Vec<QuantilePoint> {
    let mut sorted = residuals.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len();
    let deviation = (sum_of_squares(&sorted) / exact_f64(count.max(2) - 1)).sqrt();
    sorted
        .iter()
        .enumerate()
        .map(|(index, residual)| {
            let share = position(index, count);
            let normal = normal_quantile(share);
            // Standard error of an order statistic: √(p(1−p)/n) over the density there.
            let density = (-normal * normal / 2.0).exp() / std::f64::consts::TAU.sqrt();
            let error = deviation * (share * (1.0 - share) / exact_f64(count)).sqrt() / density;
            let center = deviation * normal;
            QuantilePoint {
                normal,
                residual: *residual,
                band_low: center - 1.96 * error,
                band_high: center + 1.96 * error,
            }
        })
        .collect()
}

/// Correlation of the quantile plot against its critical values (Ryan, Joiner 1976), as a p-value
/// between their three levels.
fn normality(evidence: &Evidence<'_>) -> Check {
    let residuals: Vec<f64> = evidence.residuals.iter().map(|r| r.residual).collect();
    let count = exact_f64(residuals.len());
    if evidence.error_degrees < 4 || sum_of_squares(&residuals) <= 0.0 {
        return Check::untestable(Assumption::Normality, "too few residuals to see their shape");
    }
    let points = quantile_points(&residuals);
    let normal: Vec<f64> = points.iter().map(|point| point.normal).collect();
    let ordered: Vec<f64> = points.iter().map(|point| point.residual).collect();
    let correlation = correlation(&normal, &ordered).unwrap_or(0.0);
    let root = count.sqrt();
    let critical = [
        (0.10, 1.0071 - 0.1371 / root - 0.3682 / count + 0.7780 / (count * count)),
        (0.05, 1.0063 - 0.1288 / root - 0.6118 / count + 1.3505 / (count * count)),
        (0.01, 0.9963 - 0.0211 / root - 1.4106 / count + 3.1791 / (count * count)),
    ];
    let p_value = if correlation >= critical[0].1 {
        0.5
    } else if correlation >= critical[1].1 {
        0.07
    } else if correlation >= critical[2].1 {
        0.02
    } else {
        0.005
    };
    let range = match p_value {
        p if p > 0.1 => "p > 0.10",
        p if p > 0.05 => "0.05 < p < 0.10",
        p if p > 0.01 => "0.01 < p < 0.05",
        _ => "p < 0.01",
    };
    let advice = judged(
        p_value,
        "the residuals are not normal; look for outliers, or try the other model",
        "the residuals are normal",
        "a straight line, as normal errors give",
    );
    let words = format!("normal quantile plot correlates by {correlation:.3} ({range}): {advice}");
    Check::tested(Assumption::Normality, correlation, p_value, words)
}

/// Levene's test around the median (Brown, Forsythe 1974) over cells of three and more.
fn equal_variance(evidence: &Evidence<'_>) -> Check {
    let cells: Vec<&Vec<f64>> = evidence.cells.iter().filter(|cell| cell.len() >= 3).collect();
    if cells.len() < 2 {
        let words = "the spread of a cell shows from three replications on";
        return Check::untestable(Assumption::EqualVariance, words);
    }
    let distances: Vec<Vec<f64>> = cells
        .iter()
        .map(|cell| {
            let median = median((*cell).clone());
            let mut distances: Vec<f64> = cell.iter().map(|value| (value - median).abs()).collect();
            // The median of an odd number is one of them: its distance of 0 is not evidence
            // (O'Brien 1978), and would make the test shy in cells of three.
            if distances.len() % 2 == 1 {
                distances.sort_unstable_by(f64::total_cmp);
                distances.remove(0);
            }
            distances
        })
        .collect();
    let everything: Vec<f64> = distances.iter().flatten().copied().collect();
    let within: f64 = distances.iter().map(|cell| sum_of_squares(cell)).sum();
    let between = sum_of_squares(&everything) - within;
    let numerator = exact_f64(cells.len() - 1);
    let denominator = exact_f64(everything.len() - cells.len());
    if within <= 0.0 || denominator <= 0.0 {
        let words = "the replications of every cell are equally far from their median";
        return Check::untestable(Assumption::EqualVariance, words);
    }
    let f_ratio = between / numerator / (within / denominator);
    // Each cell enters with what is left of it: conservative in the cells of three that matter.
    let p_value = f_p_value(f_ratio, numerator, denominator);
    let advice = judged(
        p_value,
        "some cells scatter more than others",
        "some cells scatter more than others",
        "cells scatter alike",
    );
    let words = format!(
        "Levene's test over {} cells: F = {f_ratio:.2}, p = {p_value:.3}: {advice}",
        cells.len()
    );
    Check::tested(Assumption::EqualVariance, f_ratio, p_value, words)
}

/// Rank correlation of the size of the residuals with the prediction: a spread that grows with the
/// response asks for the multiplicative model.
fn spread_and_mean(evidence: &Evidence<'_>) -> Check {
    let sizes: Vec<f64> = evidence.residuals.iter().map(|r| r.residual.abs()).collect();
    let predictions: Vec<f64> = evidence.residuals.iter().map(|r| r.predicted).collect();
    let count = exact_f64(sizes.len());
    if evidence.error_degrees < 4
        || sum_of_squares(&sizes) <= 0.0
        || sum_of_squares(&predictions) <= 0.0
    {
        return Check::untestable(
            Assumption::Additivity,
            "too few residuals to see a trend in their size",
        );
    }
    let rho = correlation(&ranks(&predictions), &ranks(&sizes)).unwrap_or(0.0);
    let t = rho * ((count - 2.0) / (1.0 - rho * rho).max(1e-12)).sqrt();
    let p_value = t_p_value(t, count - 2.0);
    let doubtful = if rho > 0.0 {
        "residuals grow with the prediction: effects may multiply"
    } else {
        "residuals shrink with the prediction"
    };
    let advice = judged(
        p_value,
        doubtful,
        "the size of the residuals follows the prediction",
        "the size of the residuals does not follow the prediction",
    );
    let rho_in_words = format!("{rho:+.2}").replacen('-', "−", 1);
    let words = format!("rank correlation {rho_in_words} (p = {p_value:.3}): {advice}");
    Check::tested(Assumption::Additivity, rho, p_value, words)
}

/// Von Neumann's ratio over the residuals in the order of the runs.
fn independence(evidence: &Evidence<'_>) -> Check {
    let mut ordered: Vec<(f64, f64)> =
        evidence.residuals.iter().filter_map(|r| Some((r.order?, r.residual))).collect();
    if ordered.len() < evidence.residuals.len() || evidence.error_degrees < 4 {
        let words = "the order of the runs is not known: give it as a column named `order`";
        return Check::untestable(Assumption::Independence, words);
    }
    ordered.sort_by(|a, b| a.0.total_cmp(&b.0));
    let series: Vec<f64> = ordered.into_iter().map(|(_, residual)| residual).collect();
    let Some(test) = crate::steady::von_neumann(&series) else {
        return Check::untestable(Assumption::Independence, "the residuals do not differ");
    };
    let p_value = normal_cdf(test.z);
    let advice = judged(
        p_value,
        "neighbors in time resemble each other: the machine drifted; analyze with blocks",
        "neighbors in time resemble each other",
        "neighbors in time do not resemble each other",
    );
    let words =
        format!("von Neumann's ratio {:.2} (2 is ideal, p = {p_value:.3}): {advice}", test.ratio);
    Check::tested(Assumption::Independence, test.ratio, p_value, words)
}

/// Mean of the corners against the mean of the center points.
///
/// Source: Montgomery 2017 §6.8.
fn linearity(evidence: &Evidence<'_>) -> Check {
    let centers = evidence.center_points;
    let difference = mean(evidence.responses) - mean(centers);
    let pure: f64 = evidence.cells.iter().map(|cell| sum_of_squares(cell)).sum();
    let pure_degrees: usize = evidence.cells.iter().map(|cell| cell.len() - 1).sum();
    let degrees = exact_f64(pure_degrees + centers.len() - 1);
    let squares = pure + sum_of_squares(centers);
    if degrees < 1.0 || squares <= 0.0 {
        return Check::untestable(
            Assumption::Linearity,
            "repeat the center point to judge its distance",
        );
    }
    let counts = 1.0 / exact_f64(evidence.responses.len()) + 1.0 / exact_f64(centers.len());
    let t = difference / (squares / degrees * counts).sqrt();
    let p_value = t_p_value(t, degrees);
    let advice = judged(
        p_value,
        "the response bends between the levels: add levels",
        "the response bends between the levels",
        "no bend between the levels",
    );
    let words = format!(
        "corners minus center = {} (t = {t:.2}, p = {p_value:.3}): {advice}",
        figures(difference, 4)
    );
    Check::tested(Assumption::Linearity, t, p_value, words)
}

/// Ranks from 1; equal values share the mean of theirs. Values that differ by rounding alone are
/// equal: residuals of a balanced design come in such ties, and rounding must not order them.
fn ranks(values: &[f64]) -> Vec<f64> {
    let largest = values.iter().fold(0.0_f64, |all, value| all.max(value.abs()));
    let slack = ROUNDING * largest;
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let mut to = from + 1;
        while to < order.len() && values[order[to]] - values[order[to - 1]] <= slack {
            to += 1;
        }
        let shared = f64::midpoint(exact_f64(from + 1), exact_f64(to));
        order[from..to].iter().for_each(|index| ranks[*index] = shared);
        from = to;
    }
    ranks
}

/// Share of the largest value below which a difference is rounding: some 10⁴ roundings.
const ROUNDING: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    /// "p = 0.035: the size of the residuals does not follow the prediction" contradicted its own
    /// verdict, that the runs cannot tell.
    #[test]
    fn the_words_of_a_test_are_those_of_its_verdict() {
        let words = |p_value| judged(p_value, "it does", "it does", "it does not");
        for (p_value, verdict, said) in [
            (0.009, Verdict::Doubtful, "it does"),
            (0.035, Verdict::CannotTell, "cannot tell; more runs would tell whether it does"),
            (0.051, Verdict::Holds, "it does not"),
        ] {
            let check = Check::tested(Assumption::Additivity, 0.4, p_value, words(p_value));
            assert_eq!((check.verdict, check.words.as_str()), (verdict, said));
        }
    }
}
