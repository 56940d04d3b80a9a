//! `kendall report`: stored results, analyzed again.

use std::path::PathBuf;

use kendall_report::document::{Cell, Table, Unit};
use kendall_report::{Report, ReportError, Written};

use super::run::summary::{card, line_columns, terminal_table, wrapped};
use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// The first columns of a table that say what a row is, where they are words.
const NAMES: usize = 2;

/// Analyzes stored results again, without running anything; compares several
///
/// Writes `report.html`, `report.json` and `tables/*.csv` into the folder, and prints the summary.
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
                return Err(exit_with(Exit::Refused, anyhow::anyhow!(why)));
            }
            several => {
                let out = self.out.clone().unwrap_or_else(|| PathBuf::from("results/across"));
                kendall_report::across::write(several, &out).map_err(refuse)?
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
        lines.extend(report.sections.iter().flat_map(|s| s.tables()).map(as_text));
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

/// A table of a report for a terminal: numbers to the right, each with its interval; where that is too
/// wide, a paragraph a row, since columns of a few letters would break every name.
fn as_text(table: &Table) -> String {
    let mut text = terminal_table();
    text.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    text.set_header(table.columns.iter().map(|column| column.label.clone()));
    for row in &table.rows {
        let cells =
            row.iter().zip(&table.columns).map(|(cell, column)| cell_text(cell, column.unit));
        text.add_row(cells);
    }
    for (place, column) in table.columns.iter().enumerate() {
        if let Some(shown) = text.column_mut(place).filter(|_| column.unit != Unit::Text) {
            shown.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    let text = text.to_string();
    let fits = text.lines().all(|line| line.chars().count() <= line_columns());
    if fits { text } else { as_paragraphs(table) }
}

/// Each row: what it is called, and below it its figures.
fn as_paragraphs(table: &Table) -> String {
    let is_name = |place: usize| place < NAMES && table.columns[place].unit == Unit::Text;
    let mut paragraphs = Vec::new();
    for row in &table.rows {
        let cells: Vec<(usize, String)> = row
            .iter()
            .zip(&table.columns)
            .map(|(cell, column)| cell_text(cell, column.unit))
            .enumerate()
            .collect();
        let names: Vec<&str> =
            cells.iter().filter(|(at, _)| is_name(*at)).map(|(_, text)| text.as_str()).collect();
        let figures: Vec<String> = cells
            .iter()
            .filter(|(at, _)| !is_name(*at))
            .map(|(at, text)| format!("{} {text}", table.columns[*at].label))
            .collect();
        paragraphs.push(wrapped(&names.join(", ")).trim_end().to_owned());
        let below = wrapped(&format!("- {}", figures.join("; ")));
        paragraphs.push(below.trim_end().to_owned());
    }
    paragraphs.join("\n")
}

fn cell_text(cell: &Cell, unit: Unit) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(value) => unit.print(*value),
        Cell::Empty(_) => "–".to_owned(),
        Cell::Estimate(estimate) => {
            let center = unit.print(estimate.center);
            estimate.interval.map_or(center.clone(), |interval| {
                format!(
                    "{center} ± {}",
                    unit.print_half_width(estimate.center, interval.half_width())
                )
            })
        }
    }
}
