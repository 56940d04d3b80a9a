//! `kendall report`: stored results, analysed again.

use std::path::PathBuf;

use kendall_report::{Report, ReportError, Written};
use kendall_store::StoreError;

use super::run::summary::card;
use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Analyses stored results again, without running anything
///
/// Writes `report.html`, `report.json` and `tables/*.csv` into the folder, and prints the summary.
/// With `--format json` it prints everything that the report holds.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kendall report results/demo")]
pub(crate) struct ReportCommand {
    /// Folder of results, as made by `kendall run`
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl ReportCommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (report, written) = kendall_report::write(&self.folder).map_err(refuse)?;
        match self.format {
            Format::Human => output::result(&human(&report, &written)),
            Format::Json => output::json(&report)?,
        }
        Ok(Exit::Done)
    }
}

/// A folder without results is the user's to mend; a full disk is not.
fn refuse(error: ReportError) -> anyhow::Error {
    let exit = match &error {
        ReportError::Store(
            StoreError::Missing { .. } | StoreError::Newer { .. } | StoreError::Corrupt { .. },
        ) => Exit::Refused,
        ReportError::Store(_) | ReportError::File { .. } => Exit::NotReady,
        ReportError::Page(_) | ReportError::Json(_) => Exit::Failure,
    };
    exit_with(exit, error)
}

fn human(report: &Report, written: &Written) -> String {
    let mut lines = vec![report.title.clone(), report.byline.clone(), String::new()];
    lines.extend(report.summary.iter().map(|sentence| format!("- {sentence}")));
    lines.extend([
        String::new(),
        format!("report  {}", written.html.display()),
        format!("json    {}", written.json.display()),
    ]);
    if let Some(folder) = written.tables.first().and_then(|path| path.parent()) {
        lines.push(format!("tables  {} ({} files)", folder.display(), written.tables.len()));
    }
    if let Some(answer) = &report.answer {
        lines.push(String::new());
        lines.push(card(answer).trim_end().to_owned());
    }
    lines.join("\n")
}
