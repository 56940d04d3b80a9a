//! Models of well-known kinds in their short form: `{ "kind": "M/M/1", "arrival_rate_per_s": 125,
//! "service_rate_per_s": 500 }`, as textbooks and worked cases state them.
//!
//! The full description is [`crate::Model`]; this is for a model that fits on a line. Outputs carry
//! the names that worked cases use (`mean_jobs`, `p_queueing`, `throughput_by_class`), with their
//! unit. A time or rate that is given per minute makes outputs come in minutes.

mod ask;
mod kendall;
mod laws;
mod networks;
mod read;
mod scaling;
mod stations;

use std::collections::BTreeMap;

use crate::model::ModelError;
use crate::model::value::Value;
use crate::network::NetworkError;
use crate::station::StationError;
use read::Fields;

/// A number, or numbers by station, by class, or by station and class.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// One number.
    Number(f64),
    /// A list.
    List(Vec<f64>),
    /// Lists of a list: by station, then by class.
    Table(Vec<Vec<f64>>),
    /// A word.
    Word(String),
}

impl Output {
    /// Its numbers, row by row; none for a word.
    #[must_use]
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Self::Number(number) => vec![*number],
            Self::List(list) => list.clone(),
            Self::Table(rows) => rows.concat(),
            Self::Word(_) => Vec::new(),
        }
    }
}

/// A solved case.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// The kind that was solved, as it was understood.
    pub kind: String,
    /// Formula or algorithm behind the main outputs.
    pub solver: String,
    /// `exact`, `bound`, `approximation` or `estimate`: of the main outputs. Others have the name
    /// of what they come from in front (`schweitzer_throughput`).
    pub accuracy: String,
    /// Outputs by name, with their unit.
    pub outputs: BTreeMap<String, (Output, String)>,
}

/// Why a case has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CaseError {
    /// The kind is not known.
    #[error("kind `{kind}` is not known; known are {known}")]
    Kind {
        /// What was written.
        kind: String,
        /// The known ones.
        known: &'static str,
    },
    /// The fields make no sense.
    #[error(transparent)]
    Field(#[from] ModelError),
    /// The station has no solution.
    #[error(transparent)]
    Station(#[from] StationError),
    /// The network has no solution.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The law cannot be fitted.
    #[error(transparent)]
    Scaling(#[from] crate::scalability::UslError),
    /// A distribution makes no sense.
    #[error(transparent)]
    Distribution(#[from] crate::DistributionError),
}

/// The kinds that are known, for messages and the documentation.
pub const KINDS: &str = "M/M/1, M/M/m, M/M/1/K, M/M/m/K, M/M/m/m, M/M/m//N, M/M/inf, M/M/m+M, \
     M/D/1, M/D/m, M/G/1, M/G/1-PS, M/G/1-LCFS-PR, M/G/1-priority, M/M/m-priority, G/M/1, G/G/1, \
     G/G/m, M^[x]/M/1 (letters M, D, E<k>, H2, G; numbers in place of m, K, N), erlang-b, erlang-c, \
     fork-join, operational-laws, closed-single-class, closed-multi-class, open-single-class, \
     open-multi-class, open-jackson, mixed, flow-equivalent, asymptotic-bounds, \
     balanced-job-bounds, geometric-bounds, usl, usl-fit";

/// Solves a case. `wanted` are names of outputs with a number in them, such as `p_at_least_13`,
/// `response_p99`, `wait_cdf_at_2s` or `buffers_for_loss_below_1e-6`: they are added.
///
/// # Errors
/// [`CaseError`], with the field, its value and what was expected.
pub fn solve(model: &Value, wanted: &[String]) -> Result<Answer, CaseError> {
    let unfolded = networks::unfolded(model);
    let fields = Fields::new(unfolded.as_ref().unwrap_or(model))?;
    let written = fields.text("kind").unwrap_or_default();
    let kind = normal(&written);
    let mut answer = if laws::is_law(&kind) {
        laws::solve(&fields)?
    } else if fields.has("stations") || fields.has("station") {
        networks::solve(&kind, &fields)?
    } else if scaling::is_scaling(&kind) || fields.has("throughput_per_s") && fields.has("n") {
        scaling::solve(&kind, &fields)?
    } else if let Some(answer) = networks::bare(&kind, &fields)? {
        answer
    } else {
        stations::solve(&kind, &fields, wanted)?
    };
    answer.add_wanted(wanted);
    answer.kind = written;
    Ok(answer)
}

/// `M/M/C/K` and `m/m/c/k` are the same kind.
fn normal(kind: &str) -> String {
    kind.trim().to_lowercase().replace([' ', '_'], "-").replace('∞', "inf")
}

impl Answer {
    /// Adds the outputs that were asked for under another name than they have, in another unit, or
    /// as one entry of a list (`Lq`, `mean_response_time_ms`, `utilization_2`).
    pub fn add_wanted(&mut self, wanted: &[String]) {
        ask::fill(self, wanted);
    }

    fn number(&mut self, name: &str, value: f64, unit: &str) {
        self.outputs.insert(name.to_owned(), (Output::Number(value), unit.to_owned()));
    }

    fn maybe(&mut self, name: &str, value: Option<f64>, unit: &str) {
        if let Some(value) = value {
            self.number(name, value, unit);
        }
    }

    fn list(&mut self, name: &str, values: Vec<f64>, unit: &str) {
        self.outputs.insert(name.to_owned(), (Output::List(values), unit.to_owned()));
    }

    fn table(&mut self, name: &str, rows: Vec<Vec<f64>>, unit: &str) {
        // One station: its classes, without another pair of brackets.
        if let [row] = &rows[..] {
            self.list(name, row.clone(), unit);
        } else {
            self.outputs.insert(name.to_owned(), (Output::Table(rows), unit.to_owned()));
        }
    }

    fn word(&mut self, name: &str, word: &str) {
        self.outputs.insert(name.to_owned(), (Output::Word(word.to_owned()), String::new()));
    }
}
