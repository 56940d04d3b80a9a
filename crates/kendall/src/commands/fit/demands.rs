//! `kendall fit demands`: service demands by utilization regression.

use std::path::PathBuf;

use anyhow::anyhow;
use kendall_fit::demands::{self, DemandError, DemandFit, LoadPoint, Options, Weighting};
use kendall_report::document::{Section, Table, Unit};
use kendall_stats::estimate::figures;
use kendall_units::counted;
use serde::Serialize;

use super::table::Measurements;
use crate::exit::{Exit, refused};
use crate::output::{self, Format};

/// Utilization up to which [`demands::regress`] takes an error of measurement for granted.
const MOST_UTILIZATION: f64 = 1.1;

/// Estimates service demands from utilizations and throughputs
///
/// One row a load point. Columns whose names begin with `utilization` are resources (shares from 0
/// to 1; with `_percent` at the end, percent), columns whose names begin with `throughput` are
/// classes (1/s): `utilization_cpu,utilization_disk,throughput_get,throughput_set`. No demand
/// becomes negative; a row without load gives the background.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kendall fit demands load-points.csv --servers 4 --background")]
pub(crate) struct FitDemands {
    /// CSV file with one load point a row
    #[arg(value_name = "DATA.csv")]
    file: PathBuf,
    /// Columns of the utilizations (their names, or numbers from 1)
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    utilization: Vec<String>,
    /// Columns of the throughputs
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    throughput: Vec<String>,
    /// Servers (cores) of the resources: one number for all, or one for each
    #[arg(long, value_name = "M,…", value_delimiter = ',', default_value = "1")]
    servers: Vec<f64>,
    /// Also estimates what is busy without load
    #[arg(long)]
    background: bool,
    /// Column of weights: in proportion to the inverse variance of a row's error, such as the length
    /// of its measurement
    #[arg(long, value_name = "COLUMN", conflicts_with = "robust")]
    weights: Option<String>,
    /// Weighs load points far off the others less (Huber), such as those beside a backup
    #[arg(long)]
    robust: bool,
    /// Takes utilizations above 1.1 as 1, with a note; without it they are refused
    #[arg(long)]
    clip: bool,
    /// Confidence of the intervals
    #[arg(long, default_value = "0.95", value_parser = kendall_units::parse_share)]
    confidence: f64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Serialize)]
struct Answer {
    load_points: usize,
    classes: Vec<String>,
    resources: Vec<Resource>,
}

#[derive(Serialize)]
struct Resource {
    name: String,
    servers: f64,
    /// Utilizations that `--clip` took as 1, and the largest of them.
    clipped: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    clipped_up_to: Option<f64>,
    #[serde(flatten)]
    fit: DemandFit,
}

impl FitDemands {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let table = Measurements::read(&self.file)?;
        let busy = columns(&table, &self.utilization, &["utilization", "u", "util", "busy"])?;
        let rates = columns(&table, &self.throughput, &["throughput", "x", "rate"])?;
        if busy.is_empty() || rates.is_empty() {
            return Err(table.refuse(&format!(
                "expected columns `utilization…` and `throughput…`, found {}; name them with \
                 --utilization and --throughput",
                table.columns.join(", ")
            )));
        }
        if self.servers.len() != 1 && self.servers.len() != busy.len() {
            let (have, need) = (self.servers.len(), busy.len());
            let error = anyhow!("--servers has {have} numbers for {need} resources");
            return Err(refused(error));
        }
        let throughputs: Vec<Vec<f64>> =
            rates.iter().map(|column| table.numbers(*column)).collect::<Result<_, _>>()?;
        let weighting = match &self.weights {
            Some(column) => Weighting::Given(table.numbers(table.column(column)?)?),
            None if self.robust => Weighting::Robust,
            None => Weighting::Equal,
        };
        let mut resources = Vec::new();
        for (index, column) in busy.iter().enumerate() {
            let name = table.columns[*column].clone();
            let scale = if name.to_ascii_lowercase().contains("percent") { 0.01 } else { 1.0 };
            let mut shares = table.numbers(*column)?;
            shares.iter_mut().for_each(|share| *share *= scale);
            let clipped = if self.clip { clip(&mut shares) } else { Vec::new() };
            let points: Vec<LoadPoint> = shares
                .into_iter()
                .enumerate()
                .map(|(row, utilization)| LoadPoint {
                    utilization,
                    throughputs_per_s: throughputs.iter().map(|rates| rates[row]).collect(),
                })
                .collect();
            let servers = self.servers[index.min(self.servers.len() - 1)];
            let (background, confidence) = (self.background, self.confidence);
            let options = Options { servers, background, confidence };
            let fit = demands::regress_weighted(&points, &weighting, &options);
            let fit = fit.map_err(|error| match &error {
                DemandError::Measurement { index, what, .. } => {
                    let clip =
                        if *what == "utilization" { "; or --clip takes it as 1" } else { "" };
                    table.refuse_row(*index, &format!("`{name}`: {error}{clip}"))
                }
                _ => table.refuse(&format!("`{name}`: {error}")),
            })?;
            let clipped_up_to = clipped.iter().copied().reduce(f64::max);
            resources.push(Resource { name, servers, clipped: clipped.len(), clipped_up_to, fit });
        }
        let answer = Answer {
            load_points: throughputs[0].len(),
            classes: rates.iter().map(|column| table.columns[*column].clone()).collect(),
            resources,
        };
        output::print(self.format, &answer, || document(&answer, self.confidence, self.robust))?;
        Ok(Exit::Done)
    }
}

