//! `kendall design analyze`: a table of runs, analyzed.

use std::path::PathBuf;

use kendall_report::experiment::ExperimentPage;
use kendall_stats::analysis::{self, Observation, Options, Table};

use super::tables;
use crate::csv::Csv;
use crate::exit::{Exit, exit_with, refused};
use crate::output::{self, Format};

/// Columns that are not factors unless they are named as such.
const BESIDE: [&str; 4] = ["order", "run", "run_order", "seed"];

/// Names of the column of the repetition, the first that there is.
const REPETITION: [&str; 8] =
    ["replicate", "replication", "repetition", "rep", "repeat", "block", "trial", "iteration"];

/// Analyzes a design from a table: effects with intervals, allocation of variation, assumptions
///
/// The table is CSV with a header: a column for each factor, one for the response, and optionally
/// one for the repetition and one named `order` for the order of the runs. A row without a response
/// counts as not measured.
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
    /// Column of the repetition [default: `replicate`, `rep`, `repetition`, `block`, … if there is
    /// one and it is not named as a factor]
    #[arg(long)]
    replicate: Option<String>,
    /// Treats repetitions as blocks: differences between them are not part of the error
    #[arg(long)]
    blocks: bool,
    /// Terms to pool into the error, named before the data are seen: `ABC,BD`, or `3+` for all
    /// interactions of three factors and more
    #[arg(long, value_name = "TERM,…", value_delimiter = ',')]
    pool: Vec<String>,
    /// Column of something else that was measured in every run, such as the machine's speed: where it
    /// explains part of the error, the effects at one value of it stand beside those as measured
    #[arg(long, value_name = "COLUMN")]
    covariate: Option<String>,
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
        let csv = Csv::read(&self.file)?;
        let (table, covariate, skipped) = self.table(&csv)?;
        let options = Options {
            model: match self.model {
                Model::Auto => None,
                Model::Additive => Some(analysis::Model::Additive),
                Model::Multiplicative => Some(analysis::Model::Multiplicative),
            },
            confidence: self.confidence,
            blocks: self.blocks,
        };
        let covariate = covariate.as_deref();
        let analysis =
            analysis::analyze_with(&table, &options, &self.pool, covariate).map_err(refused)?;
        if skipped > 0 {
            let rows = kendall_units::counted(skipped, "row");
            output::note(&format!("{rows} without a response: counted as not measured"));
        }
        let source = self.file.display().to_string();
        let page = ExperimentPage {
            source: &source,
            response: &self.response,
            covariate: self.covariate.as_deref().unwrap_or_default(),
            confidence: self.confidence,
            analysis: &analysis,
        };
        if let Some(folder) = &self.out {
            let written = page.write(folder).map_err(|error| exit_with(Exit::NotReady, error))?;
            output::note(&format!("figures: {}", written.html.display()));
        }
        output::print(self.format, &analysis, || tables::human(&page))?;
        Ok(Exit::Done)
    }

    /// The runs that have a response, their covariate, and how many have none.
    fn table(&self, csv: &Csv) -> anyhow::Result<(Table, Option<Vec<f64>>, usize)> {
        let response = csv.column(&self.response)?;
        let covariate = self.covariate.as_ref().map(|name| csv.column(name)).transpose()?;
        let is_factor = |name: &str| self.factors.iter().any(|factor| factor == name);
        let usual = || REPETITION.iter().filter(|name| !is_factor(name)).find_map(|n| csv.find(n));
        let replicate = match &self.replicate {
            Some(name) => Some(csv.column(name)?),
            None if self.blocks => Some(usual().map_or_else(|| csv.column("replicate"), Ok)?),
            None => usual(),
        };
        let order = csv.find("order").filter(|_| !self.factors.iter().any(|name| name == "order"));
        let factors: Vec<usize> = if self.factors.is_empty() {
            (0..csv.header.len())
                .filter(|column| *column != response && Some(*column) != replicate)
                .filter(|column| Some(*column) != covariate)
                .filter(|column| !BESIDE.contains(&csv.header[*column].as_str()))
                .collect()
        } else {
            self.factors.iter().map(|name| csv.column(name)).collect::<Result<_, _>>()?
        };
        if let Some(column) = covariate
            && (factors.contains(&column) || column == response || Some(column) == replicate)
        {
            return Err(csv.taken(column));
        }
        let mut observations = Vec::new();
        let mut beside = covariate.map(|_| Vec::new());
        for row in &csv.rows {
            let Some(value) = csv.number(row, response)? else { continue };
            if let (Some(column), Some(values)) = (covariate, &mut beside) {
                values.push(csv.number(row, column)?.ok_or_else(|| csv.empty(row, column))?);
            }
            observations.push(Observation {
                levels: factors.iter().map(|column| row.1[*column].clone()).collect(),
                block: replicate.map(|column| row.1[column].clone()),
                order: order.map(|column| csv.number(row, column)).transpose()?.flatten(),
                value,
            });
        }
        let skipped = csv.rows.len() - observations.len();
        let factors = factors.iter().map(|column| csv.header[*column].clone()).collect();
        Ok((Table { factors, observations }, beside, skipped))
    }
}
