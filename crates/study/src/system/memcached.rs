//! `kind = "memcached"`: servers without anything before them.

use kendall_host::launch::{AddressFrom, StopSignal};
use kendall_protocols::topology::{Pool, PoolKind};

use crate::section::{BYTES, Key, Problem, Quantities as _, Section};
use crate::system::SystemKind;
use crate::topology::{Started, TierSpec, Topology};

pub(super) const KIND: SystemKind = SystemKind {
    programs: &[("memcached", "memcached")],
    ..SystemKind::new("memcached", "memcached", &[KEYS], read)
};

/// Keys that all systems with memcached share.
pub(super) const KEYS: &[Key] = &[
    Key::count("servers", 1, 64, "servers").or("1"),
    Key::count("server_threads", 1, 256, "threads of each (memcached's `-t`)").or("1"),
    Key::quantity("server_memory", &BYTES, "memory of each (`-m`)").or("'256MiB'"),
    Key::texts("server_options", "further arguments of memcached"),
];

const SERVERS: &str = "servers";

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let servers = servers(section)?;
    Ok(Topology { tiers: vec![servers], entry: SERVERS.into(), filled: vec![SERVERS.into()] })
}

/// The tier of memcached servers, from keys that all systems with memcached share.
pub(super) fn servers(section: &mut Section<'_>) -> Result<TierSpec, Problem> {
    let instances = section.small("servers")?;
    let threads = section.small("server_threads")?;
    let memory = section.bytes("server_memory")?;
    let extra = section.words("server_options")?;
    let mebibytes = memory.div_ceil(1 << 20).max(1);
    // Port -1 is a free one, which memcached writes into the file named by its environment.
    // Root may not run it without saying as whom; others ignore the option.
    let line =
        format!("memcached -l {{host}} -p -1 -U 0 -u root -t {threads} -m {mebibytes} -c 16384");
    let mut command: Vec<String> = line.split(' ').map(str::to_owned).collect();
    command.extend(extra);
    let mut started = Started::command(instances, command);
    started.address = AddressFrom::PortFile;
    // It looks at signals once a second, and a cache of synthetic values has nothing to finish.
    started.stop = StopSignal::Kill;
    started.environment = vec![("MEMCACHED_PORT_FILENAME".into(), "{folder}/port".into())];
    Ok(TierSpec {
        pools: vec![Pool { of: PoolKind::Threads, servers: threads }],
        ..TierSpec::started(SERVERS, "memcached", started)
    })
}
