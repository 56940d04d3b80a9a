//! Runs of a study as a model is fitted to them.

use std::collections::{BTreeMap, BTreeSet};

use kendall_protocols::topology::{End, Graph, Part};
use kendall_protocols::waiting::Waiting;
use kendall_stats::histogram::Histogram;
use kendall_units::{Seconds, exact_f64, whole_u64};
use serde_json::Value;

use crate::twin::structure::Bytes;
use crate::twin::{Workload, most_stolen};

/// All usable runs of a study.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Runs, in the order of their execution.
    pub runs: Vec<RunFacts>,
    /// What one client alone did before the loads of runs; their `run.one_client_of` says of which.
    pub one_client: Vec<RunFacts>,
    /// Factors whose levels the structure shows, by their dotted key; the others change what a
    /// request costs.
    pub structural: Vec<String>,
    /// Foreign CPU of a run, in cores, beyond which it is left out; without a bound, it weighs less.
    pub most_foreign_cores: f64,
    /// Seed of the study.
    pub seed: u64,
}

/// A run by what the study says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyRun {
    /// Key in the results.
    pub id: i64,
    /// Index of the combination of levels in the design.
    pub configuration: u32,
    pub repetition: u32,
    /// Place in the order of execution, from 0.
    pub position: u32,
    /// Whether the design asks for it; a verification is not of the design.
    pub of_design: bool,
    /// Levels of the factors, in the order of the study file.
    pub levels: Vec<FactorLevel>,
    /// All effective values, defaults included, as the study file would say them.
    pub settings: Value,
    /// Key of the run before whose load one client alone was measured; `None` for all other runs.
    pub one_client_of: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FactorLevel {
    /// Name of the factor: a dotted key, or those of a tuple together.
    pub factor: String,
    /// The dotted keys that it sets.
    pub keys: Vec<String>,
    pub text: String,
    /// In base units; `None` for words.
    pub number: Option<f64>,
}

impl StudyRun {
    pub fn factor(&self, name: &str) -> Option<&FactorLevel> {
        self.levels.iter().find(|level| level.factor == name)
    }

    /// Its levels as `KEY=VALUE`.
    pub fn levels_in_words(&self) -> String {
        let words = self.levels.iter().map(|level| format!("{}={}", level.factor, level.text));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// One run: what the study says of it, and what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFacts {
    pub run: StudyRun,
    /// Tiers, edges, pools and links.
    pub graph: Graph,
    /// What brought requests.
    pub workload: Workload,
    /// Threads of all load generators.
    pub generator_threads: u32,
    /// X, 1/s.
    pub throughput_per_s: f64,
    /// Mean response time, in s.
    pub response_mean_s: f64,
    /// Median, 90th and 99th percentile of the response time, in s; `None` without requests.
    pub percentiles_s: Option<[f64; 3]>,
    /// Processor time and switches of every part.
    pub uses: BTreeMap<Part, PartUse>,
    /// What tiers reported, by name.
    pub tiers: BTreeMap<String, TierSeen>,
    /// Flushes of a database's log, and the time of all of them together, in s; `None` where none were timed.
    pub flushes: Option<(u64, f64)>,
    /// Kinds of operations that were asked for.
    pub operations: usize,
    /// Bytes of a request on the clients' edge.
    pub bytes: Option<Bytes>,
    /// Mean time of the speed probe, in s; `None` where there was none.
    pub probe_s: Option<f64>,
    /// Processors that none of the study's processes used, in cores.
    pub foreign_cores: f64,
    /// Processors that the hosts' own host took away, in cores.
    pub stolen_cores: f64,
    /// Beside that of an undisturbed run: see [`crate::bottleneck::weight`].
    pub weight: f64,
    /// An instance, of this tier, to which nothing was sent: the graph does not say how the run was.
    pub idle: Option<(String, u32)>,
    /// Hosts that tiers, links and generators ran on, with their cores; one where nothing says more.
    pub hosts: Vec<(String, u32)>,
    /// Hosts of each part, by its name.
    pub places: BTreeMap<String, BTreeSet<String>>,
    /// Who serves a tier and is none: what limits may be there.
    pub others: Option<String>,
    /// Length of the measured window, in s.
    pub measured_s: f64,
}

/// What all processes of one part used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PartUse {
    /// Processor time of a request, spinning left out, in s.
    pub cpu_s: f64,
    /// Voluntary context switches of a request.
    pub switches: f64,
    /// Time that its threads were ready and had no core, for a request, in s.
    pub run_queue_wait_s: f64,
    /// The same of the threads of a worker pool; `None` without such threads.
    pub worker_run_queue_wait_s: Option<f64>,
    /// Share of the processor time that threads of a worker pool used; `None` without such threads.
    pub worker_share: Option<f64>,
    /// Threads of the worker pool.
    pub worker_threads: u32,
    /// Other threads that do work.
    pub other_threads: u32,
    /// Cores of the hosts that it ran on.
    pub host_cores: u32,
    /// What its threads and connections waited for; `None` where it is unknown.
    pub waiting: Option<Waiting>,
}

