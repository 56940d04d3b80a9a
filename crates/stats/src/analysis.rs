//! Analysis of an experiment: effects, allocation of variation, intervals, residuals, and whether
//! the assumptions hold.
//!
//! One path for all designs, so that a published table and a crippled data set meet the same code:
//! levels are read from the data, terms are fitted by least squares as far as the data tell them
//! apart, and what is not there (replications, cells, levels) becomes a caveat or a refusal.
//! It leaves out nested and random factors.

mod checks;
mod covariate;
mod fit;
mod layout;
mod linear;
mod sign_table;
mod transform;

pub use checks::{Check, QuantilePoint, Residual, Verdict};
pub use covariate::{AtOneValue, Covariate, EffectAtOneValue};
pub use fit::{
    Cell, Contrast, ErrorTerm, Fit, HalfNormalPoint, InteractionPlot, Lenth, LevelEffect, Sums,
    Term,
};
pub use layout::{FactorLevels, Layout, SumsKind};
pub use sign_table::{SignRow, SignTable};
pub use transform::{BoxCox, Recommendation};

use serde::{Deserialize, Serialize};

use crate::estimate::Caveat;
use crate::sample::SampleError;

/// One measured run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Text of the level of each factor.
    pub levels: Vec<String>,
    /// Repetition or other block that it belongs to.
    pub block: Option<String>,
    /// Position in time, if it is known.
    pub order: Option<f64>,
    /// Response variable.
    pub value: f64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Names of the factors.
    pub factors: Vec<String>,
    /// One a run.
    pub observations: Vec<Observation>,
}

/// How effects combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// y = q0 + qA·xA + …
    Additive,
    /// log₁₀ y is additive: effects are factors.
    Multiplicative,
}

impl std::fmt::Display for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Additive => "additive",
            Self::Multiplicative => "multiplicative",
        })
    }
}

/// How to analyze.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// `None` takes the one that is recommended.
    pub model: Option<Model>,
    /// Of all intervals.
    pub confidence: f64,
    /// Whether blocks are a term of the model, so that what differs between them leaves the error.
    pub blocks: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { model: None, confidence: 0.95, blocks: false }
    }
}

/// An analyzed experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Factors, cells, replications.
    pub layout: Layout,
    /// Which model fits, and why.
    pub recommendation: Recommendation,
    /// Signs and totals of a complete two-level design, in the unit of the response.
    pub sign_table: Option<SignTable>,
    /// The model that was asked for, or the recommended one.
    pub model: Model,
    /// Its fit.
    pub fit: Fit,
    /// The fit of the other model, where it can be had (all responses positive).
    pub other: Option<Fit>,
    /// What a covariate does for the effects, where one was given. All else is without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covariate: Option<Covariate>,
    /// Caveats of the whole analysis.
    pub caveats: Vec<Caveat>,
}

/// Data that cannot be analyzed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum AnalysisError {
    /// Nothing, NaN, or a confidence outside (0, 1).
    #[error(transparent)]
    Sample(#[from] SampleError),
    #[error(
        "no factor is varied: {factors} each have one level only; an effect needs at least two"
    )]
    NothingVaried { factors: String },
    #[error("the response variable is {value} in {}, so nothing can be explained", all(*runs))]
    ConstantResponse { value: f64, runs: usize },
    #[error("there is no term `{name}` to pool into the error; there are {terms}")]
    NoTerm { name: String, terms: String },
    #[error(
        "the response reaches {value:e}: above {limit:e} sums of squares are not finite; give \
         it in a larger unit"
    )]
    TooLarge { value: f64, limit: f64 },
    #[error(
        "the response reaches {value:e} at most: below {limit:e} sums of squares are 0; give it in \
         a smaller unit"
    )]
    TooSmall { value: f64, limit: f64 },
    #[error("observation {row} has {have} levels, there are {want} factors")]
    RaggedRow { row: usize, have: usize, want: usize },
    #[error(
        "one observation for each of {levels} levels of `{factor}`: its effect cannot be separated from \
         the error; replicate"
    )]
    NoError { factor: String, levels: usize },
    #[error(
        "a multiplicative model needs positive responses, and observation {row} is {value}; use \
         the additive model"
    )]
    NotPositive { row: usize, value: f64 },
    #[error(
        "the main effects cannot be separated: the {cells} cells that were measured always vary \
         some factors together; measure more cells"
    )]
    Confounded { cells: usize },
    #[error("factor `{factor}` has {levels} levels, the limit is {limit}: fit a curve instead")]
    TooManyLevels { factor: String, levels: usize, limit: usize },
}

