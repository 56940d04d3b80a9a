//! `kendall load reapi`.

use kendall_loadgen::keyspace::KeyChoice;
use kendall_loadgen::reapi::{self, ReapiLoadError, ReapiPlan};
use kendall_units::parse_share;

use super::common::{Common, load_error, resolve};
use crate::exit::{Exit, exit_with, refused, stop_at_a_signal};

/// Loads a build cache, or a cluster that executes
///
/// First a stock of blobs and results of actions is stored. The hit ratio is the share of reads
/// that request a blob of the stock; answers are checked. Each write stores a new blob. Executed
/// actions take the stated time; no two clients request the same action.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    kendall load reapi 127.0.0.1:9092 --mix get --clients 16 --duration 10s\n  \
    kendall load reapi 127.0.0.1:9092 --mix cold --blob-size exponential:20KiB --rate 500/s\n  \
    kendall load reapi 127.0.0.1:9092 --mix batch-read=1 --batch 50 --hit-ratio 90%\n  \
    kendall load reapi 127.0.0.1:8981 --mix execute=1 --action-time exponential:100ms --rate 20/s")]
pub(crate) struct LoadReapi {
    /// Caches with the same content, such as fronts, or schedulers that forward requests to the
    /// cache; the clients are spread over them
    #[arg(required = true, value_name = "HOST:PORT")]
    targets: Vec<String>,

    /// `cold` and `warm`: what Bazel 4 requests for one action, `cold-execution`: for one that a
    /// cluster executes; `get` (ByteStream reads), `put` (ByteStream writes), or weights of
    /// find-missing, get-result, put-result, batch-read, batch-update, read, write, execute,
    /// execute-cached
    #[arg(long, default_value = "warm", value_name = "MIX")]
    mix: String,

    #[arg(long, value_name = "DISTRIBUTION")]
    blob_size: String,

    #[arg(long)]
    batch: u32,

    #[arg(long)]
    stock: u32,

    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    hit_ratio: f64,

    #[arg(long, value_name = "CHOICE")]
    key_distribution: String,

    #[arg(long, value_name = "DISTRIBUTION")]
    action_time: String,

    /// Instance name
    #[arg(long, default_value = "", value_name = "NAME")]
    instance: String,

    #[command(flatten)]
    common: Common,
}

impl LoadReapi {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let plan = self
            .common
            .plan(resolve(&self.targets, "127.0.0.1:9092")?, self.common.clients().into())?;
        let reapi = ReapiPlan {
            mix: ReapiPlan::parse_mix(&self.mix).map_err(refused)?,
            blob_size: ReapiPlan::parse_size(&self.blob_size).map_err(refused)?,
            batch: usize::try_from(self.batch).unwrap_or(usize::MAX),
            stock: u64::from(self.stock),
            hit_ratio: self.hit_ratio,
            choice: KeyChoice::parse(&self.key_distribution).map_err(refused)?,
            action_time: ReapiPlan::parse_time(&self.action_time).map_err(refused)?,
            instance: self.instance,
        };
        let stop = stop_at_a_signal()?;
        let result = reapi::run(&plan, &reapi, &stop, &mut self.common.progress()?);
        let result = result.map_err(|error| match error {
            ReapiLoadError::Load(error) => load_error(error),
            few @ ReapiLoadError::FewActions { .. } => refused(few),
            refused @ ReapiLoadError::Refused { .. } => exit_with(Exit::NotReady, refused),
        })?;
        self.common.print(&result)
    }
}
