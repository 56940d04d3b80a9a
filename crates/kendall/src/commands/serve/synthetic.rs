//! `kendall serve synthetic`: a station whose service times are known.

use kendall_synthetic::{Limits, Synthetic, SyntheticError, SyntheticOptions};
use kendall_tier::distribution::{Distribution, DistributionError, Unit};
use kendall_tier::{Routes, Stop};

use super::{Running, TierFlags, at_least_one};
use crate::exit::{Exit, exit_with};

/// Serves HTTP as a station of m servers with drawn service times, without using CPU
///
/// Every GET and POST is one visit; the answer contains its waiting and service time. So
/// measurements of it can be compared with M/M/1 and M/M/m.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    kendall serve synthetic --listen 127.0.0.1:8080 --workers 2 --service exponential:5ms")]
pub(crate) struct SyntheticFlags {
    #[command(flatten)]
    tier: TierFlags,

    #[arg(long)]
    workers: u32,

    #[arg(long, value_name = "DISTRIBUTION", value_parser = time)]
    service: Distribution,

    /// Requests that may wait; further ones are answered with 503
    #[arg(long, value_name = "REQUESTS", default_value_t = Limits::default().waiting)]
    queue: u64,

    /// Most connections at a time; further ones are closed
    #[arg(long = "client-connections", alias = "connections", value_name = "N", default_value_t = Limits::default().connections, value_parser = at_least_one::<usize>())]
    connections: usize,

    #[arg(long)]
    seed: u64,

    /// Number of the run: others have other service times from the same seed
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    run: u64,
}

fn time(text: &str) -> Result<Distribution, DistributionError> {
    Distribution::parse(text, Unit::Time)
}

impl SyntheticFlags {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let options = SyntheticOptions {
            listen: self.tier.listen,
            service_time: self.service,
            servers: self.workers,
            seed: self.seed,
            run: self.run,
            limits: Limits {
                waiting: self.queue,
                connections: self.connections,
                ..Limits::default()
            },
        };
        let synthetic = Synthetic::bind(&options).map_err(|error| {
            let exit = match error {
                SyntheticError::NoServers => Exit::Refused,
                SyntheticError::Listen { .. } | SyntheticError::EventLoop(_) => Exit::NotReady,
            };
            exit_with(exit, error)
        })?;
        let stop = Stop::on_signals()?;
        let (instruments, listen) = (synthetic.instruments(), vec![synthetic.address()]);
        Running::start(&self.tier.page, &instruments, Routes::new(), &stop, listen)?
            .serve(move |stop| synthetic.run(stop))
    }
}
