//! `kind = "attached"`: a service that runs already. The study only loads and observes it.

use kendall_host::sample::Accounting;
use kendall_keys::Form;
use kendall_units::counted;
use serde_json::json;
use toml::Value;

use crate::section::{Key, Problem, Section};
use crate::system::{SystemKind, listed};
use crate::topology::{Attached, Source, TierSpec, Topology, tier_name};

pub(super) const KIND: SystemKind = SystemKind::new("attached", "http", &[KEYS], read);

const KEYS: &[Key] = &[
    Key::text(
        "entry",
        "the tier that clients talk to; unless given, the one that no other names as its backend",
    )
    .optional(),
    Key::new("tiers", Form::Tables(&[TIER]), "one table per tier"),
];

pub(super) const TIER: &[Key] = &[
    Key::text("name", "name of the tier, used by links and in the report"),
    Key::text("kind", "what the report calls it").or("'process'"),
    Key::texts("backends", "tiers that it talks to"),
    Key::flag("fill", "whether the workload fills each instance before a run (memcached)")
        .or("false"),
    Key::new("addresses", Form::Texts, "list of `HOST:PORT`"),
    Key::texts("metrics", "one per address: where a Kendall tier answers `GET /snapshot`"),
    Key::new(
        "pids",
        Form::Special("a list of numbers, one per address"),
        "processes on this machine, with those below them",
    )
    .optional(),
    Key::texts("cgroups", "one per address: folder below `/sys/fs/cgroup` (version 2)"),
    Key::texts(
        "prometheus",
        "one per address: page with `process_cpu_seconds_total`, such as `127.0.0.1:9100/metrics`",
    ),
];

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    listed(section, tier)
}

fn tier(section: &mut Section<'_>, before: &[TierSpec]) -> Result<TierSpec, Problem> {
    let name = tier_name(section, before)?;
    let addresses = section.words("addresses")?;
    if addresses.is_empty() {
        return Err(section.problem("addresses", "is missing; write [\"HOST:PORT\"]"));
    }
    let accounting = accounting(section, addresses.len())?;
    let metrics = per_instance(section, "metrics", addresses.len())?;
    let instances = addresses
        .into_iter()
        .enumerate()
        .map(|(index, address)| Attached {
            address,
            accounting: accounting.get(index).cloned().unwrap_or(Accounting::None),
            metrics: metrics.get(index).cloned(),
        })
        .collect();
    Ok(TierSpec {
        kind: section.text("kind")?,
        backends: section.words("backends")?,
        joins: Vec::new(),
        pools: Vec::new(),
        source: Source::Attached(instances),
        name,
    })
}

/// A list that is empty or has one entry an instance.
fn per_instance(
    section: &mut Section<'_>,
    key: &str,
    instances: usize,
) -> Result<Vec<String>, Problem> {
    let words = section.words(key)?;
    if !words.is_empty() && words.len() != instances {
        let what = entries_for_addresses(words.len(), instances);
        return Err(section.problem(key, what));
    }
    Ok(words)
}

fn accounting(section: &mut Section<'_>, instances: usize) -> Result<Vec<Accounting>, Problem> {
    let mut found = Vec::new();
    found.extend(pids(section, instances)?.into_iter().map(Accounting::Process));
    let groups = per_instance(section, "cgroups", instances)?;
    found.extend(groups.into_iter().map(Accounting::ControlGroup));
    let pages = per_instance(section, "prometheus", instances)?;
    found.extend(pages.into_iter().map(Accounting::Prometheus));
    if found.len() > instances {
        return Err(section.problem("pids", "give only one of pids, cgroups and prometheus"));
    }
    Ok(found)
}

/// Process ids, as numbers or as texts.
fn pids(section: &mut Section<'_>, instances: usize) -> Result<Vec<u32>, Problem> {
    let Some(value) = section.raw("pids") else {
        section.effective("pids", json!([]));
        return Ok(Vec::new());
    };
    let form = "a list of process ids, one per address, such as [1234]";
    let items = match value {
        Value::Array(items) => items.clone(),
        one => vec![one.clone()],
    };
    let mut pids = Vec::new();
    for item in &items {
        let pid = match item {
            Value::Integer(pid) => u32::try_from(*pid).ok(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let pid = pid.filter(|pid| *pid > 0).ok_or_else(|| {
            let text = kendall_keys::text_of(item);
            section.problem("pids", format!("`{text}` is not a process id; write {form}"))
        })?;
        pids.push(pid);
    }
    if pids.len() != instances {
        let what = entries_for_addresses(pids.len(), instances);
        return Err(section.problem("pids", what));
    }
    section.effective("pids", json!(pids));
    Ok(pids)
}

fn entries_for_addresses(entries: usize, addresses: usize) -> String {
    let (entries, addresses) = (counted(entries, "entry"), counted(addresses, "address"));
    format!("has {entries} for {addresses}; give one each")
}
