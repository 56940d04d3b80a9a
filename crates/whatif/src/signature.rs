//! Which factors the structure shows, and which change what a request costs.

use crate::rows::RunFacts;

/// Keys of the load and the network, which the structure has by itself, whatever the system.
const OF_THE_LOAD: &[&str] = &[
    "workload.clients",
    "workload.think_time",
    "workload.rate",
    "workload.arrivals",
    "workload.loop",
    "workload.threads",
    "workload.generators",
    "workload.spin",
    "system.batch",
];

/// Whether a key is of the load, the network or the measurement, which the structure shows.
#[must_use]
pub fn is_of_the_load(key: &str) -> bool {
    OF_THE_LOAD.contains(&key) || key.starts_with("links.") || key.starts_with("measure.")
}

/// The kind of work that a run did: levels of the factors that the structure does not show, such as
/// a size of values. Demands of one kind say nothing about another.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Signature(pub Vec<(String, String)>);

impl Signature {
    /// Of one run.
    #[must_use]
    pub fn of(facts: &RunFacts, structural: &[String]) -> Self {
        let levels = facts.run.factors.iter().filter(|level| !structural.contains(&level.factor));
        Self(levels.map(|level| (level.factor.clone(), level.text.clone())).collect())
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(key, text)| format!("{key}={text}")).collect();
        f.write_str(&parts.join(" "))
    }
}

/// Factors whose levels the structure shows: those of the load, and those with which the graph
/// changes while all others stay.
pub(crate) fn structural(runs: &[RunFacts]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for level in runs.iter().flat_map(|facts| &facts.run.factors) {
        if !keys.contains(&level.factor) {
            keys.push(level.factor.clone());
        }
    }
    keys.retain(|key| {
        let tuple = key.contains('+');
        let all = |is: fn(&str) -> bool| key.split('+').all(is);
        all(is_of_the_load)
            || changes_the_graph(runs, key)
                && (!tuple || all(|part| is_of_the_load(part) || is_of_the_graph(part)))
    });
    keys
}

/// Whether a part of a tuple shows in the graph for certain. With a tuple everything changes at once, so a
/// graph that changes does not say whether the cost of a request does too.
fn is_of_the_graph(key: &str) -> bool {
    const WORDS: &[&str] =
        &["workers", "connections", "instances", "proxies", "middlewares", "servers"];
    key.strip_prefix("system.").is_some_and(|word| WORDS.contains(&word))
}

fn changes_the_graph(runs: &[RunFacts], key: &str) -> bool {
    let rest = |facts: &RunFacts| -> Vec<(String, String)> {
        let others = facts.run.factors.iter().filter(|level| level.factor != key);
        others.map(|level| (level.factor.clone(), level.text.clone())).collect()
    };
    runs.iter()
        .any(|one| runs.iter().any(|other| one.graph != other.graph && rest(one) == rest(other)))
}
