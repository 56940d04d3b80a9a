//! When a study has repeated enough: as soon as the interval is narrow enough, never as soon as a
//! difference is significant.
//!
//! Stopping at significance is not offered: a test that is repeated after every run finds
//! something in 16–22 % of the sessions in which there is nothing (`tests/coverage.rs` shows it).
//! Stopping at a width does not depend on the direction of the result. It does stop more readily at
//! runs that happened to resemble one another, so the t interval at that moment is too narrow (88
//! to 94 % instead of 95). Two things pay that back: a margin that shrinks with the number of
//! repetitions, and an interval that is stated as wide as it was wanted, never narrower. Together
//! they cover 95 % and more for every spread that was tried (`tests/coverage.rs`).
//!
//! Few runs that resemble one another may be those that nothing disturbed. So a width is believed
//! only where [`Evidence`] carries it: [`EVIDENCE`] runs of the study without a disturbance, or as
//! many of the configuration itself.

use kendall_units::{exact_f64, whole_u64};
use serde::{Deserialize, Serialize};

use crate::distribution::{f_p_value, t_two_sided};
use crate::estimate::{Caveat, Estimate, Interval};
use crate::sample::{SampleError, mean_interval, median, variance};
use crate::steady::autocorrelation;

/// `repetitions = { min = 3, max = 20, until = "2%", confidence = 0.95 }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StoppingRule {
    /// Repetitions before the rule is first applied; at least 2.
    pub min: u64,
    /// Repetitions after which it ends in any case.
    pub max: u64,
    /// Half-width of the interval over the mean that is wanted, such as 0.02.
    pub relative_half_width: f64,
    /// Confidence of that interval.
    pub confidence: f64,
}

/// A rule that cannot be followed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum RuleError {
    #[error("repetitions from {min} to {max}: the least is 2, and min must not exceed max")]
    Repetitions { min: u64, max: u64 },
    #[error("a relative half-width of {width} is not between 0 and 1, such as 0.02")]
    Width { width: f64 },
    /// The observations or the confidence.
    #[error(transparent)]
    Sample(#[from] SampleError),
}

/// What to do after a repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Decision {
    /// Run again: so many repetitions in all will probably be enough, if that can be estimated.
    Continue { expected: Option<u64> },
    /// The interval is narrow enough.
    Enough { estimate: Estimate },
    /// The cap came first; the estimate carries [`Caveat::CapReached`].
    CapReached { estimate: Estimate },
}

impl StoppingRule {
    /// Refuses rules that cannot be followed.
    ///
    /// # Errors
    /// [`RuleError`] that says which value and why.
    pub fn check(&self) -> Result<(), RuleError> {
        crate::sample::check_confidence(self.confidence)?;
        if self.min < 2 || self.min > self.max {
            return Err(RuleError::Repetitions { min: self.min, max: self.max });
        }
        if !(self.relative_half_width > 0.0 && self.relative_half_width < 1.0) {
            return Err(RuleError::Width { width: self.relative_half_width });
        }
        Ok(())
    }

    /// Looks at one number per repetition of the only configuration, in the order in which they were run: repetitions that
    /// resemble their neighbors (a machine that is slow for minutes) carry the information of fewer,
    /// so their interval is wider.
    ///
    /// # Errors
    /// [`RuleError`] for a rule that cannot be followed and for observations that are not finite.
    ///
    /// # Source
    /// Fixed-width sequential intervals: Chow, Robbins 1965; [Law, Kelton 2000 §9.4.1]. The margin
    /// for few repetitions is ours, see `docs/methodology.md`.
    pub fn decide(&self, values: &[f64]) -> Result<Decision, RuleError> {
        self.decide_among(values, Evidence::of(self, [values]))
    }

