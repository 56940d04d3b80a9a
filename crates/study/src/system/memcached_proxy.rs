//! `kind = "memcached-proxy"`: Kendall's middleware before memcached servers.

use crate::section::{Problem, Section};
use crate::system::{SystemKind, memcached};
use crate::topology::{Source, Started, TierSpec, Topology};

pub(super) const KIND: SystemKind = SystemKind {
    name: "memcached-proxy",
    protocol: "memcached",
    read,
    programs: &[("memcached", "memcached")],
};

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let servers = memcached::servers(section)?;
    let instances = section.small("proxies", Some(1), 1..=64)?;
    let workers = section.small("workers", Some(64), 1..=4096)?;
    let mode = section.choice(
        "mode",
        &[("worker", "worker"), ("pipelined", "pipelined")],
        Some("worker"),
    )?;
    let placement = section.choice(
        "placement",
        &[("replicate", "replicate"), ("hash", "hash")],
        Some("replicate"),
    )?;
    let shard = section.flag("shard_multigets", false)?;
    let line = format!(
        "proxy --listen 127.0.0.1:0 --server={{each:servers}} --workers {workers} --mode {mode} \
         --placement {placement}"
    );
    let mut arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if shard {
        arguments.push("--shard-multigets".into());
    }
    arguments.extend(section.words("proxy_options", &[])?);
    let proxies = TierSpec {
        name: "proxies".into(),
        kind: "memcached-proxy".into(),
        backends: vec![servers.name.clone()],
        source: Source::Started(Started::kendall(instances, arguments)),
    };
    let filled = vec![servers.name.clone()];
    Ok(Topology { tiers: vec![servers, proxies], entry: "proxies".into(), filled })
}
