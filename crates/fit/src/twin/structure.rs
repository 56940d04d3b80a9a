//! From the graph of a system and what its runs tell of each tier to the structure that is simulated.
//!
//! Nothing is asked of the user: tiers, edges, pools and links are the graph that the study stored.
//! One process of the structure is all instances of a tier (or link, or load generator) together.

use std::collections::BTreeMap;

use kendall_protocols::topology::{Edge, EdgeLink, End, Graph, Part, PoolKind, TierId, TierNode};
use kendall_units::Seconds;

use super::system::{Commit, Host, Pool, Process, Spread, Step, System, Work, Workload};

/// Share of a tier's work that is done before a worker takes a request, where nothing tells it:
/// reading and sorting (settled on the proxy study; R hardly depends on it).
pub const OUTSIDE: f64 = 0.4;
/// Deepest graph that is followed.
const DEEPEST: usize = 16;
/// How single pieces of work vary where nothing was measured.
pub const USUAL_SPREAD: Spread = Spread::Lognormal { scv: 0.25 };

/// What the runs tell of a tier beside its processor time.
#[derive(Debug, Clone, PartialEq)]
pub struct TierFacts {
    /// Share of its processor time that its workers use; the rest is done before and after them.
    pub inside: f64,
    /// Whether workers are threads of their own, which are handed requests and hand back answers.
    pub worker_threads: bool,
    /// Threads beside them that do work, of all instances measured.
    pub other_threads: u32,
    /// Mean time that a request takes in it without a processor and without a tier behind, in s.
    pub wait_s: f64,
    /// A station inside it that no counter shows.
    pub hidden: Option<Hidden>,
    /// How its service time varies.
    pub spread: Spread,
    /// Share of its requests that its cache does not answer, and how often it was so where it was
    /// calibrated; `None` for a tier without a cache.
    pub misses: Option<Misses>,
    /// It has a log that a commit waits for.
    pub commits: bool,
    /// Time of a flush of that log, in s; 0 where the calibration must find it.
    pub flush_s: f64,
    /// How many times as fast it is as where it was calibrated.
    pub speed: f64,
}

/// A lock, a pool, a connection: something that a tier has a few of, and a request holds for a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Hidden {
    pub servers: u32,
    /// Most requests that one serves together, of those that wait when it is free.
    pub batch: u32,
    /// Pools of the tier that it is: it has as many as the smallest of them.
    pub is: Vec<PoolKind>,
    /// Whether all instances share them; else each has as many.
    pub shared: bool,
    /// How long one is held without computing, in s, and what each of a batch makes that longer.
    pub time_s: f64,
    pub each_s: f64,
    /// Whether it is also held while the tier computes.
    pub with_work: bool,
}

impl Hidden {
    /// One of each instance, for so long, which is no declared pool and serves one at a time.
    pub fn single(time_s: f64, with_work: bool) -> Self {
        let (is, each_s) = (Vec::new(), 0.0);
        Self { servers: 1, batch: 1, is, shared: false, time_s, each_s, with_work }
    }

    /// Takes so many times as long without computing.
    pub(crate) fn take(&mut self, times: f64) {
        self.time_s *= times;
        self.each_s *= times;
    }

    /// Of all instances of its tier.
    fn tokens(&self, node: &TierNode) -> u32 {
        let instances = if self.shared { 1 } else { node.instances };
        smallest(node, &self.is).unwrap_or_else(|| self.servers.saturating_mul(instances))
    }

    fn name(&self, node: &TierNode) -> String {
        let tier = &node.tier;
        match self.is.as_slice() {
            [] => format!("inferred station of {tier}"),
            [PoolKind::Connections(to), ..] => format!("connections of {tier} to {to}"),
            [of, ..] => format!("{} of {tier}", of.as_str()),
        }
    }

    /// Whether it is held while what is behind this edge is asked.
    fn is_to(&self, edge: &Edge) -> bool {
        self.is.contains(&PoolKind::Connections(edge.to.clone()))
    }
}

/// Servers of the smallest of these pools that a tier declares, of all its instances together.
pub(crate) fn smallest(node: &TierNode, pools: &[PoolKind]) -> Option<u32> {
    let declared = node.pools.iter().filter(|pool| pools.contains(&pool.of));
    declared.map(|pool| pool.servers.saturating_mul(node.instances)).min()
}

