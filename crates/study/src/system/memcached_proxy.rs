//! `kind = "memcached-proxy"`: Kendall's middleware before memcached servers.

use kendall_protocols::topology::{Pool, PoolKind};

use crate::section::{Key, Problem, Section};
use crate::system::{SystemKind, memcached};
use crate::topology::{Started, TierSpec, Topology};

pub(super) const KIND: SystemKind = SystemKind {
    programs: &[("memcached", "memcached")],
    ..SystemKind::new("memcached-proxy", "memcached", &[memcached::KEYS, KEYS], read)
};

const KEYS: &[Key] = &[
    Key::count("proxies", 1, 64, "proxies; clients are spread over them in turn").or("1"),
    Key::count("workers", 1, 4096, "workers of each").or("64"),
    Key::choice("mode", &["worker", "pipelined"], "whether a worker waits for each answer")
        .or("'worker'"),
    Key::choice("placement", &["replicate", "hash"], "which servers have a key: all, or one")
        .or("'replicate'"),
    Key::flag("shard_multigets", "splits a get of several keys over all servers").or("false"),
    Key::texts("proxy_options", "further arguments of `kendall serve proxy`"),
];

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let servers = memcached::servers(section)?;
    let instances = section.small("proxies")?;
    let workers = section.small("workers")?;
    let mut arguments: Vec<String> =
        ["proxy", "--listen", "{host}:0", "--server={each:servers}"].map(str::to_owned).into();
    arguments.extend(section.options(&["workers", "mode", "placement", "shard_multigets"])?);
    arguments.extend(section.words("proxy_options")?);
    let proxies = TierSpec {
        backends: vec![servers.name.to_string()],
        pools: vec![Pool { of: PoolKind::Workers, servers: workers }],
        ..TierSpec::started("proxies", "memcached-proxy", Started::kendall(instances, arguments))
    };
    let filled = vec![servers.name.to_string()];
    Ok(Topology { tiers: vec![servers, proxies], entry: "proxies".into(), filled })
}