/// What all instances of a tier reported.
#[derive(Debug, Clone, PartialEq)]
pub struct TierSeen {
    /// Mean service time, in s.
    pub service_s: f64,
    pub service_time: Histogram,
    /// Mean time until the last backend answered, in s; 0 without backends.
    pub backend_s: f64,
    /// Mean wait for a connection, in s.
    pub connection_wait_s: f64,
    /// Mean number of requests that a worker served together; 1 where one by one.
    pub batch: f64,
    /// Share of requests that its cache did not answer; `None` where it has none.
    pub miss_share: Option<f64>,
}

impl RunFacts {
    /// Why the run is left out, if it is: an instance that did nothing, or what others did, if it was more than may be.
    pub fn disturbed(&self, most_foreign_cores: f64) -> Option<String> {
        let stolen = self.stolen_cores;
        if let Some(idle) = self.idle() {
            return Some(idle);
        }
        if self.foreign_cores > most_foreign_cores {
            return Some(format!("other processes used {:.2} of a core", self.foreign_cores));
        }
        (stolen > most_stolen(most_foreign_cores))
            .then(|| format!("{stolen:.2} of a core was stolen from the machine"))
    }

    pub(super) fn idle(&self) -> Option<String> {
        let (tier, instance) = self.idle.as_ref()?;
        Some(format!("instance {instance} of {tier} did nothing while others of that tier worked"))
    }

    /// Share of the host's cores that all of it kept busy.
    pub fn busy(&self) -> f64 {
        let cpu: f64 = self.uses.values().map(|used| used.cpu_s).sum();
        let cores: u32 = self.hosts.iter().map(|(_, cores)| cores).sum();
        cpu * self.throughput_per_s / f64::from(cores.max(1))
    }

    /// The host, where all ran on one.
    pub fn only_host(&self) -> Option<&(String, u32)> {
        self.hosts.first().filter(|_| self.hosts.len() == 1)
    }

    /// The tier that the clients talk to.
    pub fn entry(&self) -> Option<&str> {
        let edge = self.graph.edges.iter().find(|edge| edge.from == End::Clients)?;
        Some(edge.to.as_str())
    }
}

/// A value of a study file as a number in base units, where it is one.
pub fn number(value: &Value) -> Option<f64> {
    if let Some(number) = value.as_f64() {
        return Some(number);
    }
    let text = value.as_str()?;
    let time = text.rsplit(':').next().unwrap_or(text);
    kendall_units::parse_seconds(time)
        .map(Seconds::get)
        .ok()
        .or_else(|| kendall_units::parse_rate(text).ok().map(kendall_units::Rate::get))
        .or_else(|| kendall_units::parse_bytes(text.trim_end_matches("/s")).ok().map(exact_f64))
        .or_else(|| kendall_units::parse_share(text).ok())
}

/// An effective value of a run or a configuration by its dotted key; entries of lists by their
/// `name`, links by theirs.
pub fn lookup<'a>(settings: &'a Value, key: &str) -> Option<&'a Value> {
    let parts: Vec<&str> = match key.strip_prefix("links.").and_then(|rest| rest.rsplit_once('.')) {
        Some((link, last)) => vec!["links", link, last],
        None => key.split('.').collect(),
    };
    parts.into_iter().try_fold(settings, |value, part| match value.as_array() {
        Some(items) => items
            .iter()
            .find(|item| item["name"].as_str() == Some(part))
            .or_else(|| items.get(part.parse::<usize>().ok()?)),
        None => value.get(part),
    })
}

/// What a key such as `tiers.proxies.workers` is in a graph: workers, threads or connections of each
/// instance, or instances.
pub fn graph_level(graph: &Graph, key: &str) -> Option<f64> {
    let (tier, what) = key.strip_prefix("tiers.")?.rsplit_once('.')?;
    let node = graph.tiers.iter().find(|node| node.tier == tier)?;
    if what == "instances" {
        return Some(f64::from(node.instances));
    }
    let pool = node.pools.iter().find(|pool| pool.of.as_str() == what)?;
    Some(f64::from(pool.servers))
}

/// A number of something as a `u32`, rounded.
pub fn small(value: f64) -> u32 {
    u32::try_from(whole_u64(value.max(0.0).round())).unwrap_or(u32::MAX)
}
