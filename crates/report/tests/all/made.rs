//! Reports that several tests read: each is made once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use kendall_report::{Report, Written};

use crate::synthetic::Synthetic;

/// Results and their report, which no test may change.
pub(crate) struct Made {
    pub(crate) name: &'static str,
    pub(crate) folder: PathBuf,
    pub(crate) report: Report,
    pub(crate) written: Written,
}

impl Made {
    pub(crate) fn of(synthetic: &Synthetic) -> Self {
        let name = synthetic.name;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}"));
        std::fs::remove_dir_all(&folder).unwrap_or_default();
        synthetic.store(&folder);
        let (report, written) = kendall_report::write(&folder).unwrap();
        Self { name, folder, report, written }
    }

    pub(crate) fn html(&self) -> String {
        std::fs::read_to_string(&self.written.html).unwrap()
    }
}

pub(crate) static WRITES: LazyLock<Made> = LazyLock::new(|| Made::of(&Synthetic::writes()));
pub(crate) static QUEUE: LazyLock<Made> = LazyLock::new(|| Made::of(&Synthetic::queue()));
pub(crate) static TWO_LEVEL: LazyLock<Made> = LazyLock::new(|| Made::of(&Synthetic::two_level()));
pub(crate) static IDLE: LazyLock<Made> = LazyLock::new(|| Made::of(&Synthetic::idle()));
