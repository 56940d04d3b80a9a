//! The graph of runs that were stored before version 4, from their effective settings.
//!
//! The kinds of systems that there were then are listed here once; nothing else in the program knows
//! a system by its name. Where the settings do not say who the clients talk to, the graph has no
//! entry, and what needs one says so.

use kendall_protocols::topology::{Edge, EdgeLink, End, Graph, Pool, PoolKind, TierId, TierNode};
use rusqlite::Connection;
use serde_json::Value;

use crate::StoreError;
use crate::write;

/// A kind of system as it was before version 4: who is the entry, who talks to whom, and the keys
/// that set pools.
struct Known {
    kind: &'static str,
    entry: &'static str,
    edges: &'static [(&'static str, &'static str)],
    pools: &'static [(&'static str, &'static str, KnownPool)],
}

enum KnownPool {
    Workers,
    Threads,
    Connections(&'static str),
}

const KNOWN: &[Known] = &[
    Known {
        kind: "memcached",
        entry: "servers",
        edges: &[],
        pools: &[("servers", "server_threads", KnownPool::Threads)],
    },
    Known {
        kind: "memcached-proxy",
        entry: "proxies",
        edges: &[("proxies", "servers")],
        pools: &[
            ("proxies", "workers", KnownPool::Workers),
            ("servers", "server_threads", KnownPool::Threads),
        ],
    },
    Known {
        kind: "message-queue",
        entry: "middlewares",
        edges: &[("middlewares", "database")],
        pools: &[
            ("middlewares", "workers", KnownPool::Workers),
            ("middlewares", "connections", KnownPool::Connections("database")),
        ],
    },
    Known {
        kind: "compute",
        entry: "compute",
        edges: &[],
        pools: &[("compute", "workers", KnownPool::Workers)],
    },
    Known {
        kind: "synthetic",
        entry: "synthetic",
        edges: &[],
        pools: &[("synthetic", "workers", KnownPool::Workers)],
    },
];

/// Gives every run its graph.
pub(super) fn of_older_runs(connection: &Connection) -> Result<(), StoreError> {
    let mut statement = connection.prepare("SELECT id, settings FROM runs")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let runs: Vec<(i64, String)> = rows.collect::<Result<_, _>>()?;
    for (run, settings) in runs {
        // Settings that cannot be read say nothing of the graph.
        let settings = serde_json::from_str(&settings).unwrap_or_default();
        let tiers = tiers(connection, run)?;
        write::graph(connection, run, &graph(&settings, tiers))?;
    }
    Ok(())
}

fn tiers(connection: &Connection, run: i64) -> Result<Vec<TierNode>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT tier, min(kind), count(*) FROM tiers WHERE run = ?1 AND role = 'tier'
         GROUP BY tier ORDER BY tier",
    )?;
    let nodes = statement.query_map([run], |row| {
        Ok(TierNode {
            tier: TierId::stored(row.get::<_, String>(0)?),
            kind: row.get(1)?,
            instances: row.get(2)?,
            pools: Vec::new(),
        })
    })?;
    Ok(nodes.collect::<Result<_, _>>()?)
}

fn graph(settings: &Value, mut tiers: Vec<TierNode>) -> Graph {
    let system = &settings["system"];
    let known = system["kind"].as_str();
    let known = KNOWN.iter().find(|one| Some(one.kind) == known);
    let only = match tiers.as_slice() {
        [only] => Some(only.tier.as_str()),
        _ => None,
    };
    let stated = system["entry"].as_str();
    let entry = stated.or(known.map(|known| known.entry)).or(only).map(str::to_owned);
    let mut pairs: Vec<(End, TierId)> = Vec::new();
    pairs.extend(entry.map(|entry| (End::Clients, TierId::stored(entry))));
    let tier = |name: &str| End::Tier(TierId::stored(name));
    for (from, to) in known.into_iter().flat_map(|known| known.edges) {
        pairs.push((tier(from), TierId::stored(*to)));
    }
    for one in system["tiers"].as_array().into_iter().flatten() {
        let Some(from) = one["name"].as_str() else { continue };
        let backends = one["backends"].as_array().into_iter().flatten();
        for to in backends.filter_map(Value::as_str) {
            pairs.push((tier(from), TierId::stored(to)));
        }
    }
    for node in &mut tiers {
        node.pools = pools(known, system, &node.tier);
    }
    let edges = pairs.into_iter().map(|(from, to)| {
        let link = link(&settings["links"], &from, &to);
        Edge { from, to, link }
    });
    Graph { edges: edges.collect(), tiers }.ordered()
}

