//! Why monitoring does not tell what was asked.

use crate::source::SourceError;

/// Monitoring that does not say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(
        "tiers.{tier}.queries.{quantity}: {count} series instead of one, the first two with labels \
         {first} and {second}; sum over them, as in `sum(…)`, or narrow the selector"
    )]
    Several { tier: String, quantity: &'static str, count: usize, first: String, second: String },
    /// Its queries take no label matcher that would leave the second out.
    #[error(
        "tiers.{tier}: one application is scraped twice, with {label}=\"{kept}\" and {label}=\"{second}\": add \
         {label}!=\"{second}\" to each metric of its queries"
    )]
    Twice { tier: String, label: String, kept: String, second: String },
    #[error("tiers.{tier}.queries.{quantity}: `{query}` {what}")]
    Nothing { tier: String, quantity: &'static str, query: String, what: String },
}
