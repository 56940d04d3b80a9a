//! Experiment designs: which configurations are run, and in which order.
//!
//! A design speaks of factors and the texts of their levels; what a level means is the caller's.
//! Runs are planned in randomized complete blocks: every repetition runs every configuration once,
//! in an order of its own, so that the machine's drift lies between blocks and does not pose as an
//! effect (all-A-then-all-B under drift finds differences that are not there in 49 % of sessions).

pub mod fraction;
pub mod screening;

use kendall_units::exact_f64;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use self::fraction::{Fraction, FractionError};

/// Most configurations of one design: beyond it, a factor was meant to be something else.
const MOST_CONFIGURATIONS: usize = 100_000;

/// Something that is varied, and what it is set to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factor {
    /// Name, such as `system.workers`.
    pub name: String,
    /// Texts of its levels, in order.
    pub levels: Vec<String>,
}

impl Factor {
    /// A factor with levels that print as texts.
    ///
    /// # Example
    /// ```
    /// let workers = kendall_stats::design::Factor::new("workers", [8, 32]);
    /// assert_eq!(workers.levels, ["8", "32"]);
    /// ```
    pub fn new<T: ToString>(name: &str, levels: impl IntoIterator<Item = T>) -> Self {
        let levels = levels.into_iter().map(|level| level.to_string()).collect();
        Self { name: name.to_owned(), levels }
    }
}

/// How the configurations are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Every factor by itself, the others at their first level.
    OneAtATime,
    /// Every combination of levels.
    Full,
    /// Every combination of two levels each: 2^k r.
    #[serde(rename = "2kr")]
    TwoLevel,
    /// A regular fraction of 2^k: 2^(k−p).
    Fractional,
    /// Many two-level factors in 8 to 24 runs.
    PlackettBurman,
}

/// One configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Index of the level of each factor; `None` for the center point of a two-level design.
    pub levels: Option<Vec<usize>>,
    /// Text of the level of each factor.
    pub settings: Vec<String>,
}

/// Which configurations are run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// How they were chosen.
    pub kind: Kind,
    /// What is varied.
    pub factors: Vec<Factor>,
    /// What is run; settings are in the order of the factors.
    pub configurations: Vec<Configuration>,
    /// What the design cannot tell apart, for a fraction.
    pub fraction: Option<Fraction>,
    /// Runs of the center point in every block.
    pub center_points: u64,
}

/// One run of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Position in time, from 1.
    pub order: u64,
    /// Repetition, from 1: a block of runs that the analysis compares with one another.
    pub block: u64,
    /// Index into the design's configurations.
    pub configuration: usize,
}

/// A design that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum DesignError {
    #[error("no factors: name at least one, such as `workers=8,32`")]
    NoFactors,
    #[error("factor `{factor}` has no levels")]
    NoLevels { factor: String },
    #[error("factor `{factor}` has the level `{level}` twice")]
    SameLevel { factor: String, level: String },
    #[error("factor `{factor}` is named twice")]
    SameFactor { factor: String },
    #[error(
        "factor `{factor}` has {levels} levels; a two-level design needs exactly 2 (or use a full design)"
    )]
    NotTwoLevels { factor: String, levels: usize },
    #[error(
        "factor `{factor}` has no center: `{level}` is not a plain number; leave out the center points"
    )]
    NoCenter { factor: String, level: String },
    #[error(
        "{configurations} configurations; the limit is {limit}: take fewer levels or a fraction"
    )]
    TooLarge { configurations: u128, limit: usize },
    #[error("{factors} factors: the limit is {limit}; take a fraction, or screen them in groups")]
    TooManyFactors { factors: usize, limit: usize },
    #[error("every run's mirror image is in the design already: there is nothing to fold over")]
    NoMirror,
    /// A fraction that cannot be made.
    #[error(transparent)]
    Fraction(#[from] FractionError),
}

impl Design {
    /// Every factor by itself: the first levels together are the base, from which one factor at a
    /// time departs. Sees no interaction.
    ///
    /// # Errors
    /// [`DesignError`] for no factors, no levels, or anything named twice.
    ///
    /// # Source
    /// "Simple design" of [Jain91 §16.3].
    pub fn one_at_a_time(factors: Vec<Factor>) -> Result<Self, DesignError> {
        check(&factors)?;
        let base = vec![0; factors.len()];
        let mut chosen = vec![base.clone()];
        for (index, factor) in factors.iter().enumerate() {
            for level in 1..factor.levels.len() {
                let mut levels = base.clone();
                levels[index] = level;
                chosen.push(levels);
            }
        }
        Ok(Self::of(Kind::OneAtATime, factors, chosen))
    }

