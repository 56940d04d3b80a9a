//! `kendall fit distribution`: which distribution times follow.

use std::path::PathBuf;

use kendall_fit::distribution::{self, DistributionFit, FitError, Options};
use kendall_report::document::{Section, Table, Unit};
use kendall_stats::estimate::figures;

use super::table::{Measurements, TimeUnit};
use crate::exit::Exit;
use crate::output::{self, Format};

/// Fits distributions to inter-arrival or service times, and ranks them
///
/// The times are the first column unless another is named. Prints how well each distribution fits,
/// and how wrong an exponential distribution (M/M/m) would be instead.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kendall fit distribution service-times.csv --column service --unit ms"
)]
pub(crate) struct FitDistribution {
    /// CSV file with one time a row
    #[arg(value_name = "DATA.csv")]
    file: PathBuf,
    /// Column of the times (its name, or its number from 1)
    #[arg(long, value_name = "COLUMN", default_value = "1")]
    column: String,
    /// Unit of the times
    #[arg(long, value_enum, default_value_t)]
    unit: TimeUnit,
    /// Seed of the bootstrap behind the p values
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Confidence of the intervals
    #[arg(long, default_value = "0.95", value_parser = kendall_units::parse_share)]
    confidence: f64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl FitDistribution {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let table = Measurements::read(&self.file)?;
        let times = table.times(&self.column, self.unit)?;
        let options = Options { seed: self.seed, confidence: self.confidence };
        let fit = distribution::fit(&times, &options).map_err(|error| match &error {
            FitError::NoTime { index, .. } => table.refuse_row(*index, &error.to_string()),
            _ => table.refuse(&error.to_string()),
        })?;
        output::print(self.format, &fit, || document(&fit))?;
        Ok(Exit::Done)
    }
}

fn document(fit: &DistributionFit) -> Section {
    let title = format!(
        "{} times, mean {} s, squared coefficient of variation {}",
        fit.count, fit.mean_s, fit.scv
    );
    let table = Table::of("candidates", "Distributions", &fit.candidates)
        .column("distribution", "distribution", Unit::Text, |one| one.name.to_string())
        .column("aic_difference", "AIC − best", Unit::Number, |one| {
            one.aic_difference.map(|aic| format!("{aic:.1}"))
        })
        .column("ks_distance", "KS", Unit::Number, |one| format!("{:.4}", one.ks_distance))
        .column("ks_p_value", "p", Unit::Number, |one| format!("{:.3}", one.ks_p_value))
        .column("parameters", "parameters", Unit::Text, |one| {
            let each =
                one.parameters.iter().map(|(name, value)| format!("{name} {}", figures(*value, 5)));
            each.collect::<Vec<_>>().join(", ")
        });
    let mut document = Section::new("distribution", title);
    document.table(table.table());
    document.text(match fit.fits {
        Some(name) => format!("The best distribution that the times do not reject: {name}."),
        None => "None fits: the times reject every one of them (p below 1 − confidence). Use the \
                 times themselves (an empirical distribution), or split them by kind."
            .to_owned(),
    });
    for why in &fit.left_out {
        document.text(format!("left out: {why}"));
    }
    let factor = fit.waiting_over_exponential.center;
    document.text(format!(
        "If taken as exponential (M/M/m): the mean waiting time with these times is {} of that \
         model's{}.",
        fit.waiting_over_exponential,
        if (0.9..=1.1).contains(&factor) { ", so it hardly matters" } else { "" }
    ));
    if let Some(lag1) = fit.lag1_correlation {
        document.text(format!("Correlation of neighboring times: {lag1:.3}."));
    }
    let of_variation = fit.scv.caveats.iter().filter(|c| !fit.mean_s.caveats.contains(c));
    for caveat in of_variation.chain(&fit.mean_s.caveats) {
        document.text(format!("* {caveat}"));
    }
    document
}
