//! Which factors the structure shows, and which change what a request costs.

use kendall_protocols::topology::Graph;
use serde_json::Value;

use super::runs::{FactorLevel, RunFacts, graph_level, lookup, number};

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
pub fn is_of_the_load(key: &str) -> bool {
    OF_THE_LOAD.contains(&key) || key.starts_with("links.") || key.starts_with("measure.")
}

/// The kind of work that a run did: levels of the factors that the structure does not show, such as
/// a size of values. Demands of one kind are no estimate for another.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Signature(pub Vec<(String, String)>);

impl Signature {
    /// Of one run.
    pub fn of(facts: &RunFacts, structural: &[String]) -> Self {
        let levels = facts.run.levels.iter().filter(|level| !structural.contains(&level.factor));
        Self(levels.map(|level| (level.factor.clone(), level.text.clone())).collect())
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(key, text)| format!("{key}={text}")).collect();
        f.write_str(&parts.join(" "))
    }
}

/// Factors whose levels the structure shows: those of the load, those whose value is a number of the graph, and those
/// with which the graph changes while all others stay.
pub fn structural(runs: &[RunFacts]) -> Vec<String> {
    let mut factors: Vec<&FactorLevel> = Vec::new();
    for level in runs.iter().flat_map(|facts| &facts.run.levels) {
        if !factors.iter().any(|known| known.factor == level.factor) {
            factors.push(level);
        }
    }
    let shown = |key: &String| {
        is_of_the_load(key)
            || runs.iter().all(|facts| shows(&facts.graph, &facts.run.settings, key))
    };
    let is_structural = |level: &&FactorLevel| {
        if level.keys.iter().all(|key| is_of_the_load(key)) {
            return true;
        }
        // With a tuple everything changes at once: a graph that changes does not say whether the cost of a
        // request does too.
        let is_tuple = level.keys.len() > 1;
        level.keys.iter().all(shown) || !is_tuple && changes_the_graph(runs, &level.factor)
    };
    factors.into_iter().filter(is_structural).map(|level| level.factor.clone()).collect()
}

/// Whether the value of a key is a number of the graph.
fn shows(graph: &Graph, settings: &Value, key: &str) -> bool {
    let asked = lookup(settings, key).and_then(number);
    let there = level_of(graph, key);
    asked.zip(there).is_some_and(|(asked, there)| asked.total_cmp(&there).is_eq())
}

/// What a key of a system is in a graph: of a tier by its name, of a tier that is called so its instances, or
/// of the tier that the clients talk to.
fn level_of(graph: &Graph, key: &str) -> Option<f64> {
    let what = key.strip_prefix("system.")?;
    if what.starts_with("tiers.") {
        return graph_level(graph, what);
    }
    let called = graph.tiers.iter().find(|node| node.tier == what);
    let of_entry = || graph_level(graph, &format!("tiers.{}.{what}", graph.entry()?));
    called.map(|node| f64::from(node.instances)).or_else(of_entry)
}

fn changes_the_graph(runs: &[RunFacts], key: &str) -> bool {
    let rest = |facts: &RunFacts| -> Vec<(String, String)> {
        let others = facts.run.levels.iter().filter(|level| level.factor != key);
        others.map(|level| (level.factor.clone(), level.text.clone())).collect()
    };
    runs.iter()
        .any(|one| runs.iter().any(|other| one.graph != other.graph && rest(one) == rest(other)))
}

#[cfg(test)]
mod tests {
    use kendall_protocols::topology::{Edge, End, Pool, PoolKind, TierId, TierNode};
    use serde_json::json;

    use super::*;

    fn graph() -> Graph {
        let node = |name, instances, pools| TierNode {
            tier: TierId::fixed(name),
            kind: String::new(),
            instances,
            pools,
        };
        let pool = |of, servers| Pool { of, servers };
        let database = TierId::fixed("database");
        Graph {
            tiers: vec![
                node(
                    "middlewares",
                    2,
                    vec![
                        pool(PoolKind::Workers, 8),
                        pool(PoolKind::Connections(database.clone()), 4),
                    ],
                ),
                node("database", 1, Vec::new()),
            ],
            edges: vec![
                Edge { from: End::Clients, link: None, to: TierId::fixed("middlewares") },
                Edge { from: End::Tier(TierId::fixed("middlewares")), link: None, to: database },
            ],
        }
    }

    /// Of a tuple only what the graph holds as a number shows for certain; a size of messages changes what a
    /// request costs, whatever else changes with it.
    #[test]
    fn a_key_shows_where_its_value_is_a_number_of_the_graph() {
        let settings = json!({ "system": {
            "workers": 8, "connections": 4, "middlewares": 2, "batch": 8, "message_size": "8",
            "tiers": [{ "name": "database", "instances": 1 }],
        } });
        let shown = |key: &str| shows(&graph(), &settings, key);
        for key in ["workers", "connections", "middlewares", "tiers.database.instances"] {
            assert!(shown(&format!("system.{key}")), "{key}");
        }
        for key in ["system.message_size", "system.batch", "system.absent", "workload.clients"] {
            assert!(!shown(key), "{key}");
        }
        let other = json!({ "system": { "workers": 16 } });
        assert!(!shows(&graph(), &other, "system.workers"));
    }
}
