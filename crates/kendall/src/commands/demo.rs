//! `kendall demo`: the study in `studies/demo.toml`, from nothing to its report.

use std::path::{Path, PathBuf};

use kendall_store::Results;
use kendall_study::StudyFile;

use super::run::{RunFlags, run_study};
use crate::exit::{Exit, refused};

/// The study, in the program itself: a demo needs no file.
const STUDY: &str = include_str!("../../../../studies/demo.toml");

/// Runs a short study of a real system (about a minute) and writes its report
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kendall demo")]
pub(crate) struct Demo {
    #[command(flatten)]
    flags: RunFlags,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let study = StudyFile::parse("studies/demo.toml", STUDY.to_owned(), self.flags.toy, &[])
            .map_err(refused)?;
        let folder = self.flags.out.clone().unwrap_or_else(|| free_folder(&study));
        run_study(&study, &folder, &self.flags)
    }
}

/// `results/demo`, or, where a whole demo lies there already, `results/demo-2` and so on.
fn free_folder(study: &StudyFile) -> PathBuf {
    let folder = |number: u32| match number {
        1 => Path::new("results").join(&study.study),
        _ => Path::new("results").join(format!("{}-{number}", study.study)),
    };
    (1..).map(folder).find(|folder| !is_finished(folder)).unwrap_or_else(|| folder(1))
}

fn is_finished(folder: &Path) -> bool {
    let ended = || -> Option<bool> {
        let results = Results::open(folder).ok()?;
        let planned = results.study().ok()?.planned_runs?;
        let ended = u64::try_from(results.latest_runs().ok()?.len()).ok()?;
        Some(ended >= planned)
    };
    Results::exists(folder) && ended().unwrap_or(true)
}