    /// Every combination of levels; the last factor varies fastest.
    ///
    /// # Errors
    /// [`DesignError`], also when there are more than 100,000 combinations.
    ///
    /// # Example
    /// ```
    /// use kendall_stats::design::{Design, Factor};
    /// let design = Design::full(vec![Factor::new("servers", [2, 3]), Factor::new("workers", [8, 16, 32])])?;
    /// assert_eq!(design.configurations.len(), 6);
    /// assert_eq!(design.configurations[1].settings, ["2", "16"]);
    /// # Ok::<(), kendall_stats::design::DesignError>(())
    /// ```
    pub fn full(factors: Vec<Factor>) -> Result<Self, DesignError> {
        check(&factors)?;
        let chosen = combinations(&factors)?;
        Ok(Self::of(Kind::Full, factors, chosen))
    }

    /// 2^k: every combination of two levels each.
    ///
    /// # Errors
    /// [`DesignError`], also for a factor that has not exactly two levels.
    ///
    /// # Source
    /// [Jain91 ch. 17].
    pub fn two_level(factors: Vec<Factor>) -> Result<Self, DesignError> {
        check(&factors)?;
        check_two_levels(&factors)?;
        let chosen = combinations(&factors)?;
        Ok(Self::of(Kind::TwoLevel, factors, chosen))
    }

    /// 2^(k−p): the configurations of a regular fraction, see [`Fraction`].
    ///
    /// # Errors
    /// [`DesignError`], also when the fraction is of another number of factors.
    ///
    /// # Source
    /// [Jain91 ch. 19].
    pub fn fractional(factors: Vec<Factor>, fraction: Fraction) -> Result<Self, DesignError> {
        check(&factors)?;
        check_two_levels(&factors)?;
        fraction.check_factors(factors.len())?;
        let chosen = fraction.configurations();
        Ok(Self { fraction: Some(fraction), ..Self::of(Kind::Fractional, factors, chosen) })
    }

    /// Adds a center point, run `count` times in every block: the only way for a two-level design
    /// to see that the response is not a straight line between the levels.
    ///
    /// # Errors
    /// [`DesignError::NoCenter`] when a level is not a number.
    ///
    /// # Source
    /// Montgomery 2017 §6.8.
    pub fn with_center_points(mut self, count: u64) -> Result<Self, DesignError> {
        check_two_levels(&self.factors)?;
        let settings = self
            .factors
            .iter()
            .map(|factor| {
                let number = |level: &String| {
                    level.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| {
                        DesignError::NoCenter { factor: factor.name.clone(), level: level.clone() }
                    })
                };
                let (low, high) = (number(&factor.levels[0])?, number(&factor.levels[1])?);
                Ok(f64::midpoint(low, high).to_string())
            })
            .collect::<Result<_, DesignError>>()?;
        self.center_points = count;
        if count > 0 {
            self.configurations.push(Configuration { levels: None, settings });
        }
        Ok(self)
    }

    fn of(kind: Kind, factors: Vec<Factor>, chosen: Vec<Vec<usize>>) -> Self {
        let configurations = chosen
            .into_iter()
            .map(|levels| Configuration {
                settings: levels.iter().zip(&factors).map(|(l, f)| f.levels[*l].clone()).collect(),
                levels: Some(levels),
            })
            .collect();
        Self { kind, factors, configurations, fraction: None, center_points: 0 }
    }

    /// The order of the runs: randomized complete blocks, one a repetition. The same seed gives the
    /// same order; more repetitions keep the order of the first ones.
    ///
    /// # Source
    /// [Jain91 §16.4]; Fisher's randomized blocks. The shuffle is Fisher and Yates's.
    #[must_use]
    pub fn plan(&self, replications: u64, seed: u64) -> Vec<PlannedRun> {
        let mut runs = Vec::new();
        for block in 1..=replications {
            let mut chosen: Vec<usize> = (0..self.configurations.len()).collect();
            let center =
                self.configurations.iter().position(|configuration| configuration.levels.is_none());
            if let Some(center) = center {
                chosen.extend((1..self.center_points).map(|_| center));
            }
            for configuration in block_order(chosen, block, seed) {
                let order = kendall_units::whole_u64(exact_f64(runs.len())) + 1;
                runs.push(PlannedRun { order, block, configuration });
            }
        }
        runs
    }
}