    /// As [`decide`](Self::decide), for one of several configurations that were run side by side:
    /// what disturbs runs is taken to belong to the machine, so the runs of all are evidence.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn decide_among(&self, values: &[f64], evidence: Evidence) -> Result<Decision, RuleError> {
        let own = whole_u64(exact_f64(values.len()));
        let carries = own >= EVIDENCE || (evidence.runs >= EVIDENCE && !evidence.disturbed);
        // Others may bring the evidence too; by itself the configuration needs so many.
        let least = if carries { self.min } else { self.min.max(EVIDENCE) };
        self.look(values, correlation_factor(values), least)
    }

    /// As [`decide`](Self::decide), for runs between which others were made, so that they do not
    /// depend on one another, and whose disturbances were looked for before.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn decide_independent(&self, values: &[f64]) -> Result<Decision, RuleError> {
        self.look(values, 1.0, self.min)
    }

    /// Whether one of these runs lies so far from the others' median that a share of such runs
    /// would move the mean out of the width that is wanted.
    fn shows_disturbance(&self, values: &[f64]) -> bool {
        if values.len() < 3 {
            return false;
        }
        let middle = median(values.to_vec());
        let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        let matters = DISTURBED_WIDTHS * self.relative_half_width * middle.abs();
        let limit = matters.max(DISTURBED_DISTANCES * median(distances.clone()));
        distances.iter().any(|distance| *distance > limit)
    }

    /// `widened` is the factor by which the half-width grows for what the repetitions share, and
    /// `least` the repetitions below which no width is believed.
    fn look(&self, values: &[f64], widened: f64, least: u64) -> Result<Decision, RuleError> {
        self.check()?;
        let count = whole_u64(exact_f64(values.len()));
        if values.len() < 2 {
            return Ok(Decision::Continue { expected: None });
        }
        let mut estimate = mean_interval(values, self.confidence)?;
        if let Some(interval) = estimate.interval {
            let half_width = widened * interval.half_width();
            estimate.interval =
                Some(Interval::around(estimate.center, half_width, self.confidence));
        }
        let reached = estimate.relative_half_width().unwrap_or(f64::INFINITY);
        if count >= least && reached * caution(exact_f64(count)) <= self.relative_half_width {
            let half_width = self.relative_half_width * estimate.center.abs();
            let interval = Interval::around(estimate.center, half_width, self.confidence);
            return Ok(Decision::Enough {
                estimate: Estimate::with_interval(estimate.center, interval),
            });
        }
        if count >= self.max {
            let caveat = Caveat::CapReached {
                repetitions: count,
                reached_share: reached,
                wanted_share: self.relative_half_width,
            };
            return Ok(Decision::CapReached { estimate: estimate.doubt(caveat) });
        }
        Ok(Decision::Continue { expected: self.expected(values, estimate.center, least) })
    }

    /// Smallest number at which today's standard deviation would do, capped.
    fn expected(&self, values: &[f64], center: f64, least: u64) -> Option<u64> {
        let deviation = variance(values)?.sqrt() / center.abs();
        let wanted = |n: u64| {
            let count = exact_f64(n);
            let half_width = t_two_sided(self.confidence, count - 1.0) * deviation / count.sqrt();
            half_width * caution(count) <= self.relative_half_width
        };
        let from = least.max(whole_u64(exact_f64(values.len())) + 1);
        // The width falls with every repetition, so halving finds the first that will do.
        let (mut low, mut high) = (from, self.max.max(from));
        while low < high {
            let middle = low + (high - low) / 2;
            if wanted(middle) { high = middle } else { low = middle + 1 }
        }
        Some(low.min(self.max))
    }
}

/// What the runs of a study have shown of disturbances: runs that are far from the others of their
/// configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Runs of all configurations.
    pub runs: u64,
    /// Whether one of them was disturbed.
    pub disturbed: bool,
}

impl Evidence {
    /// From the repetitions of each configuration.
    pub fn of<'a>(
        rule: &StoppingRule,
        configurations: impl IntoIterator<Item = &'a [f64]>,
    ) -> Self {
        let none = Self { runs: 0, disturbed: false };
        configurations.into_iter().fold(none, |evidence, values| Self {
            runs: evidence.runs + whole_u64(exact_f64(values.len())),
            disturbed: evidence.disturbed || rule.shows_disturbance(values),
        })
    }
}