/// How often a cache has to ask behind itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Misses {
    /// In the configuration.
    pub share: f64,
    /// In the runs that its demands are from.
    pub calibrated: f64,
}

impl Default for TierFacts {
    fn default() -> Self {
        Self {
            inside: 1.0 - OUTSIDE,
            worker_threads: false,
            other_threads: 1,
            wait_s: 0.0,
            hidden: None,
            spread: USUAL_SPREAD,
            misses: None,
            commits: false,
            flush_s: 0.0,
            speed: 1.0,
        }
    }
}

/// Bytes of a request and its answer on one edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bytes {
    /// Away from the clients.
    pub out: f64,
    pub back: f64,
}

/// A system at one configuration, before it is put into steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Blueprint {
    /// Tiers, edges, pools and links.
    pub graph: Graph,
    /// Hosts; the first has everything that is not placed.
    pub hosts: Vec<Host>,
    /// Index of the host of each part that is not on the first, by its name.
    pub placement: BTreeMap<String, usize>,
    /// What brings requests.
    pub workload: Workload,
    /// Threads of all load generators together.
    pub generator_threads: u32,
    /// Threads of each link.
    pub link_threads: u32,
    pub facts: BTreeMap<String, TierFacts>,
    /// Most requests that a worker serves together, by tier; none where it serves one by one.
    pub batches: BTreeMap<String, u32>,
    /// Batches that may be under way at once, by tier, where that is less than its workers.
    pub lanes: BTreeMap<String, u32>,
    /// Bytes of a request on the edges that a bandwidth limits, by the link's name.
    pub bytes: BTreeMap<String, Bytes>,
}

/// A graph that cannot be put into steps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StructureError {
    #[error("the results do not show which tier the clients talk to")]
    NoEntry,
    #[error("the tiers of the graph call one another in a circle, at `{tier}`")]
    Circle { tier: String },
    #[error(
        "the bandwidth of the link `{link}` is limited, and the runs do not say how many bytes a \
         request is there"
    )]
    UnknownBytes { link: String },
}

/// Parts of a graph that are processes of the structure, in their order: the load generators, then
/// each link and tier as the steps meet them.
pub fn parts(graph: &Graph) -> Vec<Part> {
    let mut parts = vec![Part::generator()];
    for edge in &graph.edges {
        if let Some(link) = &edge.link {
            parts.push(of_link(link));
        }
    }
    let reached = |node: &&TierNode| graph.edges.iter().any(|edge| edge.to == node.tier);
    parts.extend(graph.tiers.iter().filter(reached).map(|node| Part::tier(&node.tier)));
    parts
}

fn of_link(link: &EdgeLink) -> Part {
    Part { role: kendall_protocols::topology::Role::Link, name: link.name.clone() }
}

/// The structure of a configuration.
pub fn structure(blueprint: &Blueprint) -> Result<System, StructureError> {
    let mut making = Making {
        blueprint,
        parts: parts(&blueprint.graph),
        pools: Vec::new(),
        commits: Vec::new(),
        times: 1.0,
    };
    let entry = blueprint.graph.edges.iter().find(|edge| edge.from == End::Clients);
    let entry = entry.ok_or(StructureError::NoEntry)?;
    let mut steps = vec![making.work(&Part::generator(), 0.5)];
    making.ask(entry, &mut steps, 0)?;
    steps.push(making.work(&Part::generator(), 0.5));
    let processes = making.parts.iter().map(|part| making.process(part)).collect();
    Ok(System {
        hosts: blueprint.hosts.clone(),
        processes,
        pools: making.pools,
        commits: making.commits,
        steps,
        workload: blueprint.workload,
    })
}

struct Making<'a> {
    blueprint: &'a Blueprint,
    parts: Vec<Part>,
    pools: Vec<Pool>,
    commits: Vec<Commit>,
    /// How much of a process's work for a request one visit is, behind caches.
    times: f64,
}