/// The items of one block in random order. Every block has a stream of its own, so that a study
/// that repeats more often later keeps the order of the blocks it has run.
#[must_use]
pub fn block_order<T>(mut items: Vec<T>, block: u64, seed: u64) -> Vec<T> {
    let stream = seed ^ block.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    items.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(stream));
    items
}

fn check(factors: &[Factor]) -> Result<(), DesignError> {
    if factors.is_empty() {
        return Err(DesignError::NoFactors);
    }
    for (index, factor) in factors.iter().enumerate() {
        if factor.levels.is_empty() {
            return Err(DesignError::NoLevels { factor: factor.name.clone() });
        }
        if factors[..index].iter().any(|other| other.name == factor.name) {
            return Err(DesignError::SameFactor { factor: factor.name.clone() });
        }
        for (position, level) in factor.levels.iter().enumerate() {
            if factor.levels[..position].contains(level) {
                let (factor, level) = (factor.name.clone(), level.clone());
                return Err(DesignError::SameLevel { factor, level });
            }
        }
    }
    Ok(())
}

fn check_two_levels(factors: &[Factor]) -> Result<(), DesignError> {
    match factors.iter().find(|factor| factor.levels.len() != 2) {
        Some(factor) => Err(DesignError::NotTwoLevels {
            factor: factor.name.clone(),
            levels: factor.levels.len(),
        }),
        None => Ok(()),
    }
}

fn combinations(factors: &[Factor]) -> Result<Vec<Vec<usize>>, DesignError> {
    let count = factors.iter().fold(1_u128, |all, factor| {
        all.saturating_mul(u128::try_from(factor.levels.len()).unwrap_or(u128::MAX))
    });
    if count > u128::try_from(MOST_CONFIGURATIONS).unwrap_or(u128::MAX) {
        return Err(DesignError::TooLarge { configurations: count, limit: MOST_CONFIGURATIONS });
    }
    let mut chosen = vec![Vec::new()];
    for factor in factors {
        chosen = chosen
            .into_iter()
            .flat_map(|levels: Vec<usize>| {
                (0..factor.levels.len()).map(move |level| {
                    let mut extended = levels.clone();
                    extended.push(level);
                    extended
                })
            })
            .collect();
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn three() -> Vec<Factor> {
        vec![
            Factor::new("servers", [2, 3]),
            Factor::new("middlewares", [1, 2]),
            Factor::new("workers", [8, 32]),
        ]
    }

    #[test]
    fn every_block_holds_every_configuration_once_in_an_order_of_its_own() {
        let design = Design::two_level(three()).unwrap();
        let plan = design.plan(3, 1);
        assert_eq!(plan.len(), 24);
        let orders: Vec<Vec<usize>> =
            plan.chunks(8).map(|b| b.iter().map(|r| r.configuration).collect()).collect();
        for order in &orders {
            assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 8);
        }
        assert_ne!(orders[0], orders[1]);
        assert_eq!(design.plan(5, 1)[..24], plan[..]);
        assert_ne!(design.plan(3, 2), plan);
    }

    #[test]
    fn one_at_a_time_departs_from_the_first_levels() {
        let mut factors = three();
        factors.push(Factor::new("instance", ["small", "medium", "large"]));
        let design = Design::one_at_a_time(factors).unwrap();
        assert_eq!(design.configurations.len(), 1 + 1 + 1 + 1 + 2);
        assert_eq!(design.configurations[5].settings, ["2", "1", "8", "large"]);
    }

    #[test]
    fn center_points_lie_between_and_are_run_in_every_block() {
        let design = Design::two_level(three()).unwrap().with_center_points(3).unwrap();
        assert_eq!(design.configurations.last().unwrap().settings, ["2.5", "1.5", "20"]);
        assert_eq!(design.plan(2, 1).len(), 2 * (8 + 3));
        let text = vec![Factor::new("instance", ["small", "large"])];
        let error = Design::two_level(text).unwrap().with_center_points(1).unwrap_err();
        assert!(error.to_string().contains("`small` is not a plain number"));
    }

    #[test]
    fn what_cannot_be_a_design_is_refused() {
        assert_eq!(Design::full(Vec::new()), Err(DesignError::NoFactors));
        assert!(Design::full(vec![Factor::new("a", [1, 1])]).is_err());
        assert!(Design::full(vec![Factor::new("a", [1]), Factor::new("a", [2])]).is_err());
        assert!(Design::two_level(vec![Factor::new("a", [1, 2, 3])]).is_err());
        let many = (0..40).map(|i| Factor::new(&format!("f{i}"), [1, 2])).collect();
        assert!(matches!(Design::two_level(many), Err(DesignError::TooLarge { .. })));
    }
}
