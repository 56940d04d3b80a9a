//! A number, how sure it is, and what makes it less sure.

use serde::{Deserialize, Serialize};

/// An interval that holds the true value with probability `confidence` in repeated experiments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// From 0 to 1; the level that was achieved, which may exceed the one that was asked for.
    pub confidence: f64,
}

/// A number with its interval and what should be known before it is trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate.
    pub center: f64,
    /// `None` where the data do not carry one; a caveat says why.
    pub interval: Option<Interval>,
    /// Reasons to trust it less.
    pub caveats: Vec<Caveat>,
}

/// A reason to trust a number less. Stored and printed beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "caveat", rename_all = "kebab-case")]
pub enum Caveat {
    /// Too few replications for an interval.
    #[error("{have} replications, an interval needs {need}")]
    TooFewReplications {
        /// Replications at hand.
        have: u64,
        /// Replications needed.
        need: u64,
    },
}
