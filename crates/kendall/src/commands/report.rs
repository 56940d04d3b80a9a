//! `kendall report`: stored results, analyzed again.

use std::path::PathBuf;

use kendall_report::{Report, ReportError, Written};

use super::run::summary::card;
use crate::exit::{Exit, exit_with, refused};
use crate::output::{self, Format};
use crate::text::{self, wrapped};

/// Analyzes stored results again, without running anything; compares several
///
/// Writes `report.html`, `report.json`, `tables/*.csv` and `plots/*.svg` into the folder, and prints the summary.
/// With `--format json` it prints the contents of the report.
#[derive(Debug, clap::Args)]
/// For several folders it writes one page with a table of the highest throughputs of all their load
/// curves.
#[command(
    after_help = "Examples:\n  kendall report results/demo\n  kendall report results/one-server results/two-servers"
)]
pub(crate) struct ReportCommand {
    /// Folders of results, as made by `kendall run`
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Folder of the page for several folders [default: results/across]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl ReportCommand {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (report, written) = match self.folders.as_slice() {
            [folder] if self.out.is_none() => kendall_report::write(folder).map_err(refuse)?,
            [_] => {
                let why = "--out is for the page of several folders; the report of one folder is \
                           written into it";
                return Err(refused(anyhow::anyhow!(why)));
            }
            several => {
                let out = self.out.clone().unwrap_or_else(|| PathBuf::from("results/across"));
                kendall_report::several_studies::write(several, &out).map_err(refuse)?
            }
        };
        match self.format {
            Format::Human => output::result(&human(&report, &written)),
            Format::Json => output::json(&report)?,
        }
        Ok(Exit::Done)
    }
}

fn refuse(error: ReportError) -> anyhow::Error {
    let exit = match &error {
        ReportError::Store(error) => Exit::of_results(error),
        ReportError::File { .. } => Exit::NotReady,
        ReportError::Page(_) | ReportError::Json(_) => Exit::Failure,
    };
    exit_with(exit, error)
}

fn human(report: &Report, written: &Written) -> String {
    let in_lines = |text: &str| wrapped(text).trim_end().to_owned();
    let mut lines = vec![in_lines(&report.title), in_lines(&report.byline), String::new()];
    lines.extend(report.summary.iter().map(|sentence| in_lines(&format!("- {sentence}"))));
    if report.answer.is_none() {
        lines.extend(report.sections.iter().flat_map(|s| s.tables()).map(text::table));
    }
    lines.extend([
        String::new(),
        format!("report  {}", written.html.display()),
        format!("json    {}", written.json.display()),
    ]);
    if let Some(folder) = written.tables.first().and_then(|path| path.parent()) {
        let files = kendall_units::counted(written.tables.len(), "file");
        lines.push(format!("tables  {} ({files})", folder.display()));
    }
    if let Some(answer) = &report.answer {
        lines.push(String::new());
        lines.push(card(answer).trim_end().to_owned());
    }
    lines.join("\n")
}
