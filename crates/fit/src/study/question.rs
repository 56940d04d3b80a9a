//! What is asked of a study's model: a configuration, measured or not.

use kendall_protocols::topology::{Graph, Pool, PoolKind, TierId};

use super::signature::Signature;
use crate::change::{Change, Counted};
use crate::twin::Workload;

/// One configuration that is asked about.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Tiers, edges, pools and links.
    pub graph: Graph,
    /// What brings requests.
    pub workload: Workload,
    /// Threads of all load generators.
    pub generator_threads: u32,
    /// Most requests that a worker serves together, where the system has such a setting.
    pub batch: Option<u32>,
    /// The kind of work.
    pub signature: Signature,
    /// What was never there: hardware, placement, speeds, hit ratios. [`Question::change`] adds one.
    pub changes: Vec<Change>,
    /// Numeric levels, by their dotted key: by them the distance of the question from the runs is found.
    pub levels: Vec<(String, f64)>,
}

impl Question {
    /// Asks for one change more.
    ///
    /// # Errors
    /// In words, for a count of what is not there, and for a change of the load: that is a setting of the
    /// study.
    pub fn change(&mut self, change: Change) -> Result<(), String> {
        match &change {
            Change::Count { tier, of, count } => return resize(&mut self.graph, tier, *of, *count),
            Change::Rate(_) | Change::Load(_) | Change::Class { .. } => {
                return Err(
                    "state the load by a key of the study, such as workload.clients".to_owned()
                );
            }
            _ => self.changes.push(change),
        }
        Ok(())
    }

    /// The number that is asked for a key.
    pub(super) fn level(&self, key: &str) -> Option<f64> {
        self.levels.iter().find(|(known, _)| known == key).map(|(_, asked)| *asked)
    }

    /// Tiers whose hit ratio is asked for.
    pub fn cached(&self) -> Vec<String> {
        self.hit_ratios().map(|(tier, _)| tier.clone()).collect()
    }

    pub(super) fn hit_ratios(&self) -> impl Iterator<Item = (&String, f64)> {
        self.changes.iter().filter_map(|change| match change {
            Change::HitRatio { tier, share } => Some((tier, *share)),
            _ => None,
        })
    }
}

/// Sets the instances of a tier, or the servers of one of its pools; a pool that the study does not know of is
/// made.
fn resize(graph: &mut Graph, tier: &str, of: Counted, servers: u32) -> Result<(), String> {
    let behind: Vec<TierId> =
        graph.behind(&TierId::stored(tier)).map(|edge| edge.to.clone()).collect();
    let node = graph.tiers.iter_mut().find(|node| node.tier == tier);
    let node = node.ok_or_else(|| format!("no tier `{tier}`"))?;
    let connections = || match behind.as_slice() {
        [one] => Ok(PoolKind::Connections(one.clone())),
        _ => Err(format!("{tier} has no one tier behind it")),
    };
    let known = |of: &str| node.pools.iter().position(|pool| pool.of.as_str() == of);
    let (place, of) = match of {
        Counted::Instances => {
            node.instances = servers;
            return Ok(());
        }
        Counted::Servers => {
            return Err("name one of instances, workers, threads and connections".to_owned());
        }
        Counted::Workers => (known("workers"), Ok(PoolKind::Workers)),
        Counted::Threads => (known("threads"), Ok(PoolKind::Threads)),
        Counted::Connections => (known("connections"), connections()),
    };
    match place {
        Some(place) => node.pools[place].servers = servers,
        None => node.pools.push(Pool { of: of?, servers }),
    }
    Ok(())
}
