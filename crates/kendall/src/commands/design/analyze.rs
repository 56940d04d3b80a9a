//! `kendall design analyze`: a table of runs, analyzed.

use std::path::PathBuf;

use kendall_report::experiment::ExperimentPage;
use kendall_stats::analysis::{self, Observation, Options, Table};

use super::tables;
use crate::csv::{Csv, CsvError};
use crate::exit::{Exit, exit_with};
use crate::output::{self, Format};

/// Columns that are no factors unless they are named as such.
const BESIDE: [&str; 5] = ["order", "run", "block", "replicate", "replication"];

/// Analyzes a design from a table: effects with intervals, allocation of variation, assumptions
///
/// The table is CSV with a header: a column for each factor, one for the response, and if there are
/// such, one for the repetition and one named `order` for the order of the runs. A row without a
/// response counts as not measured.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kendall design analyze measured.csv --response value --out figures"
)]
pub(super) struct Analyze {
    /// Table of the runs
    #[arg(value_name = "DATA.csv")]
    file: PathBuf,
    /// Column of the response variable
    #[arg(long, default_value = "value")]
    response: String,
    /// Columns of the factors [default: all others]
    #[arg(long, value_delimiter = ',')]
    factors: Vec<String>,
    /// Column of the repetition
    #[arg(long, default_value = "replicate")]
    replicate: String,
    /// Takes the repetitions as blocks: what differs between them leaves the error
    #[arg(long)]
    blocks: bool,
    /// How effects combine
    #[arg(long, value_enum, default_value_t)]
    model: Model,
    /// Confidence of the intervals
    #[arg(long, default_value = "0.95", value_parser = kendall_units::parse_share)]
    confidence: f64,
    /// Folder for a page with the figures (residuals, normal quantiles, interactions)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Model {
    /// The one that the data recommend
    #[default]
    Auto,
    /// Effects add
    Additive,
    /// Effects multiply: an additive model of the logarithm
    Multiplicative,
}

impl Analyze {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let csv = Csv::read(&self.file).map_err(|error| exit_with(Exit::Refused, error))?;
        let (table, skipped) = self.table(&csv).map_err(|error| exit_with(Exit::Refused, error))?;
        let options = Options {
            model: match self.model {
                Model::Auto => None,
                Model::Additive => Some(analysis::Model::Additive),
                Model::Multiplicative => Some(analysis::Model::Multiplicative),
            },
            confidence: self.confidence,
            blocks: self.blocks,
        };
        let analysis =
            analysis::analyze(&table, &options).map_err(|error| exit_with(Exit::Refused, error))?;
        if skipped > 0 {
            output::note(&format!("{skipped} rows have no response and count as not measured"));
        }
        if let Some(folder) = &self.out {
            let source = self.file.display().to_string();
            let page =
                ExperimentPage { source: &source, response: &self.response, analysis: &analysis };
            let written = page.write(folder).map_err(|error| exit_with(Exit::NotReady, error))?;
            output::note(&format!("figures: {}", written.html.display()));
        }
        match self.format {
            Format::Human => output::result(&tables::human(&analysis, &self.response)),
            Format::Json => output::json(&analysis)?,
        }
        Ok(Exit::Done)
    }

    /// The runs that have a response, and how many have none.
    fn table(&self, csv: &Csv) -> Result<(Table, usize), CsvError> {
        let response = csv.column(&self.response)?;
        let named = self.replicate != "replicate" || self.blocks;
        let replicate = match csv.find(&self.replicate) {
            None if named => Some(csv.column(&self.replicate)?),
            found => found,
        };
        let order = csv.find("order").filter(|_| !self.factors.iter().any(|name| name == "order"));
        let factors: Vec<usize> = if self.factors.is_empty() {
            (0..csv.header.len())
                .filter(|column| *column != response && Some(*column) != replicate)
                .filter(|column| !BESIDE.contains(&csv.header[*column].as_str()))
                .collect()
        } else {
            self.factors.iter().map(|name| csv.column(name)).collect::<Result<_, _>>()?
        };
        let mut observations = Vec::new();
        for row in &csv.rows {
            let Some(value) = csv.number(row, response)? else { continue };
            observations.push(Observation {
                levels: factors.iter().map(|column| row.1[*column].clone()).collect(),
                block: replicate.map(|column| row.1[column].clone()),
                order: order.map(|column| csv.number(row, column)).transpose()?.flatten(),
                value,
            });
        }
        let skipped = csv.rows.len() - observations.len();
        let factors = factors.iter().map(|column| csv.header[*column].clone()).collect();
        Ok((Table { factors, observations }, skipped))
    }
}
