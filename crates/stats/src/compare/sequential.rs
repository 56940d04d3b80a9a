//! Two systems measured in turns, judged while they are measured.
//!
//! A test that is repeated after every block finds something in one session of six in which there
//! is nothing. So the looks are fixed beforehand, and each spends a part of what may go wrong: the
//! intervals of all looks together hold with the confidence that was asked for, whichever of them
//! ends the session (Bonferroni's inequality, which asks for nothing about how they depend on one
//! another). Little is spent early, where only a large difference could show; most is left for the
//! last look.

use kendall_units::{exact_f64, whole_u64};
use serde::{Deserialize, Serialize};

use super::{Comparison, Verdict};
use crate::distribution::t_two_sided;
use crate::sample::{SampleError, check_confidence};

/// Blocks of a look over those of the one before.
const STEP: f64 = 1.5;

/// Power of the share of blocks that has been spent of what may go wrong.
///
/// Source: Kim, DeMets 1987, between the boundaries of Pocock (1) and of O'Brien and Fleming (3).
const SPENDING: f64 = 1.5;

/// Blocks beyond which no number is named.
const MOST_NAMED: f64 = 1_000.0;

/// When a session is looked at, and how sure each look has to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Looks {
    first: u64,
    most: u64,
    confidence: f64,
}

/// Numbers of blocks that allow no session.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum LooksError {
    #[error(
        "blocks from {first} to {most}: at least 3 are needed, and the first must not exceed the last"
    )]
    Blocks { first: u64, most: u64 },
    /// A confidence outside (0, 1).
    #[error(transparent)]
    Confidence(#[from] SampleError),
}

impl Looks {
    /// Looks from `first` blocks on, the last one at `most`; together as sure as `confidence`.
    ///
    /// # Errors
    /// [`LooksError`] for numbers that allow no session.
    ///
    /// # Example
    /// ```
    /// use kendall_stats::compare::sequential::Looks;
    /// let looks = Looks::new(5, 40, 0.95)?;
    /// assert_eq!(looks.blocks(), [5, 8, 12, 18, 27, 40]);
    /// let spent: f64 = looks.blocks().iter().map(|at| 1.0 - looks.confidence_at(*at).unwrap()).sum();
    /// assert!((spent - 0.05).abs() < 1e-12);
    /// # Ok::<(), kendall_stats::compare::sequential::LooksError>(())
    /// ```
    pub fn new(first: u64, most: u64, confidence: f64) -> Result<Self, LooksError> {
        check_confidence(confidence)?;
        if first < 3 || first > most {
            return Err(LooksError::Blocks { first, most });
        }
        Ok(Self { first, most, confidence })
    }

    /// Blocks of each look, ascending.
    #[must_use]
    pub fn blocks(&self) -> Vec<u64> {
        let mut all = Vec::new();
        let mut next = self.first;
        while exact_f64(next) < exact_f64(self.most) / STEP.sqrt() {
            all.push(next);
            next = whole_u64((STEP * exact_f64(next)).round()).max(next + 1);
        }
        all.push(self.most);
        all
    }

    /// How sure the look at so many blocks has to be; `None` where there is no look.
    #[must_use]
    pub fn confidence_at(&self, blocks: u64) -> Option<f64> {
        let all = self.blocks();
        let index = all.iter().position(|at| *at == blocks)?;
        let share = |at: u64| (exact_f64(at) / exact_f64(self.most)).powf(SPENDING);
        let before = index.checked_sub(1).map_or(0.0, |before| share(all[before]));
        Some(1.0 - (1.0 - self.confidence) * (share(blocks) - before))
    }
}

/// Whether a look ends the session.
#[must_use]
pub fn is_clear(comparisons: &[Comparison]) -> bool {
    let is = |verdict: Verdict| move |one: &Comparison| one.verdict == verdict;
    comparisons.iter().any(is(Verdict::Regression))
        || !comparisons.iter().any(is(Verdict::Inconclusive))
}

/// Blocks in all that would probably tell what these do not, were the last look there: until the
/// interval at this confidence lies within the bound, or leaves no difference out: an early look asks for more certainty.
/// `None` where nothing can be said, or more than a thousand.
#[must_use]
pub fn blocks_that_tell(comparison: &Comparison, bound: f64, confidence: f64) -> Option<u64> {
    let ratio = comparison.ratio.as_ref()?;
    let interval = ratio.interval?;
    let freedom = exact_f64(comparison.runs.0).max(2.0) - 1.0;
    let last = t_two_sided(confidence, freedom) / t_two_sided(interval.confidence, freedom);
    let half = last * (interval.high / interval.low).ln() / 2.0;
    let shift = ratio.center.ln().abs();
    let limit = bound.ln_1p();
    let room = if shift >= limit { shift } else { (limit - shift).max(shift - limit / 2.0) };
    let blocks = exact_f64(comparison.runs.0) * (half / room).powi(2);
    (blocks.is_finite() && blocks <= MOST_NAMED)
        .then(|| whole_u64(blocks.ceil()).max(comparison.runs.0 + 1))
}

/// The largest relative difference that the intervals leave possible, and of what; `None` where one has no interval.
#[must_use]
pub fn largest_difference(comparisons: &[Comparison]) -> Option<(f64, &Comparison)> {
    let of = |one: &'_ Comparison| {
        let interval = one.ratio.as_ref()?.interval?;
        Some((interval.high - 1.0).abs().max((1.0 - interval.low).abs()))
    };
    let all = comparisons.iter().map(|one| Some((of(one)?, one)));
    let all = all.collect::<Option<Vec<_>>>()?;
    all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_few_and_end_with_the_last_block() {
        assert_eq!(Looks::new(5, 5, 0.95).unwrap().blocks(), [5]);
        assert_eq!(Looks::new(5, 6, 0.95).unwrap().blocks(), [6]);
        assert_eq!(Looks::new(3, 10, 0.95).unwrap().blocks(), [3, 5, 8, 10]);
        assert!(Looks::new(2, 10, 0.95).is_err() && Looks::new(11, 10, 0.95).is_err());
        assert_eq!(Looks::new(5, 40, 0.95).unwrap().confidence_at(6), None);
    }
}
