//! What a system is made of, as it is stored and read again: tiers in their order from the clients,
//! who talks to whom, and the pools of servers in each.
//!
//! A tier is known by its [`TierId`]; what else has a place in a study (the links between tiers, the
//! load generators, the study itself) by its [`Role`]. Nothing is decided by how a name is spelled.

use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// Longest name of a tier.
const LONGEST: usize = 40;

/// Names that stand for something else: the ends of links, the other roles, and the placeholders of
/// commands.
const RESERVED: &[&str] = &[
    "address",
    "clients",
    "folder",
    "generator",
    "host",
    "instance",
    "kendall",
    "link",
    "metrics",
    "port",
    "prefill",
    "secret",
    "seed",
    "study",
];

/// The name of a tier, which is also its identity within one study.
///
/// # Example
/// ```
/// use kendall_protocols::topology::TierId;
/// assert_eq!(TierId::new("proxies").unwrap().as_str(), "proxies");
/// assert!(TierId::new("clients").is_err() && TierId::new("a/b").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TierId(String);

/// A text that cannot be the name of a tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum TierNameError {
    #[error(
        "`{name}` is not a name for a tier; write a letter (of ASCII) and then letters, digits, `-` or `_`, \
         {LONGEST} at most"
    )]
    Form { name: String },
    #[error("`{name}` is taken by Kendall itself; choose another name for the tier")]
    Reserved { name: String },
}

impl TierId {
    /// Checks a name.
    ///
    /// # Errors
    /// [`TierNameError`].
    pub fn new(name: impl Into<String>) -> Result<Self, TierNameError> {
        let name = name.into();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let begins = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
        if !begins || name.len() > LONGEST || !name.chars().all(plain) {
            return Err(TierNameError::Form { name });
        }
        if RESERVED.contains(&name.as_str()) {
            return Err(TierNameError::Reserved { name });
        }
        Ok(Self(name))
    }

    /// A name that the program itself gives.
    ///
    /// # Panics
    /// When it breaks the rules, which is a defect.
    #[must_use]
    pub fn fixed(name: &'static str) -> Self {
        Self::new(name).expect("names that the program gives keep the rules")
    }

    /// A name as an older store has it: before version 4 of the schema names were not checked.
    #[must_use]
    pub fn stored(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for TierId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<TierId> for String {
    fn from(tier: TierId) -> Self {
        tier.0
    }
}

impl PartialEq<str> for TierId {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for TierId {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl<'de> Deserialize<'de> for TierId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

/// What a process is there for.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Serves requests.
    #[default]
    Tier,
    /// Emulates a network between two tiers.
    Link,
    /// Loads the system.
    Generator,
    /// The study itself, which starts and watches the others.
    Study,
}

impl Role {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Tier, Self::Link, Self::Generator, Self::Study];

    /// As it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Link => "link",
            Self::Generator => "generator",
            Self::Study => "study",
        }
    }

    /// Whether it belongs to what is measured, and not to what measures.
    #[must_use]
    pub const fn is_of_the_system(self) -> bool {
        matches!(self, Self::Tier | Self::Link)
    }
}

/// Who a process is: its role, and its name within the role.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Part {
    /// What it is there for.
    pub role: Role,
    /// The tier's name; of a link who it lies between; else the role's.
    pub name: String,
}

impl Part {
    /// A tier.
    #[must_use]
    pub fn tier(tier: &TierId) -> Self {
        Self { role: Role::Tier, name: tier.as_str().to_owned() }
    }

    /// The load generators.
    #[must_use]
    pub fn generator() -> Self {
        Self { role: Role::Generator, name: Role::Generator.as_str().to_owned() }
    }

    /// The study itself.
    #[must_use]
    pub fn study() -> Self {
        Self { role: Role::Study, name: Role::Study.as_str().to_owned() }
    }

    /// Whether it is this tier.
    #[must_use]
    pub fn is_tier(&self, tier: &TierId) -> bool {
        self.role == Role::Tier && *tier == self.name.as_str()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The tiers of a system and who talks to whom.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// By their distance from the clients, the entry first.
    pub tiers: Vec<TierNode>,
    /// The one from the clients to the entry first.
    pub edges: Vec<Edge>,
}

/// A tier of a [`Graph`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TierNode {
    /// Its name.
    pub tier: TierId,
    /// What it is, such as `memcached-proxy`.
    pub kind: String,
    /// How many instances share its load.
    pub instances: u32,
    /// Pools of each instance, as the study set them; empty where it does not know them.
    pub pools: Vec<Pool>,
}

/// One end of an edge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The load generators.
    Clients,
    /// A tier.
    Tier(TierId),
}

/// Who talks to whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Who asks.
    pub from: End,
    /// Who answers.
    pub to: TierId,
    /// The emulated network between them, if there is one.
    pub link: Option<EdgeLink>,
}

