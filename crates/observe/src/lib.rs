//! Operational analysis of a system that is already running, from its monitoring alone.
//!
//! A system file ([`System`]) says which tiers there are, who calls whom, and which queries of a
//! Prometheus give what each tier does. [`fetch`](fetch()) asks them (live or from a recording), [`analyze`]
//! makes stationary windows, checks the monitoring by operational laws, fits demands and an open
//! network on one part of the time and scores it on the rest, [`report`](mod@report) writes it
//! down.
//!
//! What it leaves out: any load, agent or change of the service; and anything that the monitoring
//! does not carry: percentiles are given with the bounds that histogram bins allow, and questions
//! beyond what was seen are refused with the reason.

mod analysis;
mod arrivals;
mod bins;
mod classes;
mod fetch;
pub mod fuzzing;
mod grid;
mod growth;
mod mixes;
mod network;
mod preset;
mod prometheus;
mod promql;
mod recording;
pub mod report;
mod residence;
mod samples;
pub mod scaling;
mod system;
mod table;
mod variability;
pub mod watch;
mod what_if;
mod windows;

pub use analysis::{
    Analysis, AnalyzeError, Headroom, LawCheck, TierAnalysis, analyze, growth_of, seen_to_the_end,
};
pub use arrivals::{Arrivals, Dispersion, Hour, arrivals};
pub use bins::{QuantileBounds, quantile_bounds};
pub use classes::{ClassFound, ClassPoint, Classes, classes, stages};
pub use fetch::{FetchError, Observed, TierSeries, fetch, fetch_load};
pub use grid::{Grid, GridError};
pub use growth::{Growth, Saturation, growth};
pub use mixes::{ClassNetwork, NetworkClass};
pub use network::{Network, Score, Structure};
pub use preset::{PRESETS, Preset};
pub use prometheus::{Authentication, Prometheus};
pub use recording::{Recorder, Recording};
pub use residence::{Residence, Waiting};
pub use samples::{SampleError, Samples};
pub use system::{Quantity, Queues, System, SystemError, Tier};
pub use table::CsvTable;
pub use variability::Variability;
pub use what_if::{Answer, Change, ChangeError, answer};
pub use windows::{Window, Windows};

/// Where answers to queries come from.
pub trait Source {
    /// The series that `query` has on `grid`.
    ///
    /// # Errors
    /// [`SourceError`] when there is no answer.
    fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError>;

    /// Names of all metrics, where the source knows them.
    ///
    /// # Errors
    /// [`SourceError`] when there is no answer.
    fn metric_names(&mut self) -> Result<Vec<String>, SourceError> {
        Ok(Vec::new())
    }
}

/// One series on a grid: one value a step, NaN where the source has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Labels, in the order of their names.
    pub labels: std::collections::BTreeMap<String, String>,
    /// One a step of the grid.
    pub values: Vec<f64>,
}

/// Why a source gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The server cannot be reached, or does not answer in time.
    #[error("{url} cannot be reached; is it a Prometheus, and is it running?")]
    Unreachable {
        /// Which.
        url: String,
        /// Why.
        #[source]
        source: Box<ureq::Error>,
    },
    /// What answers is not a Prometheus, or does not answer us.
    #[error("{url} answered with status {status} (`{begin}`): {remedy}")]
    Status {
        /// Which.
        url: String,
        /// HTTP status.
        status: u16,
        /// How the answer begins.
        begin: String,
        /// What to do.
        remedy: String,
    },
    /// The server refused the query.
    #[error("the query `{query}` was refused: {reason}")]
    Refused {
        /// Which.
        query: String,
        /// In the server's words.
        reason: String,
    },
    /// An answer that is not of the documented form.
    #[error("the answer to `{query}` cannot be read: {reason}")]
    Unreadable {
        /// To which query.
        query: String,
        /// Why.
        reason: String,
    },
    /// A folder is no recording.
    #[error(
        "{folder} has no recording (no index.json); `--record {folder}` makes one from a server"
    )]
    NoRecording {
        /// Which.
        folder: String,
    },
    /// A recording lacks this query.
    #[error(
        "the recording {folder} has no answer to `{query}` for this time: record it again from the \
         server, or choose a time that it contains"
    )]
    NotRecorded {
        /// Where.
        folder: String,
        /// Which.
        query: String,
    },
    /// A file of a recording cannot be read or written.
    #[error("{path}")]
    File {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