/// Takes what is too much for an error of measurement as 1; returns what it was.
fn clip(shares: &mut [f64]) -> Vec<f64> {
    let beyond = shares.iter_mut().filter(|share| **share > MOST_UTILIZATION && share.is_finite());
    beyond.map(|share| std::mem::replace(share, 1.0)).collect()
}

fn columns(table: &Measurements, asked: &[String], names: &[&str]) -> anyhow::Result<Vec<usize>> {
    if asked.is_empty() {
        return Ok(table.named_like(names));
    }
    asked.iter().map(|name| table.column(name)).collect()
}

fn document(answer: &Answer, confidence: f64, robust: bool) -> Section {
    let mut document = Section::new("demands", "");
    for resource in &answer.resources {
        let fit = &resource.fit;
        document.text(format!(
            "{}: {}, {}, {}",
            resource.name,
            counted(resource.servers, "server"),
            counted(answer.load_points, "load point"),
            counted(fit.degrees_of_freedom, "degree of freedom")
        ));
        document.table(table(&answer.classes, fit, confidence));
        document.text(format!(
            "residual standard error {} servers, R² {}, condition number {}",
            fit.residual_standard_error.map_or_else(|| "–".to_owned(), |e| figures(e, 4)),
            fit.r_squared.map_or_else(|| "–".to_owned(), |r| format!("{r:.4}")),
            figures(fit.condition_number, 3)
        ));
        let light = fit.weights.iter().filter(|weight| **weight < 0.5).count();
        if robust && light > 0 {
            document.text(format!(
                "* far off the others, with a weight below a half: {light} of {}",
                counted(answer.load_points, "load point")
            ));
        }
        if let Some(most) = resource.clipped_up_to {
            document.text(format!(
                "* {} of {} utilizations up to {} were taken as 1 (--clip): demands are too low where \
                 they belong to more servers, and meaningless where the measurement is wrong",
                resource.clipped,
                answer.load_points,
                figures(most, 3)
            ));
        }
        let mut said: Vec<String> = Vec::new();
        for demand in fit.demands.iter().chain(&fit.background) {
            for caveat in &demand.estimate.caveats {
                let text = format!("* {caveat}");
                if !said.contains(&text) {
                    document.text(text.clone());
                    said.push(text);
                }
            }
        }
    }
    document
}

/// A row a class, and one for what is busy without load.
fn table(classes: &[String], fit: &DemandFit, confidence: f64) -> Table {
    let of_classes = classes.iter().map(String::as_str).zip(&fit.demands);
    let background = fit.background.iter().map(|demand| ("background (servers)", demand));
    let shown = |value: Option<f64>| value.map(|value| figures(value, 4));
    let heading = format!("{:.0} % interval", 100.0 * confidence);
    Table::of("demands", "Service demands", of_classes.chain(background))
        .column("class", "class", Unit::Text, |(name, _)| *name)
        .column("demand_s", "demand s", Unit::Number, |(_, demand)| {
            figures(demand.estimate.center, 6)
        })
        .column("error", "std. error", Unit::Number, |(_, demand)| shown(demand.standard_error))
        .column("p", "p", Unit::Number, |(_, demand)| shown(demand.p_value))
        .column("interval", heading, Unit::Text, |(_, demand)| {
            let interval = demand.estimate.interval.map_or_else(String::new, |i| i.to_string());
            format!("{interval}{}", if demand.estimate.caveats.is_empty() { "" } else { " *" })
        })
        .table()
}
