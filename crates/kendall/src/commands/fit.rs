//! `kendall fit`: parameters from measurements in a CSV file.

mod demands;
mod distribution;
mod map;
mod table;
mod usl;

use crate::exit::Exit;

/// Fits a scaling law, service demands, a distribution or an arrival process to measurements
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  kendall fit usl scaling.csv --predict 16,32,64
  kendall fit demands load-points.csv --servers 4
  kendall fit distribution service-times.csv --unit ms
  kendall fit map gaps.csv --unit ms")]
pub(crate) struct Fit {
    #[command(subcommand)]
    what: What,
}

commands! {
    What {
        Usl(usl::FitUsl),
        Demands(demands::FitDemands),
        Distribution(distribution::FitDistribution),
        Map(map::FitMap),
    }
}

impl Fit {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        self.what.run()
    }
}