impl Making<'_> {
    fn facts(&self, tier: &TierId) -> TierFacts {
        self.blueprint.facts.get(tier.as_str()).cloned().unwrap_or_default()
    }

    fn process(&self, part: &Part) -> Process {
        use kendall_protocols::topology::Role;
        let threads = match part.role {
            Role::Generator | Role::Study => self.blueprint.generator_threads,
            Role::Link => self.blueprint.link_threads,
            Role::Tier => self.tier_threads(part),
        };
        let spread = self.blueprint.facts.get(&part.name).map_or(USUAL_SPREAD, |f| f.spread);
        Process {
            name: part.name.clone(),
            host: self.blueprint.placement.get(&part.name).copied().unwrap_or(0),
            threads: threads.max(1),
            spread: if part.role == Role::Tier { spread } else { USUAL_SPREAD },
        }
    }

    fn tier_threads(&self, part: &Part) -> u32 {
        let node = self.blueprint.graph.tiers.iter().find(|node| part.is_tier(&node.tier));
        let Some(node) = node else { return 1 };
        let facts = self.facts(&node.tier);
        let of = |kind: &dyn Fn(&PoolKind) -> bool| -> Option<u32> {
            let pool = node.pools.iter().find(|pool| kind(&pool.of))?;
            Some(pool.servers.saturating_mul(node.instances))
        };
        if let Some(threads) = of(&|kind| *kind == PoolKind::Threads) {
            return threads;
        }
        let others = facts.other_threads.max(node.instances);
        match of(&|kind| *kind == PoolKind::Workers) {
            Some(workers) if facts.worker_threads => workers.saturating_add(others),
            _ => others,
        }
    }

    fn work(&self, part: &Part, share: f64) -> Step {
        let process = self.parts.iter().position(|known| known == part).unwrap_or(0);
        Step::Work(Work { process, share: share * self.times })
    }

    /// The way to a tier, what it does, and the way back.
    fn ask(
        &mut self,
        edge: &Edge,
        steps: &mut Vec<Step>,
        depth: usize,
    ) -> Result<(), StructureError> {
        if depth > DEEPEST {
            return Err(StructureError::Circle { tier: edge.to.to_string() });
        }
        let bytes = edge.link.as_ref().and_then(|link| self.blueprint.bytes.get(&link.name));
        let bytes = bytes.copied();
        self.cross(edge, bytes.map(|bytes| bytes.out), "out", steps)?;
        self.tier(&edge.to, steps, depth)?;
        self.cross(edge, bytes.map(|bytes| bytes.back), "back", steps)
    }

    /// One way over an emulated network: its relay works as it reads and as it writes.
    fn cross(
        &mut self,
        edge: &Edge,
        bytes: Option<f64>,
        way: &str,
        steps: &mut Vec<Step>,
    ) -> Result<(), StructureError> {
        let Some(link) = &edge.link else { return Ok(()) };
        let part = of_link(link);
        steps.push(self.work(&part, 0.25));
        let limits = [link.bandwidth_bytes_per_s, link.bandwidth_back_bytes_per_s];
        if let Some(limit) = limits[usize::from(way == "back")] {
            let bytes =
                bytes.ok_or_else(|| StructureError::UnknownBytes { link: link.name.clone() })?;
            let node = |tier: &TierId| self.blueprint.graph.tier(tier).map_or(1, |n| n.instances);
            let from = match &edge.from {
                End::Clients => 1,
                End::Tier(tier) => node(tier),
            };
            // Each way of each route is a wire of its own.
            let wire = Pool {
                name: format!("{} ({way})", link.name),
                tokens: from.saturating_mul(node(&edge.to)),
                batch: 1,
            };
            self.pools.push(wire);
            let inside = vec![Step::Delay(bytes / limit)];
            steps.push(Step::Hold { pool: self.pools.len() - 1, inside });
        }
        steps.push(Step::Delay(Seconds::from_nanos(link.delay_ns).get()));
        steps.push(self.work(&part, 0.25));
        Ok(())
    }

    fn tier(
        &mut self,
        tier: &TierId,
        steps: &mut Vec<Step>,
        depth: usize,
    ) -> Result<(), StructureError> {
        let Some(node) = self.blueprint.graph.tier(tier).cloned() else { return Ok(()) };
        let facts = self.facts(tier);
        let part = Part::tier(tier);
        let workers = node.pools.iter().find(|pool| pool.of == PoolKind::Workers);
        let inside_share = if workers.is_some() { facts.inside } else { 1.0 };
        let (before, after) = match workers {
            Some(_) if facts.worker_threads => (0.5, 0.5),
            _ => (1.0, 0.0),
        };
        // Work is per request of the runs that it was fitted to: where fewer (or more) miss, what a
        // miss does is done less (or more) often, and costs the same each time.
        let (each, share) = match facts.misses {
            Some(Misses { share, calibrated }) if calibrated > 0.0 => (1.0 / calibrated, share),
            _ => (1.0, 1.0),
        };
        let outside = (1.0 - inside_share) / facts.speed;
        let mut inner = Vec::new();
        let outer = self.times;
        self.times = outer * each;
        self.serve(&node, inside_share / facts.speed, &mut inner, depth)?;
        self.times = outer;
        if let Some(workers) = workers {
            let tokens = workers.servers.saturating_mul(node.instances);
            let batch = self.blueprint.batches.get(tier.as_str()).copied().unwrap_or(1);
            let lanes = self.blueprint.lanes.get(tier.as_str()).copied();
            let tokens = lanes.map_or(tokens, |lanes| tokens.min(lanes.max(1)));
            let name = if batch > 1 { "batches of" } else { "workers of" };
            self.pools.push(Pool { name: format!("{name} {tier}"), tokens, batch });
            inner = vec![Step::Hold { pool: self.pools.len() - 1, inside: inner }];
        }
        if outside > 0.0 {
            steps.push(self.work(&part, outside * before));
        }
        match facts.misses {
            Some(_) => steps.push(Step::Sometimes { share, inside: inner }),
            None => steps.extend(inner),
        }
        if outside * after > 0.0 {
            steps.push(self.work(&part, outside * after));
        }
        Ok(())
    }

    /// A station that no counter shows, held during these steps and its own time.
    fn hold(&mut self, node: &TierNode, hidden: &Hidden, mut inside: Vec<Step>) -> Step {
        let facts = self.facts(&node.tier);
        let [time_s, each_s] = [hidden.time_s, hidden.each_s].map(|time| time / facts.speed);
        inside.push(Step::Wait { time_s, each_s, spread: facts.spread });
        let (name, tokens) = (hidden.name(node), hidden.tokens(node));
        self.pools.push(Pool { name, tokens, batch: hidden.batch });
        Step::Hold { pool: self.pools.len() - 1, inside }
    }

    /// What a request is once a worker has it.
    fn serve(
        &mut self,
        node: &TierNode,
        share: f64,
        steps: &mut Vec<Step>,
        depth: usize,
    ) -> Result<(), StructureError> {
        let facts = self.facts(&node.tier);
        let part = Part::tier(&node.tier);
        let behind: Vec<Edge> = self.blueprint.graph.behind(&node.tier).cloned().collect();
        let before = if behind.is_empty() { 1.0 } else { 0.5 };
        let mut work: Vec<Step> =
            (share > 0.0).then(|| self.work(&part, share * before)).into_iter().collect();
        let hidden = facts.hidden.as_ref();
        match hidden.filter(|hidden| !behind.iter().any(|edge| hidden.is_to(edge))) {
            Some(hidden) => {
                let inside = if hidden.with_work { std::mem::take(&mut work) } else { Vec::new() };
                steps.extend(work);
                steps.push(self.hold(node, hidden, inside));
            }
            None => steps.extend(work),
        }
        if facts.wait_s > 0.0 {
            let time_s = facts.wait_s / facts.speed;
            steps.push(Step::Wait { time_s, each_s: 0.0, spread: facts.spread });
        }
        for edge in &behind {
            let mut asked = Vec::new();
            self.ask(edge, &mut asked, depth + 1)?;
            let connections = node.pools.iter().find(|pool| match &pool.of {
                PoolKind::Connections(to) => *to == edge.to,
                PoolKind::Workers | PoolKind::Threads => false,
            });
            match (hidden.filter(|hidden| hidden.is_to(edge)), connections) {
                (Some(hidden), _) => steps.push(self.hold(node, hidden, asked)),
                (None, Some(pool)) => {
                    self.pools.push(Pool {
                        name: format!("connections of {} to {}", node.tier, edge.to),
                        tokens: pool.servers.saturating_mul(node.instances),
                        batch: 1,
                    });
                    steps.push(Step::Hold { pool: self.pools.len() - 1, inside: asked });
                }
                (None, None) => steps.extend(asked),
            }
        }
        if facts.commits {
            let name = format!("commits of {}", node.tier);
            self.commits.push(Commit { name, time_s: facts.flush_s, speed: facts.speed });
            steps.push(Step::Commit(self.commits.len() - 1));
        }
        if !behind.is_empty() && share > 0.0 {
            steps.push(self.work(&part, share * (1.0 - before)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kendall_protocols::topology::Pool as GraphPool;

    use super::*;

    fn node(tier: &'static str, pools: Vec<GraphPool>) -> TierNode {
        TierNode { tier: TierId::fixed(tier), kind: String::new(), instances: 2, pools }
    }

    fn blueprint() -> Blueprint {
        let link = |name: &str| {
            Some(EdgeLink {
                name: name.to_owned(),
                delay_ns: 500_000,
                bandwidth_bytes_per_s: None,
                bandwidth_back_bytes_per_s: None,
            })
        };
        let workers = GraphPool { of: PoolKind::Workers, servers: 8 };
        let to = PoolKind::Connections(TierId::fixed("servers"));
        let connections = GraphPool { of: to, servers: 3 };
        let graph = Graph {
            tiers: vec![node("proxies", vec![workers, connections]), node("servers", vec![])],
            edges: vec![
                Edge { from: End::Clients, to: TierId::fixed("proxies"), link: link("front") },
                Edge {
                    from: End::Tier(TierId::fixed("proxies")),
                    to: TierId::fixed("servers"),
                    link: link("back"),
                },
            ],
        };
        Blueprint {
            graph,
            hosts: vec![Host { name: "host".to_owned(), cores: 2, speed: 1.0 }],
            placement: BTreeMap::new(),
            workload: Workload::Closed { clients: 10, think_time_s: 0.0 },
            generator_threads: 1,
            link_threads: 1,
            facts: BTreeMap::new(),
            batches: BTreeMap::new(),
            lanes: BTreeMap::new(),
            bytes: BTreeMap::new(),
        }
    }

    fn shares(steps: &[Step], into: &mut BTreeMap<usize, f64>, times: f64) {
        for step in steps {
            match step {
                Step::Work(work) => *into.entry(work.process).or_default() += times * work.share,
                Step::Hold { inside, .. } => shares(inside, into, times),
                Step::Sometimes { share, inside } => shares(inside, into, times * share),
                Step::Delay(_) | Step::Wait { .. } | Step::Commit(_) => {}
            }
        }
    }

    #[test]
    fn every_process_does_the_whole_of_its_work_and_links_delay_both_ways() {
        let system = structure(&blueprint()).unwrap();
        system.check().unwrap();
        let names: Vec<&str> = system.processes.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["generator", "front", "back", "proxies", "servers"]);
        let mut all = BTreeMap::new();
        shares(&system.steps, &mut all, 1.0);
        assert_eq!(all.len(), 5);
        assert!(all.values().all(|share| (share - 1.0).abs() < 1e-12), "{all:?}");
        assert!((system.delay_s() - 4.0 * 0.5e-3).abs() < 1e-12);
        // Pools are those of all instances together.
        let pools: Vec<(&str, u32)> =
            system.pools.iter().map(|pool| (pool.name.as_str(), pool.tokens)).collect();
        assert_eq!(pools, [("connections of proxies to servers", 6), ("workers of proxies", 16)]);
    }

    /// Half as many misses: what is behind the cache does half as much, the cache itself the same.
    #[test]
    fn what_a_hit_does_not_need_is_done_less_often() {
        let mut blueprint = blueprint();
        let misses = Some(Misses { share: 0.2, calibrated: 0.4 });
        let facts = TierFacts { misses, inside: 0.5, ..TierFacts::default() };
        blueprint.facts.insert("proxies".to_owned(), facts);
        let system = structure(&blueprint).unwrap();
        let mut all = BTreeMap::new();
        shares(&system.steps, &mut all, 1.0);
        let share = |name: &str| {
            all[&system.processes.iter().position(|process| process.name == name).unwrap()]
        };
        assert!((share("front") - 1.0).abs() < 1e-12);
        assert!((share("proxies") - 0.75).abs() < 1e-12, "{}", share("proxies"));
        assert!((share("servers") - 0.5).abs() < 1e-12 && (share("back") - 0.5).abs() < 1e-12);
    }

    /// Three, each held for 10 ms.
    fn inferred() -> Hidden {
        Hidden { servers: 3, ..Hidden::single(0.01, true) }
    }

    /// Connections that were found in the curve: as many as the graph has, held while what is behind them is asked.
    #[test]
    fn a_station_that_is_a_declared_pool_has_its_size() {
        let mut blueprint = blueprint();
        let is = vec![PoolKind::Connections(TierId::fixed("servers"))];
        let hidden = Some(Hidden { is, ..inferred() });
        let facts = TierFacts { hidden, ..TierFacts::default() };
        blueprint.facts.insert("proxies".to_owned(), facts);
        for (servers, tokens) in [(3, 6), (6, 12)] {
            blueprint.graph.tiers[0].pools[1].servers = servers;
            let system = structure(&blueprint).unwrap();
            system.check().unwrap();
            let pools: Vec<(&str, u32)> =
                system.pools.iter().map(|pool| (pool.name.as_str(), pool.tokens)).collect();
            let connections = ("connections of proxies to servers", tokens);
            assert_eq!(pools, [connections, ("workers of proxies", 16)]);
            assert!((system.delay_s() - 4.0 * 0.5e-3 - 0.01).abs() < 1e-12);
        }
    }

    #[test]
    fn an_inferred_station_is_a_pool_of_each_instance_or_of_all() {
        for (shared, tokens) in [(false, 6), (true, 3)] {
            let mut blueprint = blueprint();
            let hidden = Some(Hidden { shared, ..inferred() });
            let facts = TierFacts { hidden, ..TierFacts::default() };
            blueprint.facts.insert("servers".to_owned(), facts);
            let system = structure(&blueprint).unwrap();
            system.check().unwrap();
            let found = system.pools.iter().find(|pool| pool.name == "inferred station of servers");
            assert_eq!(found.map(|pool| pool.tokens), Some(tokens));
            // The work that it is held for is done once.
            let mut all = BTreeMap::new();
            shares(&system.steps, &mut all, 1.0);
            assert!(all.values().all(|share| (share - 1.0).abs() < 1e-12), "{all:?}");
            assert!((system.delay_s() - 4.0 * 0.5e-3 - 0.01).abs() < 1e-12);
        }
    }

    #[test]
    fn a_bandwidth_is_a_wire_each_way_and_needs_the_bytes_of_a_request() {
        let mut blueprint = blueprint();
        let link = blueprint.graph.edges[0].link.as_mut().unwrap();
        link.bandwidth_bytes_per_s = Some(1e6);
        link.bandwidth_back_bytes_per_s = Some(2e6);
        let refused = structure(&blueprint).unwrap_err();
        assert_eq!(refused, StructureError::UnknownBytes { link: "front".to_owned() });
        blueprint.bytes.insert("front".to_owned(), Bytes { out: 100.0, back: 2_000.0 });
        let system = structure(&blueprint).unwrap();
        assert!((system.delay_s() - (4.0 * 0.5e-3 + 100.0 / 1e6 + 2_000.0 / 2e6)).abs() < 1e-12);
        assert_eq!(system.pools.iter().filter(|pool| pool.name.starts_with("front")).count(), 2);
    }

    #[test]
    fn tiers_that_ask_in_a_circle_are_refused() {
        let mut blueprint = blueprint();
        blueprint.graph.edges.push(Edge {
            from: End::Tier(TierId::fixed("servers")),
            to: TierId::fixed("proxies"),
            link: None,
        });
        assert!(matches!(structure(&blueprint), Err(StructureError::Circle { .. })));
    }
}