fn all(runs: usize) -> String {
    if runs == 1 { "the only run".to_owned() } else { format!("all {runs} runs: nothing varies") }
}

/// Analyzes an experiment of one response variable.
///
/// Two levels each: sign table and effects q (half the difference between the levels), as Jain has
/// them; more levels: analysis of variance with an effect for every level. Without replications a
/// two-level design is judged by Lenth's method, and one of more levels gives up its highest
/// interaction for the error.
///
/// # Errors
/// [`AnalysisError`] that says what is missing and what to do.
///
/// # Source
/// [Jain91 ch. 17–23]; blocks, center points and unbalanced data as in Montgomery 2017 ch. 4–6.
///
/// # Example
/// ```
/// use kendall_stats::analysis::{Observation, Options, Table, analyze};
/// // [Jain91 §18.2]: two factors, three replications.
/// let cells = [("4", "1", [15., 18., 12.]), ("16", "1", [45., 48., 51.]),
///              ("4", "2", [25., 28., 19.]), ("16", "2", [75., 75., 81.])];
/// let observations = cells.iter().flat_map(|(memory, cache, values)| values.iter().map(|value| {
///     Observation { levels: vec![memory.to_string(), cache.to_string()], block: None, order: None, value: *value }
/// })).collect();
/// let table = Table { factors: vec!["memory".into(), "cache".into()], observations };
/// let analysis = analyze(&table, &Options::default())?;
/// assert!((analysis.fit.terms[0].effect.as_ref().unwrap().center - 21.5).abs() < 1e-9);
/// # Ok::<(), kendall_stats::analysis::AnalysisError>(())
/// ```
pub fn analyze(table: &Table, options: &Options) -> Result<Analysis, AnalysisError> {
    analyze_pooled(table, options, &[])
}

/// The same with terms pooled into the error: by their letters (`ABC`), or all interactions of so
/// many factors and more (`3+`).
///
/// Terms are to be named before the data are seen: pooling what came out small makes the error too
/// small.
///
/// # Errors
/// [`AnalysisError`], also for a term that the analysis does not have.
///
/// # Source
/// Montgomery 2017 §6.5.
pub fn analyze_pooled(
    table: &Table,
    options: &Options,
    pooled: &[String],
) -> Result<Analysis, AnalysisError> {
    analyze_with(table, options, pooled, None)
}

/// The same with a covariate: a quantity above 0 that was measured in every run, such as the
/// machine's speed, one value an observation. The effects at one value of it stand beside those as
/// measured, where their intervals are notably narrower.
///
/// # Errors
/// [`AnalysisError`].
///
/// # Panics
/// When there are more or fewer values than observations.
pub fn analyze_with(
    table: &Table,
    options: &Options,
    pooled: &[String],
    covariate: Option<&[f64]>,
) -> Result<Analysis, AnalysisError> {
    let as_many = covariate.is_none_or(|values| values.len() == table.observations.len());
    assert!(as_many, "a covariate has one value an observation");
    crate::sample::check_confidence(options.confidence)?;
    let (layout, rows) = layout::read(table, options.blocks)?;
    let recommendation = transform::recommend(&layout, &rows)?;
    let model = options.model.unwrap_or(recommendation.model);
    if model == Model::Multiplicative {
        layout::check_positive(table)?;
    }
    let fit = fit::fit(&layout, &rows, model, (options.confidence, pooled))?;
    let other = match model {
        Model::Additive => Model::Multiplicative,
        Model::Multiplicative => Model::Additive,
    };
    let positive = layout::check_positive(table).is_ok();
    let other = (positive || other == Model::Additive)
        .then(|| fit::fit(&layout, &rows, other, (options.confidence, pooled)))
        .transpose()?;
    let at_one = |values| {
        covariate::at_one_value((&layout, &rows), &fit, (options.confidence, pooled), values)
    };
    let covariate = covariate.map(at_one).transpose()?;
    let mut caveats = layout.caveats.clone();
    caveats.extend(fit.checks.iter().filter_map(Check::caveat));
    let sign_table = sign_table::sign_table(&layout, &rows);
    Ok(Analysis { layout, recommendation, sign_table, model, fit, other, covariate, caveats })
}
