//! Models of well-known kinds in their short form: `{ "kind": "M/M/1", "arrival_rate_per_s": 125,
//! "service_rate_per_s": 500 }`, as textbooks and worked cases state them; and what else books have
//! on a line: operational laws, the scalability law, factorial designs.
//!
//! A queueing model is lowered to [`kendall_queueing::Model`] and solved by
//! [`kendall_queueing::solver`], as a model file is: nothing here chooses a formula. Every key is
//! declared for its kind; each that is written is used or refused, with "did you mean". There is
//! one spelling of each: `scripts/convert-cases` rewrites files that have others.
//!
//! A time or rate that is given per minute makes outputs come in minutes.

mod answer;
mod bounds;
mod design;
mod erlang;
mod fields;
mod fork_join;
pub mod jmva;
mod jsimg;
mod laws;
mod lowered;
pub mod lqn;
mod named_outputs;
mod network;
mod notation;
mod pnml;
mod polling;
mod regression;
mod scaling;
mod station;
mod unit;
mod vocabulary;

use kendall_keys::{Problem, Section};
use kendall_queueing::DistributionError;
use kendall_queueing::model::ModelError;
use kendall_queueing::network::NetworkError;
use kendall_queueing::scalability::UslError;
use kendall_queueing::solver::SolveError;
use kendall_queueing::station::StationError;
use toml::{Table, Value};

pub use answer::{Answer, Output};
use jmva::{Jmva, JmvaError};
use notation::Notation;

/// Reads a file of JMT, or a Petri net.
pub type ReaderOfJmt = fn(&str) -> Result<Jmva, JmvaError>;

/// What reads files of JMT and Petri nets with this ending; none where a file is another's.
pub fn reader_of_jmt(ending: &str) -> Option<ReaderOfJmt> {
    match ending {
        "jmva" => Some(jmva::read),
        "jsimg" | "jsim" => Some(jsimg::read),
        "pnml" => Some(pnml::read),
        _ => None,
    }
}
use unit::Unit;

/// Why a short form has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TextbookError {
    #[error("kind: `{kind}` is not known{close}; known are {known}")]
    Kind { kind: String, close: String, known: String },
    /// A key is not known, missing, or holds what it cannot.
    #[error("{}: {what}", kendall_keys::bracketed(path))]
    Key { path: String, what: String },
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error(transparent)]
    Station(#[from] StationError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Scaling(#[from] UslError),
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    #[error(transparent)]
    Analysis(#[from] kendall_stats::analysis::AnalysisError),
    #[error(transparent)]
    Fraction(#[from] kendall_stats::design::fraction::FractionError),
    #[error(transparent)]
    Demands(#[from] kendall_fit::demands::DemandError),
}

impl TextbookError {
    /// Path of the key that it is about, when it is about one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Kind { .. } => Some("kind"),
            Self::Key { path, .. } => Some(path),
            Self::Model(error) | Self::Solve(SolveError::Model(error)) => error.path(),
            _ => None,
        }
    }

    fn key(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Key { path: path.into(), what: what.into() }
    }

    fn missing(path: &str, form: &str) -> Self {
        Self::key(path, format!("is missing; write {form}"))
    }
}

impl From<Problem> for TextbookError {
    fn from(problem: Problem) -> Self {
        Self::Key { path: problem.key, what: problem.what }
    }
}

/// What a kind is given.
pub(crate) struct Case<'a> {
    pub(crate) kind: &'a str,
    pub(crate) section: Section<'a>,
    pub(crate) unit: Unit,
    pub(crate) wanted: &'a [String],
}

