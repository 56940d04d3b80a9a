//! Factors, and the load curves that configurations form.

use std::collections::BTreeMap;

use kendall_store::{FactorLevel, Run, TUPLE, keys_of};

use crate::Configuration;

#[derive(Debug, Clone)]
pub struct Factor {
    /// Dotted key in the study file.
    pub key: String,
    /// Levels in the order of the study file; numbers by size.
    pub levels: Vec<FactorLevel>,
}

/// The factor along the abscissa of the load curves.
#[derive(Debug, Clone)]
pub struct LoadFactor {
    /// Dotted key in the study file.
    pub key: String,
    /// For people, unit included.
    pub label: String,
    /// What follows its number in a sentence, such as `clients`.
    pub unit: String,
}

/// Configurations that differ in their load only, by rising load.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Levels of the other factors, for people.
    pub name: String,
    /// Indices into [`Observations::configurations`](crate::Observations::configurations).
    pub configurations: Vec<usize>,
}

/// `8 workers, placement hash`; `all` where there are no levels.
pub fn name_of_levels(levels: &[&FactorLevel]) -> String {
    let names: Vec<String> = levels
        .iter()
        .map(|level| match level.number {
            // `8 workers` and `1 worker`, but `batch 8`.
            Some(number) if short(&level.factor).ends_with('s') => {
                let name = short(&level.factor);
                let one = number.total_cmp(&1.0).is_eq();
                let name = if one { name.trim_end_matches('s') } else { &name };
                format!("{} {name}", level.text)
            }
            _ => format!("{} {}", short(&level.factor), level.text),
        })
        .collect();
    if names.is_empty() { "all".to_owned() } else { names.join(", ") }
}

/// The part of a dotted key that tells: `system.workers` is `workers`; of a tuple's key those of its
/// keys.
pub fn short(key: &str) -> String {
    let last = |key| str::rsplit(key, '.').next().unwrap_or(key);
    keys_of(key).map(last).collect::<Vec<_>>().join(TUPLE)
}

pub(crate) fn by_configuration(runs: &[Run]) -> Vec<Vec<&Run>> {
    let mut groups: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.is_usable() && run.measured.is_some()) {
        groups.entry(run.configuration).or_default().push(run);
    }
    groups.into_values().collect()
}

pub(crate) fn varied(runs: &[Run]) -> Vec<Factor> {
    let mut factors: Vec<Factor> = Vec::new();
    for level in runs.iter().flat_map(|run| &run.factors) {
        match factors.iter_mut().find(|factor| factor.key == level.factor) {
            Some(factor) if factor.levels.iter().all(|known| known.text != level.text) => {
                factor.levels.push(level.clone());
            }
            Some(_) => {}
            None => {
                factors.push(Factor { key: level.factor.clone(), levels: vec![level.clone()] });
            }
        }
    }
    for factor in &mut factors {
        let numeric = factor.levels.iter().all(|level| level.number.is_some());
        factor.levels.sort_by(|a, b| match (a.number, b.number) {
            (Some(a), Some(b)) if numeric => a.total_cmp(&b),
            _ => a.level.cmp(&b.level),
        });
    }
    factors.retain(|factor| factor.levels.len() > 1);
    factors
}

/// Keys that are a load, with their label and their unit.
const LOADS: [(&str, &str, &str); 4] = [
    ("workload.clients", "clients", "clients"),
    ("workload.rate", "arrival rate (1/s)", "requests/s"),
    ("workload.arrival_rate", "arrival rate (1/s)", "requests/s"),
    ("workload.connections", "connections", "connections"),
];

/// Of those whose runs failed, too: what was measured below them is the start of a curve.
pub(crate) fn load_factor(factors: &[Factor]) -> Option<LoadFactor> {
    // Two levels of several factors are an experiment, not a curve.
    let curve = |key: &str| {
        factors.iter().any(|f| f.key == key && (f.levels.len() > 2 || factors.len() == 1))
    };
    let (key, label, unit) = LOADS.iter().find(|(key, ..)| curve(key))?;
    let [key, label, unit] = [key, label, unit].map(|text| (*text).to_owned());
    Some(LoadFactor { key, label, unit })
}

pub(crate) fn curves(
    configurations: &[Configuration],
    factors: &[Factor],
    load: &str,
) -> Vec<Curve> {
    let mut curves: Vec<(Vec<&str>, Curve)> = Vec::new();
    for (index, configuration) in configurations.iter().enumerate() {
        let others = || factors.iter().filter(|factor| factor.key != load);
        let levels: Vec<&FactorLevel> =
            others().filter_map(|factor| configuration.level(&factor.key)).collect();
        let key: Vec<&str> = levels.iter().map(|level| level.text.as_str()).collect();
        if let Some((_, curve)) = curves.iter_mut().find(|(known, _)| *known == key) {
            curve.configurations.push(index);
            continue;
        }
        curves.push((key, Curve { name: name_of_levels(&levels), configurations: vec![index] }));
    }
    let mut curves: Vec<Curve> = curves.into_iter().map(|(_, curve)| curve).collect();
    for curve in &mut curves {
        let load_of = |&index: &usize| configurations[index].level(load).and_then(|l| l.number);
        curve
            .configurations
            .sort_by(|a, b| load_of(a).unwrap_or(0.0).total_cmp(&load_of(b).unwrap_or(0.0)));
    }
    let first_levels = |curve: &Curve| -> Vec<f64> {
        let levels = &configurations[curve.configurations[0]].levels;
        levels
            .iter()
            .filter(|level| level.factor != load)
            .map(|level| level.number.unwrap_or_else(|| f64::from(level.level)))
            .collect()
    };
    curves.sort_by(|a, b| {
        first_levels(a).partial_cmp(&first_levels(b)).unwrap_or(std::cmp::Ordering::Equal)
    });
    curves
}
