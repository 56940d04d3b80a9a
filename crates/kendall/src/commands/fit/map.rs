//! `kendall fit map`: an arrival process with the moments and the correlations of a trace.

use std::path::PathBuf;

use kendall_queueing::distribution::{MapFit, MapFitError, fit_map};
use kendall_report::document::{Section, Table, Unit};

use super::table::{Measurements, TimeUnit};
use crate::exit::Exit;
use crate::output::{self, Format};

/// Fits a Markovian arrival process to times in the order in which they were measured
///
/// The times (between arrivals, or of services) are the first column unless another is named. The
/// answer ends with the distribution for a model file: `interarrival_time = …`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  kendall fit map gaps.csv --column gap --unit ms")]
pub(crate) struct FitMap {
    /// CSV file with one time a row
    #[arg(value_name = "TRACE.csv")]
    file: PathBuf,
    /// Column of the times (its name, or its number from 1)
    #[arg(long, value_name = "COLUMN", default_value = "1")]
    column: String,
    /// Unit of the times
    #[arg(long, value_enum, default_value_t)]
    unit: TimeUnit,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl FitMap {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let table = Measurements::read(&self.file)?;
        let times = table.times(&self.column, self.unit)?;
        let fit = fit_map(&times).map_err(|error| match &error {
            MapFitError::NoTime { index, .. } => table.refuse_row(*index, &error.to_string()),
            _ => table.refuse(&error.to_string()),
        })?;
        output::print(self.format, &fit, || document(&fit))?;
        Ok(Exit::Done)
    }
}

fn document(fit: &MapFit) -> Section {
    let title = format!("A process for {} times", fit.count);
    let mut rows = vec![
        ("mean (s)".to_owned(), fit.mean_s, fit.process.mean()),
        ("squared coefficient of variation".to_owned(), fit.scv, fit.process.scv()),
        ("third moment (s³)".to_owned(), fit.third_moment_s3.0, fit.third_moment_s3.1),
    ];
    rows.extend(
        fit.correlations.iter().map(|(lag, measured, fitted)| {
            (format!("correlation at lag {lag}"), *measured, *fitted)
        }),
    );
    let table = Table::of("moments", "Moments and correlations", &rows)
        .column("quantity", "quantity", Unit::Text, |row| row.0.clone())
        .column("measured", "measured", Unit::Number, |row| format!("{:.5}", row.1))
        .column("fitted", "fitted", Unit::Number, |row| format!("{:.5}", row.2));
    let mut document = Section::new("map", title);
    document.table(table.table());
    for what in &fit.missing {
        document.text(format!("The fit lacks {what}."));
    }
    document.text(format!("For a model file: {}", fit.distribution));
    document
}
