//! `kind = "attached"`: a service that runs already. The study only loads and observes it.

use serde_json::json;

use crate::section::{Problem, Section};
use crate::system::SystemKind;
use crate::topology::{Accounting, Attached, Source, TierSpec, Topology};

pub(super) const KIND: SystemKind =
    SystemKind { name: "attached", protocol: "http", read, programs: &[] };

fn read(section: &mut Section<'_>) -> Result<Topology, Problem> {
    let (mut tiers, mut filled, mut effective) = (Vec::new(), Vec::new(), Vec::new());
    for mut tier in section.sections("tiers")? {
        tiers.push(self::tier(&mut tier)?);
        if tier.flag("fill", false)? {
            filled.extend(tiers.last().map(|tier: &TierSpec| tier.name.clone()));
        }
        effective.push(tier.finish()?);
    }
    section.effective("tiers", json!(effective));
    let first = tiers
        .first()
        .map(|tier| tier.name.clone())
        .ok_or_else(|| section.problem("tiers", "is missing; write `[[system.tiers]]`"))?;
    let entry = section.text("entry", Some(&first))?;
    if !tiers.iter().any(|tier| tier.name == entry) {
        return Err(section.problem("entry", format!("`{entry}` is none of the tiers")));
    }
    Ok(Topology { tiers, entry, filled })
}

fn tier(section: &mut Section<'_>) -> Result<TierSpec, Problem> {
    let name = section.text("name", None)?;
    let addresses = section.words("addresses", &[])?;
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
        kind: section.text("kind", Some("process"))?,
        backends: section.words("backends", &[])?,
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
    let words = section.words(key, &[])?;
    if !words.is_empty() && words.len() != instances {
        let what = format!("has {} entries for {instances} addresses; give one each", words.len());
        return Err(section.problem(key, what));
    }
    Ok(words)
}

fn accounting(section: &mut Section<'_>, instances: usize) -> Result<Vec<Accounting>, Problem> {
    let mut found = Vec::new();
    for pid in per_instance(section, "pids", instances)? {
        let number = pid.parse().map_err(|_| {
            section.problem("pids", format!("`{pid}` is not a process id; write [\"1234\"]"))
        })?;
        found.push(Accounting::Process(number));
    }
    let groups = per_instance(section, "cgroups", instances)?;
    found.extend(groups.into_iter().map(Accounting::ControlGroup));
    let pages = per_instance(section, "prometheus", instances)?;
    found.extend(pages.into_iter().map(Accounting::Prometheus));
    if found.len() > instances {
        return Err(section.problem("pids", "give only one of pids, cgroups and prometheus"));
    }
    Ok(found)
}