/// An emulated network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeLink {
    /// What its process is called in the store.
    pub name: String,
    /// Mean delay one way.
    pub delay_ns: u64,
    /// Limit of bytes a second of what is asked; `None` without one.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// The same of what is answered.
    pub bandwidth_back_bytes_per_s: Option<f64>,
}

/// Servers of one kind in each instance of a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// What they are.
    pub of: PoolKind,
    /// How many each instance has.
    pub servers: u32,
}

/// What a pool holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolKind {
    /// Workers that serve requests.
    Workers,
    /// Connections to a tier behind, which the workers share.
    Connections(TierId),
    /// Threads of a process that has no pool of workers.
    Threads,
}

impl PoolKind {
    /// As it is stored; which tier a connection leads to is a column of its own.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Connections(_) => "connections",
            Self::Threads => "threads",
        }
    }
}

impl Graph {
    /// The tier that the clients talk to.
    #[must_use]
    pub fn entry(&self) -> Option<&TierId> {
        self.edges.iter().find(|edge| edge.from == End::Clients).map(|edge| &edge.to)
    }

    /// A tier by its name.
    #[must_use]
    pub fn tier(&self, tier: &TierId) -> Option<&TierNode> {
        self.tiers.iter().find(|node| node.tier == *tier)
    }

    /// Edges that lead from a tier to those behind it.
    pub fn behind<'a>(&'a self, tier: &'a TierId) -> impl Iterator<Item = &'a Edge> + 'a {
        self.edges.iter().filter(move |edge| matches!(&edge.from, End::Tier(from) if from == tier))
    }

    /// The edges on the shortest way from the clients to a tier, theirs first; empty where no way
    /// leads there.
    #[must_use]
    pub fn way_to(&self, tier: &TierId) -> Vec<&Edge> {
        let mut way: Vec<&Edge> = Vec::new();
        let mut at = tier;
        // Tiers are in the order of their distance, so an earlier edge is a shorter way.
        while let Some(edge) = self.edges.iter().find(|edge| edge.to == *at) {
            if way.contains(&edge) {
                return Vec::new();
            }
            way.push(edge);
            match &edge.from {
                End::Clients => {
                    way.reverse();
                    return way;
                }
                End::Tier(from) => at = from,
            }
        }
        Vec::new()
    }

    /// Puts tiers and edges into the order of their distance from the clients; what cannot be
    /// reached comes last, as it was.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        let mut order: Vec<TierId> = self.entry().cloned().into_iter().collect();
        let mut looked = 0;
        while let Some(tier) = order.get(looked).cloned() {
            looked += 1;
            for edge in self.behind(&tier) {
                if !order.contains(&edge.to) {
                    order.push(edge.to.clone());
                }
            }
        }
        let place = |tier: &TierId| order.iter().position(|one| one == tier).unwrap_or(usize::MAX);
        self.tiers.sort_by_key(|node| place(&node.tier));
        self.edges.sort_by_key(|edge| match &edge.from {
            End::Clients => (0, 0),
            End::Tier(from) => (1, place(from)),
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: Option<&'static str>, to: &'static str) -> Edge {
        let from = from.map_or(End::Clients, |from| End::Tier(TierId::fixed(from)));
        Edge { from, to: TierId::fixed(to), link: None }
    }

    fn node(tier: &'static str) -> TierNode {
        TierNode { tier: TierId::fixed(tier), kind: String::new(), instances: 1, pools: vec![] }
    }

    #[test]
    fn the_order_is_that_of_the_distance_and_not_of_the_alphabet() {
        let graph = Graph {
            tiers: ["abackend", "middle", "zfront", "unused"].map(node).into(),
            edges: vec![
                edge(Some("middle"), "abackend"),
                edge(Some("zfront"), "middle"),
                edge(None, "zfront"),
                edge(Some("zfront"), "abackend"),
            ],
        };
        let graph = graph.ordered();
        let names: Vec<&str> = graph.tiers.iter().map(|node| node.tier.as_str()).collect();
        assert_eq!(names, ["zfront", "middle", "abackend", "unused"]);
        assert_eq!(graph.entry().unwrap().as_str(), "zfront");
        let way = graph.way_to(&TierId::fixed("abackend"));
        assert_eq!(way, [&edge(None, "zfront"), &edge(Some("zfront"), "abackend")]);
        assert!(graph.way_to(&TierId::fixed("unused")).is_empty());
    }

    #[test]
    fn names_that_mean_something_else_are_refused() {
        for name in ["clients", "generator", "study", "a/b", "", "7up", "a b", "a->b", "{port}"] {
            assert!(TierId::new(name).is_err(), "{name}");
        }
        for name in ["workers", "caches", "generators", "study-1", "zfront_2"] {
            assert!(TierId::new(name).is_ok(), "{name}");
        }
    }
}
