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
mod busy;
mod changed;
mod classes;
mod copies;
pub mod discover;
mod fetch;
mod fetch_error;
mod flow;
pub mod fuzzing;
mod grid;
mod growth;
mod objective;
mod preset;
mod prometheus;
mod promql;
mod quantity;
mod recording;
pub mod report;
mod samples;
pub mod scaling;
mod source;
mod system;
mod table;
mod twice;
pub mod watch;
mod windows;

use kendall_fit::change::{Change, Names};
use kendall_fit::open::ChangeError;

pub use analysis::{
    Analysis, AnalyzeError, Headroom, Impossible, LawCheck, TierAnalysis, analyze, growth_of,
    seen_to_the_end,
};
pub use arrivals::{Arrivals, Dispersion, Hour, arrivals};
pub use classes::{ClassFound, ClassPoint, Classes, classes, stages};
pub use fetch::{Observed, TierSeries, fetch, fetch_load};
pub use fetch_error::FetchError;
pub use grid::{Grid, GridError, minute};
pub use growth::{Growth, Saturation, growth};
pub use objective::objective;
pub use preset::{PRESETS, Preset, Stands};
pub use prometheus::{Authentication, Prometheus};
pub use quantity::Quantity;
pub use recording::{Recorder, Recording};
pub use samples::{SampleError, Samples};
pub use source::{Series, Source, SourceError};
pub use system::{Queues, System, SystemError, Tier};
pub use table::CsvTable;
pub use twice::Beside;
pub use windows::{Window, Windows};

/// Reads a change as `--what-if` has it, such as `load=2` or `TIER.servers=6`.
pub fn change(text: &str, system: &System) -> Result<Change, ChangeError> {
    let fail = |reason: String| ChangeError { text: text.to_owned(), reason };
    let (key, value) = text.split_once('=').ok_or_else(|| {
        fail("write it like `load=2`, `rate=500/s` or `TIER.servers=6`".to_owned())
    })?;
    let tiers = system.tiers.iter().map(|tier| tier.name.as_str()).collect();
    Change::parse(key, value, &Names { tiers, host: None }).map_err(fail)
}