/// A kind that is known by its name.
struct Named {
    name: &'static str,
    keys: &'static [kendall_keys::Key],
    solve: fn(Case<'_>) -> Result<Answer, TextbookError>,
}

const NAMED: &[Named] = &[
    Named { name: "erlang-b", keys: erlang::KEYS, solve: erlang::solve },
    Named { name: "erlang-c", keys: erlang::KEYS, solve: erlang::solve },
    Named { name: "fork-join", keys: fork_join::KEYS, solve: fork_join::solve },
    Named { name: "polling", keys: polling::POLLING, solve: polling::solve },
    Named { name: "retrial", keys: polling::RETRIAL, solve: polling::solve },
    network("closed-single-class"),
    network("closed-multi-class"),
    network("open-single-class"),
    network("open-multi-class"),
    network("open-jackson"),
    network("mixed"),
    network("asymptotic-bounds"),
    network("balanced-job-bounds"),
    network("geometric-bounds"),
    network("proportional-bounds"),
    law("operational-laws"),
    law("utilization-law"),
    law("littles-law"),
    law("forced-flow-law"),
    law("service-demand-law"),
    law("interactive-response-time-law"),
    scaling("usl"),
    scaling("usl-fit"),
    scaling("amdahl"),
    scaling("gustafson"),
    factorial("2^k r factorial"),
    factorial("one-factor"),
    factorial("two-factor"),
    Named { name: "2^(k-p) fractional", keys: design::FRACTION, solve: design::fractional },
    Named { name: "demand-regression", keys: regression::KEYS, solve: regression::solve },
];

const fn network(name: &'static str) -> Named {
    Named { name, keys: network::KEYS, solve: network::solve }
}

const fn law(name: &'static str) -> Named {
    Named { name, keys: laws::KEYS, solve: laws::solve }
}

const fn scaling(name: &'static str) -> Named {
    Named { name, keys: scaling::KEYS, solve: scaling::solve }
}

const fn factorial(name: &'static str) -> Named {
    Named { name, keys: design::FACTORIAL, solve: design::factorial }
}

/// Solves a model in its short form. `wanted` are names of outputs with a number or unit in them,
/// such as `p_at_least_13`, `response_p99`, `wait_cdf_at_2s`, `mean_response_ms` or
/// `buffers_for_loss_below_1e-6`: they are added.
///
/// # Example
/// ```
/// let text = "kind = 'M/M/1'\narrival_rate_per_s = 125\nservice_rate_per_s = 500";
/// let answer = kendall_textbook::solve(&text.parse().unwrap(), &[]).unwrap();
/// let mean = answer.outputs["mean_response"].0.numbers()[0];
/// assert!((mean - 1.0 / 375.0).abs() < 1e-15);
/// ```
pub fn solve(model: &Table, wanted: &[String]) -> Result<Answer, TextbookError> {
    let written = match model.get("kind") {
        Some(Value::String(kind)) => kind,
        Some(other) => {
            return Err(TextbookError::key("kind", format!("`{other}` is not a text")));
        }
        None => return Err(TextbookError::missing("kind", "what it is, such as \"M/M/1\"")),
    };
    let (table, unit, names) = unit::in_seconds(model)?;
    let section = Section::new("", &table, &[KIND]);
    let kind = written.trim().to_lowercase();
    let case = Case { kind: &kind, section, unit, wanted };
    let solved = match NAMED.iter().find(|named| named.name == kind) {
        Some(named) => named_kind(named, case),
        None => match Notation::parse(&kind) {
            Some(notation) => station::solve(&notation, case),
            None => Err(unknown(written)),
        },
    };
    let mut answer = solved.map_err(|error| names.written(error))?;
    named_outputs::fill(&mut answer, wanted);
    written.clone_into(&mut answer.kind);
    Ok(answer)
}

const KIND: &[kendall_keys::Key] = &[
    kendall_keys::Key::text("kind", "what it is"),
    kendall_keys::Key::text("name", "its name").optional(),
    kendall_keys::Key::text("description", "free text").optional(),
];

fn named_kind(named: &Named, mut case: Case<'_>) -> Result<Answer, TextbookError> {
    // Declared per kind: a key of another kind is as unknown as a misspelled one.
    case.section = case.section.declared(named.keys);
    case.section.known()?;
    (named.solve)(case)
}

fn unknown(written: &str) -> TextbookError {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', '/', ' '], "");
    let stations = ["M/M/1", "M/M/m", "M/M/m/K", "M/M/m//N", "M/D/1", "M/G/1", "G/M/1", "G/G/m"];
    let names = || stations.into_iter().chain(NAMED.iter().map(|named| named.name));
    let dashed = written.trim().replace(' ', "-");
    let notation = Notation::parse(&dashed.to_lowercase()).map(|_| dashed.as_str());
    let close = notation
        .or_else(|| names().find(|name| plain(name) == plain(written)))
        .or_else(|| kendall_keys::closest(&written.to_lowercase(), names()))
        .map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    let known: Vec<&str> = NAMED.iter().map(|named| named.name).collect();
    TextbookError::Kind {
        kind: written.to_owned(),
        close,
        known: format!("{}, {}", notation::FORM, known.join(", ")),
    }
}