/// Runs that carry a width.
///
/// By simulation (`tests/coverage.rs`): with one run in five 30 % slow, stopping from 3
/// repetitions on held 67 % at a spread of 1 %, from 14 on 90 %, from 18 on 95 %.
pub const EVIDENCE: u64 = 18;

/// A run is disturbed that is further from the median than so many wanted half-widths (one run in
/// five of that kind moves the mean by one half-width), and than so many median distances.
const DISTURBED_WIDTHS: f64 = 5.0;
const DISTURBED_DISTANCES: f64 = 5.0;

/// Factor on the half-width for repetitions that resemble their neighbors, √((1 + ρ)/(1 − ρ)).
///
/// The sample's own ρ is too low by (1 + 4ρ)/n on average, and its standard error, 1/√n, is added,
/// since few repetitions that happen to seem independent would stop too soon. Chosen by simulation
/// (`tests/coverage.rs`): at a correlation of ½ the promise holds in 93 % and more of the sessions,
/// without it in 74 %; independent repetitions pay for it with a third more.
fn correlation_factor(values: &[f64]) -> f64 {
    let Some(sample) = autocorrelation(values, 1) else { return 1.0 };
    let count = exact_f64(values.len());
    let correlation = sample + (1.0 + 4.0 * sample.max(0.0)) / count + 1.0 / count.sqrt();
    let correlation = correlation.clamp(0.0, 0.9);
    ((1.0 + correlation) / (1.0 - correlation)).sqrt()
}

/// Factor on the half-width at the moment of decision: looking after every run stops more readily
/// at runs that happen to lie close together, the more so the fewer they are.
fn caution(count: f64) -> f64 {
    1.0 + CAUTION / count
}

/// By simulation: with 3 the rule covers at least 95 % from three repetitions on, for spreads from
/// 0.5 to 10 % and a wanted ±2 %, for 6 repetitions more at a spread of 5 %; without it 91 %.
const CAUTION: f64 = 3.0;

/// Highest and lowest repetition of a configuration that are worth another one, as a ratio.
const UNLIKE: f64 = 1.1;

/// Probability that any configuration is called unlike where all scatter alike.
const FALSE_ALARM: f64 = 0.01;

/// The configurations whose repetitions differ by more than 10 % and significantly more than those of all others,
/// the most unlike one first: a disturbed run is among them, and another repetition tells which it is. At most a
/// quarter of them: more are how the system is.
///
/// Source: F test of the variance of logarithms within a configuration against the pooled one of the others
/// [Montgomery 2017 §3.4.3], by Bonferroni over configurations.
///
/// # Example
/// ```
/// use kendall_stats::stopping::unlike;
///
/// let of = |values: &[f64]| values.to_vec();
/// let alike = [of(&[100.0, 101.0]), of(&[203.0, 200.0]), of(&[402.0, 399.0]), of(&[405.0, 401.0])];
/// assert!(unlike(&alike).is_empty());
/// let mut disturbed = alike;
/// disturbed[2][1] = 250.0;
/// assert_eq!(unlike(&disturbed), [2]);
/// ```
#[must_use]
pub fn unlike(configurations: &[Vec<f64>]) -> Vec<usize> {
    let logs = |values: &Vec<f64>| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let mut rest: Vec<(usize, Vec<f64>)> = configurations
        .iter()
        .map(logs)
        .enumerate()
        .filter(|(_, logs)| logs.len() > 1 && logs.iter().all(|log| log.is_finite()))
        .collect();
    let most = configurations.len() / 4;
    let mut found = Vec::new();
    while found.len() < most {
        let scatter = |logs: &[f64]| (variance(logs).unwrap_or(0.0), exact_f64(logs.len() - 1));
        let Some(widest) = (0..rest.len())
            .max_by(|a, b| scatter(&rest[*a].1).0.total_cmp(&scatter(&rest[*b].1).0))
        else {
            break;
        };
        let (number, logs) = rest.swap_remove(widest);
        let (own, own_degrees) = scatter(&logs);
        let others = rest.iter().map(|(_, logs)| scatter(logs));
        let (squares, degrees) = others.fold((0.0, 0.0), |(squares, all), (variance, degrees)| {
            (squares + variance * degrees, all + degrees)
        });
        if degrees < 2.0 || range(&logs) < UNLIKE.ln() {
            break;
        }
        let ratio = own / (squares / degrees).max(1e-12);
        if exact_f64(rest.len() + 1) * f_p_value(ratio, own_degrees, degrees) > FALSE_ALARM {
            break;
        }
        found.push(number);
    }
    found
}

