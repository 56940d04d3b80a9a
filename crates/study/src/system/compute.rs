//! `kind = "compute"`: Kendall's compute service.

use kendall_protocols::topology::{Pool, PoolKind};

use crate::section::{Key, Problem, Section};
use crate::system::SystemKind;
use crate::topology::{Started, TierSpec, Topology};

pub(super) const KIND: SystemKind = SystemKind::new("compute", "http", &[KEYS], read);

const KEYS: &[Key] = &[
    Key::count("instances", 1, 64, "processes; clients are spread over them in turn").or("1"),
    Key::count("workers", 1, 1024, "worker threads, which compute").or("1"),
    Key::flag("cache", "whether answers are kept").or("false"),
    Key::text("queue", "requests that may wait, or `unbounded`; others get a 503")
        .or("'unbounded'"),
    Key::texts("options", "further arguments of `kendall serve compute`"),
];

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let instances = section.small("instances")?;
    let workers = section.small("workers")?;
    let cache = if section.flag("cache")? { "on" } else { "off" };
    let mut arguments: Vec<String> =
        ["compute", "--listen", "{host}:0", "--cache", cache].map(str::to_owned).into();
    arguments.extend(section.options(&["workers", "queue"])?);
    arguments.extend(section.words("options")?);
    Ok(one_tier("compute", workers, Started::kendall(instances, arguments)))
}

/// A system of one tier, to which the clients talk.
pub(super) fn one_tier(kind: &'static str, workers: u32, started: Started) -> Topology {
    let tier = TierSpec {
        pools: vec![Pool { of: PoolKind::Workers, servers: workers }],
        ..TierSpec::started(kind, kind, started)
    };
    Topology { tiers: vec![tier], entry: kind.to_owned(), filled: Vec::new() }
}