fn pools(known: Option<&Known>, system: &Value, tier: &TierId) -> Vec<Pool> {
    let of_tier = known.into_iter().flat_map(|known| known.pools);
    let set = of_tier.filter(|(of, _, _)| tier == of).filter_map(|(_, key, pool)| {
        let servers = u32::try_from(system[*key].as_u64()?).ok()?;
        let of = match pool {
            KnownPool::Workers => PoolKind::Workers,
            KnownPool::Threads => PoolKind::Threads,
            KnownPool::Connections(to) => PoolKind::Connections(TierId::stored(*to)),
        };
        Some(Pool { of, servers })
    });
    set.collect()
}

/// The link of an edge, by the two ends that its key names.
fn link(links: &Value, from: &End, to: &TierId) -> Option<EdgeLink> {
    let from = match from {
        End::Clients => "clients",
        End::Tier(tier) => tier.as_str(),
    };
    let (_, link) = links.as_object()?.iter().find(|(ends, _)| {
        ends.split_once("->").is_some_and(|(a, b)| a.trim() == from && *to == b.trim())
    })?;
    let delay = link["delay"].as_str().and_then(|text| kendall_units::parse_seconds(text).ok());
    Some(EdgeLink {
        name: format!("{from} -> {to}"),
        delay_ns: delay.map_or(0, kendall_units::Seconds::as_nanos),
        // Older files state it as a text that only the link itself reads.
        bandwidth_bytes_per_s: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(tier: &str) -> TierNode {
        TierNode { tier: TierId::stored(tier), kind: String::new(), instances: 2, pools: vec![] }
    }

    #[test]
    fn settings_of_an_older_run_say_who_is_the_entry() {
        let settings = json!({
            "system": {
                "kind": "processes",
                "entry": "zfront",
                "tiers": [
                    { "name": "abackend", "backends": [] },
                    { "name": "zfront", "backends": ["abackend"] },
                ],
            },
            "links": { "zfront -> abackend": { "delay": "5ms" } },
        });
        let graph = graph(&settings, vec![node("abackend"), node("zfront")]);
        assert_eq!(graph.tiers[0].tier, "zfront");
        assert_eq!(graph.entry().unwrap().as_str(), "zfront");
        let way = graph.way_to(&TierId::stored("abackend"));
        assert_eq!(way[1].link.as_ref().unwrap().delay_ns, 5_000_000);
    }

    #[test]
    fn a_system_of_its_own_kind_has_its_pools() {
        let settings = json!({ "system": {
            "kind": "message-queue", "workers": 8, "connections": 4,
        } });
        let graph = graph(&settings, vec![node("database"), node("middlewares")]);
        assert_eq!(graph.entry().unwrap().as_str(), "middlewares");
        let pools = &graph.tiers[0].pools;
        assert_eq!(pools[1].of, PoolKind::Connections(TierId::stored("database")));
        assert_eq!((pools[0].servers, pools[1].servers), (8, 4));
    }

    #[test]
    fn what_the_settings_do_not_say_is_not_guessed() {
        let graph = graph(&json!({}), vec![node("a"), node("b")]);
        assert_eq!(graph.entry(), None);
    }
}