fn range(values: &[f64]) -> f64 {
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
    high - low
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StoppingRule =
        StoppingRule { min: 3, max: 20, relative_half_width: 0.02, confidence: 0.95 };

    #[test]
    fn it_goes_on_until_the_interval_is_narrow() {
        let Decision::Continue { expected: Some(more) } = RULE.decide(&[100.0, 104.0]).unwrap()
        else {
            panic!()
        };
        assert_eq!(more, 18);
        assert!(matches!(RULE.decide(&[100.0; 18]).unwrap(), Decision::Enough { .. }));
    }

    /// Three runs that agree say nothing of a disturbance in one run of five: half of the time they
    /// are those that it missed. Six configurations of three say it together.
    #[test]
    fn a_width_is_believed_only_where_enough_runs_carry_it() {
        let three = [100.0, 100.02, 99.99];
        let enough =
            |evidence| matches!(RULE.decide_among(&three, evidence), Ok(Decision::Enough { .. }));
        assert!(!enough(Evidence::of(&RULE, [three.as_slice()])));
        assert!(!enough(Evidence::of(&RULE, [three.as_slice(); 5])));
        assert!(enough(Evidence::of(&RULE, [three.as_slice(); 6])));
        let disturbed = [200.0, 199.0, 140.0, 201.0];
        let six = [[three.as_slice(); 6].as_slice(), &[disturbed.as_slice()]].concat();
        assert!(!enough(Evidence::of(&RULE, six)));
        assert!(matches!(RULE.decide(&[100.0; 17]), Ok(Decision::Continue { .. })));
    }

    /// A machine that is slow for a while: the same numbers in another order are enough.
    #[test]
    fn neighbors_that_resemble_each_other_count_for_fewer() {
        let (slow, fast) = ([99.0; 9], [101.0; 9]);
        let in_stretches = [slow, fast].concat();
        let mixed: Vec<f64> = slow.iter().zip(&fast).flat_map(|(a, b)| [*a, *b]).collect();
        let enough = |values: &[f64]| matches!(RULE.decide(values), Ok(Decision::Enough { .. }));
        assert!(!enough(&in_stretches) && enough(&mixed));
        assert!(matches!(RULE.decide_independent(&in_stretches), Ok(Decision::Enough { .. })));
    }

    #[test]
    fn at_the_cap_it_ends_and_says_what_was_reached() {
        let values: Vec<f64> = (0..20).map(|i| 100.0 + 30.0 * f64::from(i % 2)).collect();
        let Decision::CapReached { estimate } = RULE.decide(&values).unwrap() else { panic!() };
        assert!(matches!(estimate.caveats[0], Caveat::CapReached { repetitions: 20, .. }));
    }

    #[test]
    fn a_rule_that_cannot_be_followed_is_refused() {
        assert!(StoppingRule { min: 1, ..RULE }.decide(&[1.0]).is_err());
        assert!(StoppingRule { min: 30, ..RULE }.check().is_err());
        assert!(StoppingRule { relative_half_width: 0.0, ..RULE }.check().is_err());
    }
}
