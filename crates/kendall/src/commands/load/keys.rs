//! Options of the keys and values of a load.

use kendall_loadgen::keyspace::{KeyChoice, Keyspace, KeyspacePlan, Size};
use kendall_units::parse_share;

use crate::exit::refused;

#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    #[arg(long)]
    keys: u64,

    /// Share of retrieved keys that were never stored
    #[arg(long, default_value = "0%", value_name = "SHARE", value_parser = parse_share)]
    pub(super) expected_misses: f64,

    /// Size of keys: `16B`, `uniform:10B..40B`, or `etc` (Facebook's ETC pool)
    #[arg(long, default_value = "16B", value_name = "SIZE")]
    key_size: String,

    #[arg(long, value_name = "SIZE")]
    value_size: String,

    #[arg(long, value_name = "CHOICE")]
    key_distribution: String,
}

impl Keys {
    pub(super) fn keyspace(&self, seed: u64) -> anyhow::Result<Keyspace> {
        Keyspace::new(KeyspacePlan {
            keys: self.keys,
            key_size: Size::parse(&self.key_size).map_err(refused)?,
            value_size: Size::parse(&self.value_size).map_err(refused)?,
            choice: KeyChoice::parse(&self.key_distribution).map_err(refused)?,
            seed,
        })
        .map_err(refused)
    }
}
