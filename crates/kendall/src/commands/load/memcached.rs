//! `kendall load memcached`.

use std::sync::atomic::Ordering;

use kendall_loadgen::load::{self, LoadError};
use kendall_loadgen::memcached::{Memcached, MemcachedPlan, PrefillError, parse_mix, prefill};
use kendall_loadgen::random::{Purpose, stream};

use super::common::{Common, load_error, resolve};
use super::keys::Keys;
use super::secure::SecureFlags;
use crate::exit::{Exit, refused, stop_at_a_signal};
use crate::output;

/// Loads memcached servers, or anything that speaks memcached's text protocol
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  kendall load memcached 127.0.0.1:11211 --clients 64 --threads 2 \
                  --duration 10s --mix set=1,get=10 --value-size 1KiB --keys 10000 --multiget 9 --prefill"
)]
pub(crate) struct LoadMemcached {
    /// Servers; the clients are spread over them in turn
    #[arg(required = true, value_name = "HOST:PORT")]
    targets: Vec<String>,

    /// Commands with their weights: get, gets, multi-get, gat, set, add, replace, delete, touch
    #[arg(long, default_value = "set=1,get=10", value_name = "COMMAND=WEIGHT,…")]
    mix: String,

    #[arg(long, value_name = "KEYS")]
    multiget: u32,

    #[command(flatten)]
    keys: Keys,

    /// Seconds that stored values live; 0 is forever
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    expiry: u32,

    /// Checks every returned value against its key
    #[arg(long)]
    verify: bool,

    /// Store every key on every server before the load
    #[arg(long)]
    prefill: bool,

    /// Store every key on every server, and end
    #[arg(long)]
    prefill_only: bool,

    #[command(flatten)]
    secure: SecureFlags,

    #[command(flatten)]
    common: Common,
}

impl LoadMemcached {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let keyspace = self.keys.keyspace(self.common.seed)?;
        let content = MemcachedPlan {
            mix: parse_mix(&self.mix, self.multiget as usize).map_err(refused)?,
            keys_per_multi_get: self.multiget as usize,
            expected_misses: self.keys.expected_misses,
            verify: self.verify,
            expiry_s: self.expiry,
            secure: self.secure.of(&self.targets)?,
        };
        let plan = self
            .common
            .plan(resolve(&self.targets, "127.0.0.1:11211")?, self.common.clients().into())?;
        let stop = stop_at_a_signal()?;
        if self.prefill || self.prefill_only {
            let timeout = self.common.timeout.as_duration();
            for target in &plan.targets {
                let stopped = || stop.load(Ordering::Relaxed);
                let stored = prefill(*target, &keyspace, &content, timeout, &stopped)
                    .map_err(prefill_error)?;
                if !self.common.quiet {
                    output::note(&format!("stored {stored} keys on {target}"));
                }
            }
        }
        if self.prefill_only {
            return Ok(Exit::Done);
        }
        let driver = |thread| {
            Memcached::new(&keyspace, &content, stream(plan.seed, Purpose::Requests, thread))
        };
        let result = load::run("memcached", &plan, &driver, &stop, &mut self.common.progress()?)
            .map_err(load_error)?;
        self.common.print(&result)
    }
}

fn prefill_error(error: PrefillError) -> anyhow::Error {
    match error {
        PrefillError::Connect { target, source } => {
            load_error(LoadError::Connect { target, source })
        }
        other => other.into(),
    }
}
