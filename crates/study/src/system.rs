//! The systems that a study can measure. One file a system below this folder, and one line here.

mod attached;
mod build_cluster;
mod compute;
mod memcached;
mod memcached_proxy;
mod message_queue;
mod processes;
mod synthetic;

use kendall_keys::Form;
use serde_json::json;

use crate::section::{Key, Keys, Problem, Section};
use crate::topology::{TierSpec, Topology, entry};

/// Refuses effective values of `[system]` and `[workload]` that do not go together.
pub type Check = fn(&serde_json::Value, &serde_json::Value) -> Result<(), Problem>;

#[derive(Debug, Clone, Copy)]
pub struct SystemKind {
    /// `system.kind` in the study file.
    pub name: &'static str,
    /// Protocol of its clients, where the workload does not say.
    pub protocol: &'static str,
    /// The other keys of `[system]`, and what they mean.
    pub keys: Keys,
    pub read: fn(&mut Section<'_>) -> Result<Topology, Problem>,
    /// Programs that must be installed, and the Debian package that has each.
    pub programs: &'static [(&'static str, &'static str)],
    /// The tier that is `kendall serve queue-database`: pgbench measures it by itself before the first run.
    pub database: Option<&'static str>,
    /// Refuses, by the effective values of `[system]` and `[workload]`, a load that the system cannot take.
    pub check: Option<Check>,
    /// Tiers that only some settings of it have: their place may be stated in all.
    pub sometimes: &'static [&'static str],
}

impl SystemKind {
    /// One that needs no programs, no database and no check.
    const fn new(
        name: &'static str,
        protocol: &'static str,
        keys: Keys,
        read: fn(&mut Section<'_>) -> Result<Topology, Problem>,
    ) -> Self {
        Self {
            name,
            protocol,
            keys,
            read,
            programs: &[],
            database: None,
            check: None,
            sometimes: &[],
        }
    }
}

pub const SYSTEMS: &[SystemKind] = &[
    memcached::KIND,
    memcached_proxy::KIND,
    message_queue::KIND,
    build_cluster::KIND,
    compute::KIND,
    synthetic::KIND,
    processes::KIND,
    attached::KIND,
];

const NAMES: [&str; SYSTEMS.len()] = {
    let mut names = [""; SYSTEMS.len()];
    let mut index = 0;
    while index < SYSTEMS.len() {
        names[index] = SYSTEMS[index].name;
        index += 1;
    }
    names
};

/// The tiers that the study file lists, each read by `tier`, which gets those before it.
fn listed(
    section: &mut Section<'_>,
    tier: impl Fn(&mut Section<'_>, &[TierSpec]) -> Result<TierSpec, Problem>,
) -> Result<Topology, Problem> {
    let (mut tiers, mut filled, mut effective) = (Vec::new(), Vec::new(), Vec::new());
    for mut table in section.sections("tiers")? {
        let spec = tier(&mut table, &tiers)?;
        if table.flag("fill")? {
            filled.push(spec.name.to_string());
        }
        tiers.push(spec);
        effective.push(table.finish()?);
    }
    section.effective("tiers", json!(effective));
    let entry = entry(section, &tiers)?;
    Ok(Topology { tiers, entry, filled })
}

/// The key of `[system]` that says which other keys it has.
pub const KIND: &[Key] = &[Key::new("kind", Form::Choice(&NAMES), "what is measured")];

pub(crate) fn read(
    mut section: Section<'_>,
) -> Result<(&'static SystemKind, Topology, serde_json::Value), Problem> {
    let choices: Vec<(&str, &'static SystemKind)> =
        SYSTEMS.iter().map(|kind| (kind.name, kind)).collect();
    let kind = section.choice("kind", &choices)?;
    for keys in kind.keys {
        section.declare(keys);
    }
    let topology = (kind.read)(&mut section)?;
    let path = section.path_of("");
    topology.start_order().map_err(|tier| Problem {
        key: path.trim_end_matches('.').to_owned(),
        what: format!("tier `{tier}` talks to itself, in a circle, or to a tier that is not there"),
    })?;
    Ok((kind, topology, section.finish()?))
}
