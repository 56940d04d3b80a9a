//! Systems that report of themselves, as Kendall's own tiers do: their structure is known, and what a request costs falls
//! with the number of clients, which no model says.

use std::collections::BTreeMap;

use kendall_fit::change::Change;
use kendall_fit::study::{PartUse, Question, RunFacts, Signature, StudyRun, TierSeen};
use kendall_fit::twin::demand::Demand;
use kendall_fit::twin::structure::{Blueprint, TierFacts, parts, structure};
use kendall_fit::twin::{Host, Length, Machine, Spread, System, Workload, simulate};
use kendall_protocols::topology::{
    Edge, EdgeLink, End, Graph, Part, Pool, PoolKind, Role, TierId, TierNode,
};
use kendall_stats::histogram::Histogram;
use serde_json::json;

use super::{Place, Scores, is_asked, level, model, of_designs, twice};
use crate::support::normal;

/// Of the entry's processor time, that of its workers; its other threads.
const INSIDE: f64 = 0.6;
const OTHERS: u32 = 4;
const OPERATIONS: usize = 4;
/// Power of the number of clients by which the work of a request falls.
const FALLS: f64 = 0.05;
const CORES: u32 = 2;

/// A system by its clients and the level of its other factor.
struct Reporting {
    name: &'static str,
    other: &'static str,
    think_time_s: f64,
    graph: fn(u32) -> Graph,
    /// Work of a request, by process.
    work_s: &'static [f64],
    flush_s: f64,
    /// What is run: see [`DESIGNS`].
    designs: [&'static [Place]; 3],
    asked: &'static [Place],
    /// What is asked of half the processors.
    halved: &'static [Place],
}

/// The lower loads at some levels, the ends of both ranges, and what a calibration chooses.
const DESIGNS: [&str; 3] = ["third", "corners", "design"];

const SYSTEMS: [Reporting; 3] = [
    Reporting {
        name: "proxy behind links",
        other: "system.workers",
        think_time_s: 0.0,
        graph: |workers| tiers(&["proxies", "servers"], workers, Some(500_000)),
        work_s: &[20e-6, 12e-6, 12e-6, 45e-6, 25e-6],
        flush_s: 0.0,
        designs: [
            &[(2, 4), (6, 4), (12, 4), (2, 16), (6, 16), (12, 16)],
            &[(2, 4), (96, 4), (2, 64), (96, 64)],
            &[(2, 4), (96, 4), (96, 64), (6, 4), (12, 64)],
        ],
        asked: &[
            (24, 4),
            (48, 4),
            (6, 16),
            (24, 16),
            (96, 16),
            (24, 64),
            (48, 64),
            (288, 16),
            (96, 256),
        ],
        halved: &[(12, 16), (48, 16)],
    },
    Reporting {
        name: "computing tier",
        other: "system.workers",
        think_time_s: 0.0,
        graph: |workers| tiers(&["compute"], workers, None),
        work_s: &[30e-6, 1.5e-3],
        flush_s: 0.0,
        designs: [
            &[(1, 1), (2, 1), (4, 1), (1, 2)],
            &[(1, 1), (32, 1), (1, 4), (32, 4)],
            &[(1, 1), (32, 1), (32, 4), (2, 1), (4, 4)],
        ],
        asked: &[(8, 1), (16, 1), (2, 2), (4, 2), (16, 2), (32, 2), (96, 1), (96, 2), (16, 8)],
        halved: &[(4, 2), (16, 2)],
    },
    Reporting {
        name: "queue over a database",
        other: "system.batch",
        think_time_s: 20e-3,
        graph: |_| tiers(&["middlewares", "database"], 4, None),
        work_s: &[30e-6, 80e-6, 250e-6],
        flush_s: 1e-3,
        designs: [
            &[(5, 1), (10, 1), (25, 1)],
            &[(5, 1), (200, 1), (5, 16), (200, 16)],
            &[(5, 1), (200, 1), (200, 16), (50, 1), (100, 16)],
        ],
        asked: &[(50, 1), (100, 1), (200, 1), (600, 1), (25, 1), (50, 16), (600, 16)],
        halved: &[(25, 1), (100, 1)],
    },
];

fn tiers(names: &[&'static str], workers: u32, delay_ns: Option<u64>) -> Graph {
    let kind = |tier: &str| match tier {
        "middlewares" => "message-queue",
        "database" => "postgresql",
        _ => "",
    };
    let of = TierId::fixed(names[0]);
    let behind = names.get(1).map(|name| TierId::fixed(name));
    let node = |tier: &TierId, pools| TierNode {
        tier: tier.clone(),
        kind: kind(tier.as_str()).to_owned(),
        instances: 1,
        pools,
    };
    let link = |name: &str| {
        let name = name.to_owned();
        delay_ns.map(|delay_ns| EdgeLink {
            name,
            delay_ns,
            bandwidth_bytes_per_s: None,
            bandwidth_back_bytes_per_s: None,
        })
    };
    let pool = |of| Pool { of, servers: workers };
    let mut pools = vec![pool(PoolKind::Workers)];
    let database = behind.as_ref().filter(|tier| kind(tier.as_str()) == "postgresql");
    pools.extend(database.map(|tier| pool(PoolKind::Connections(tier.clone()))));
    let mut graph = Graph {
        tiers: vec![node(&of, pools)],
        edges: vec![Edge { from: End::Clients, link: link("front"), to: of.clone() }],
    };
    if let Some(to) = behind {
        graph.tiers.push(node(&to, Vec::new()));
        graph.edges.push(Edge { from: End::Tier(of), link: link("back"), to });
    }
    graph
}

/// What a tier says of itself that waits for nothing.
fn reported(service_s: f64, batch: f64) -> TierSeen {
    let mut service_time = Histogram::new();
    for share in 1..=100_u32 {
        let at = f64::from(share) / 101.0;
        service_time.record(kendall_units::whole_u64(-1e9 * service_s * (1.0 - at).ln()));
    }
    TierSeen {
        service_s,
        service_time,
        backend_s: 0.0,
        connection_wait_s: 0.0,
        batch,
        miss_share: None,
    }
}

impl Reporting {
    fn workload(&self, clients: u32) -> Workload {
        Workload::Closed { clients, think_time_s: self.think_time_s }
    }

    fn batch(&self, other: u32) -> u32 {
        if self.other == "system.batch" { other } else { 1 }
    }

    fn system(&self, (clients, other): Place, cores: u32) -> System {
        let graph = (self.graph)(other);
        let entry = graph.tiers[0].tier.to_string();
        let facts = |node: &TierNode| {
            let is_entry = node.tier == *entry;
            let facts = TierFacts {
                inside: if is_entry { INSIDE } else { 1.0 },
                worker_threads: is_entry,
                other_threads: OTHERS,
                spread: Spread::Exponential,
                commits: node.kind == "postgresql",
                flush_s: self.flush_s,
                ..TierFacts::default()
            };
            (node.tier.to_string(), facts)
        };
        let batches: BTreeMap<String, u32> = std::iter::once((entry.clone(), self.batch(other)))
            .filter(|(_, most)| *most > 1)
            .collect();
        let lanes = batches.keys().map(|tier| (tier.clone(), u32::try_from(OPERATIONS).unwrap()));
        structure(&Blueprint {
            hosts: vec![Host { name: "host".to_owned(), cores, speed: 1.0 }],
            placement: BTreeMap::new(),
            workload: self.workload(clients),
            generator_threads: 1,
            link_threads: 1,
            facts: graph.tiers.iter().map(facts).collect(),
            lanes: lanes.collect(),
            batches,
            bytes: BTreeMap::new(),
            graph,
        })
        .unwrap()
    }

    /// On a machine whose speed drifts by 5 %, which the probe sees but for 1 %.
    fn run(
        &self,
        (clients, other): Place,
        cores: u32,
        (noise, seed): (&mut impl FnMut() -> f64, u64),
    ) -> RunFacts {
        let slowness = (0.05 * noise()).exp();
        let times = f64::from(clients).powf(-FALLS);
        let batch_s = if self.other == "system.batch" { 100e-6 } else { 0.0 };
        let demand = |work_s: &f64| Demand { work_s: times * work_s, batch_s, switch_s: 15e-6 };
        let demands: Vec<Demand> = self.work_s.iter().map(demand).collect();
        let system = self.system((clients, other), cores);
        let machine = Machine { slowness, wake_s: 20e-6, stay: 0.0 };
        let length = Length { warm_up_s: 0.5, measured_s: 2.0, most: usize::MAX };
        let seen = simulate(&system, &demands, machine, length, seed);
        let graph = (self.graph)(other);
        let entry = graph.tiers[0].tier.clone();
        let part_use = |place: usize, part: &Part| {
            let is_entry = part.is_tier(&entry);
            PartUse {
                cpu_s: seen.cpu_s[place],
                switches: seen.switches[place],
                worker_share: is_entry.then_some(INSIDE),
                worker_threads: if is_entry { graph.tiers[0].pools[0].servers } else { 0 },
                other_threads: if part.role == Role::Tier { OTHERS } else { 1 },
                host_cores: cores,
                ..PartUse::default()
            }
        };
        let all = parts(&graph);
        let uses: BTreeMap<Part, PartUse> = all
            .iter()
            .enumerate()
            .map(|(place, part)| (part.clone(), part_use(place, part)))
            .collect();
        let reported = reported(INSIDE * uses[&Part::tier(&entry)].cpu_s, seen.batch);
        let other_key = self.other.trim_start_matches("system.");
        RunFacts {
            run: StudyRun {
                id: i64::try_from(seed).unwrap(),
                configuration: 1_000 * other + clients,
                repetition: 0,
                position: 0,
                of_design: true,
                levels: [("workload.clients", clients), (self.other, other)].map(level).to_vec(),
                settings: json!({ "workload": { "clients": clients }, "system": { other_key: other } }),
                one_client_of: None,
            },
            workload: self.workload(clients),
            generator_threads: 1,
            throughput_per_s: seen.throughput_per_s,
            response_mean_s: seen.response_mean_s,
            percentiles_s: Some([0.5, 0.9, 0.99].map(|p| seen.response_quantile_s(p).unwrap())),
            uses,
            tiers: BTreeMap::from([(entry.to_string(), reported)]),
            flushes: (self.flush_s > 0.0).then_some((1_000, 1e3 * self.flush_s)),
            operations: OPERATIONS,
            bytes: None,
            probe_s: Some(50e-6 * slowness * (0.01 * noise()).exp()),
            foreign_cores: 0.0,
            stolen_cores: 0.0,
            weight: 1.0,
            idle: None,
            hosts: vec![("host".to_owned(), cores)],
            places: BTreeMap::new(),
            others: None,
            measured_s: 2.0,
            graph,
        }
    }

    fn question(&self, (clients, other): Place, cores: u32) -> Question {
        let levels = vec![
            ("workload.clients".to_owned(), f64::from(clients)),
            (self.other.to_owned(), f64::from(other)),
        ];
        let mut question = Question {
            graph: (self.graph)(other),
            workload: self.workload(clients),
            generator_threads: 1,
            batch: Some(self.batch(other)),
            signature: Signature::default(),
            changes: Vec::new(),
            levels,
        };
        if cores != CORES {
            question.change(Change::Cores { host: "host".to_owned(), count: cores }).unwrap();
        }
        question
    }

    fn scored(&self, seed: u64, design: usize) -> Scores {
        let mut scores = Scores::default();
        let mut noise = normal(3_000 * seed + 7);
        let places = self.designs[design];
        let runs = twice(places, seed, |at, seed| self.run(at, CORES, (&mut noise, seed)));
        let model = model(&runs, seed);
        let asked = self.asked.iter().map(|at| (*at, CORES));
        for (at, cores) in asked.chain(self.halved.iter().map(|at| (*at, CORES / 2))) {
            let tells = self.batch(at.1) == 1 || places.iter().any(|(_, other)| *other == at.1);
            if places.contains(&at) && cores == CORES || !tells {
                continue;
            }
            let question = self.question(at, cores);
            // More than eight times the heaviest load is refused.
            let Ok(answer) = model.answer(&question, None) else { continue };
            let run = self.run(at, cores, (&mut noise, 77_000 + 100 * seed + u64::from(at.0)));
            let same = runs.iter().filter(|run| run.run.levels[1].number == Some(f64::from(at.1)));
            let same: Vec<RunFacts> = same.cloned().collect();
            let name = format!("{} {} {at:?} on {cores}", self.name, DESIGNS[design]);
            scores.judge(&name, (&model, &question, &answer), (&same, &run));
        }
        scores
    }
}

/// As those of systems that report nothing: held as often as they say, and no worse than by hand.
#[test]
fn answers_about_systems_that_report_hold_and_no_wider_between_levels_than_they_err() {
    let mut short = Vec::new();
    Scores::head();
    for (place, system) in SYSTEMS.iter().enumerate().filter(|(_, one)| is_asked(one.name)) {
        let scored = |seed, design| system.scored(seed, design);
        let scores = of_designs(system.name, (&DESIGNS, 2 + 2 * place), scored);
        short.extend(scores.short(system.name));
        // Most questions to it lie between two numbers of workers. Those of the others are wider than they err.
        assert!(place > 0 || scores.width(0) <= 2.0, "{}: {}", system.name, scores.width(0));
    }
    assert!(short.is_empty(), "{short:#?}");
}
