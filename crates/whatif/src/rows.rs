//! What each stored run tells the twin.

use std::collections::{BTreeMap, BTreeSet};

use kendall_predict::measured::{OperatingPoint, ProcessView, ThreadView, TierView};
use kendall_predict::twin::structure::Bytes;
use kendall_predict::twin::{Spread, Workload};
use kendall_protocols::snapshot::{WORKER_THREAD, counted, stage};
use kendall_protocols::topology::{End, Graph, Part, Role};
use kendall_stats::histogram::Histogram;
use kendall_store::{Measured, ProcessUse, Results, Run, StoreError};
use kendall_units::{Seconds, exact_f64, whole_u64};

use crate::signature;

/// All usable runs of a folder of results.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Runs, in the order of their execution.
    pub runs: Vec<RunFacts>,
    /// What one client alone did before the loads of runs; their `run.one_client_of` says of which.
    pub one_client: Vec<RunFacts>,
    /// Factors whose levels the structure shows, by their dotted key; the others change what a
    /// request costs.
    pub structural: Vec<String>,
    /// Foreign CPU of a run, in cores, beyond which it is left out.
    pub most_foreign_cores: f64,
    /// Seed of the study.
    pub seed: u64,
}

/// One run as the twin sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFacts {
    /// The run, with its factors and settings.
    pub run: Run,
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
    /// What tiers said of themselves, by name.
    pub tiers: BTreeMap<String, TierSeen>,
    /// Flushes of a database's log, and the time of all of them together, in s; `None` where none were timed.
    pub flushes: Option<(u64, f64)>,
    /// Operations that were asked for, and their share.
    pub mix: BTreeMap<String, f64>,
    /// Bytes of a request on the clients' edge.
    pub bytes: Option<Bytes>,
    /// Mean time of the speed probe, in s; `None` where there was none.
    pub probe_s: Option<f64>,
    /// Processors that none of the study's processes used, in cores.
    pub foreign_cores: f64,
    /// Processors that the hosts' own host took away, in cores.
    pub stolen_cores: f64,
    /// Hosts that tiers, links and generators ran on, with their cores; one where nothing says more.
    pub hosts: Vec<(String, u32)>,
    /// Hosts of each part, by its name.
    pub places: BTreeMap<String, BTreeSet<String>>,
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
    /// Share of the processor time that threads of a worker pool used; `None` without such threads.
    pub worker_share: Option<f64>,
    /// Threads of the worker pool.
    pub worker_threads: u32,
    /// Other threads that do work.
    pub other_threads: u32,
    /// Cores of the hosts that it ran on.
    pub host_cores: u32,
}

/// What all instances of a tier said of themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct TierSeen {
    /// Mean service time, in s.
    pub service_s: f64,
    /// Its distribution.
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

/// Share of a part's processor time from which threads of one name do work of the system.
const WORKING_SHARE: f64 = 0.1;

impl Calibration {
    /// Reads the usable runs of a folder: those of the design, and those that verified predictions.
    ///
    /// # Errors
    /// What the store refuses.
    pub fn read(results: &Results) -> Result<Self, StoreError> {
        let mut all = results.latest_runs()?;
        all.extend(results.verifications()?);
        let mut runs = told(results, &all)?;
        runs.sort_by_key(|facts| facts.run.started_unix_ns);
        let mut one_client = told(results, &results.one_client_runs()?)?;
        one_client.retain(|facts| runs.iter().any(|of| facts.run.one_client_of == Some(of.run.id)));
        let structural = signature::structural(&runs);
        let most_foreign_cores = kendall_predict::twin::MOST_FOREIGN_CORES;
        Ok(Self { runs, one_client, structural, most_foreign_cores, seed: results.study()?.seed })
    }

    /// Learns from the graphs of other results which factors the structure shows: a factor that these
    /// runs have at one level only may change nothing but the graph.
    pub fn learn_structure(&mut self, others: &Self) {
        let all: Vec<RunFacts> = self.runs.iter().chain(&others.runs).cloned().collect();
        self.structural = signature::structural(&all);
    }
}

/// What usable runs tell in which anything was answered.
fn told(results: &Results, runs: &[Run]) -> Result<Vec<RunFacts>, StoreError> {
    let mut facts = Vec::new();
    for run in runs.iter().filter(|run| run.is_usable()) {
        let measured = results.measured(run.id)?;
        if measured.throughput_per_s > 0.0 {
            facts.push(RunFacts::of(&measured));
        }
    }
    Ok(facts)
}

impl RunFacts {
    /// What a measured window tells.
    #[must_use]
    pub fn of(measured: &Measured) -> Self {
        let point = kendall_observations::operating_point(measured);
        let x = point.client.throughput_per_s;
        let closed = measured.generators.iter().all(|generator| generator.r#loop == "closed");
        let rate = measured.arrival_rate_per_s.unwrap_or(x);
        let workload = if closed {
            let clients = u32::try_from(measured.clients).unwrap_or(u32::MAX).max(1);
            Workload::Closed { clients, think_time_s: measured.think_time_mean_s }
        } else {
            Workload::Open { rate_per_s: rate }
        };
        let threads: usize = measured.generators.iter().map(|g| g.threads.len()).sum();
        let completed: u64 = measured.operations.values().map(|counts| counts.completed).sum();
        let all = exact_f64(completed.max(1));
        let mix = measured
            .operations
            .iter()
            .map(|(name, counts)| (name.clone(), exact_f64(counts.completed) / all))
            .collect();
        let out: u64 = measured.operations.values().map(|counts| counts.bytes_out).sum();
        let back: u64 = measured.operations.values().map(|counts| counts.bytes_in).sum();
        let time = |p: f64| measured.response_time.quantile(p).map(|ns| exact_f64(ns) / 1e9);
        Self {
            graph: measured.graph.clone(),
            workload,
            generator_threads: u32::try_from(threads).unwrap_or(u32::MAX).max(1),
            throughput_per_s: x,
            response_mean_s: Some(point.client.response_time_s)
                .filter(|r| r.is_finite())
                .unwrap_or(0.0),
            percentiles_s: time(0.5)
                .zip(time(0.9))
                .zip(time(0.99))
                .map(|((p50, p90), p99)| [p50, p90, p99]),
            uses: uses(&point),
            tiers: tiers(measured, &point),
            flushes: flushes(measured),
            mix,
            bytes: (completed > 0 && out + back > 0)
                .then(|| Bytes { out: exact_f64(out) / all, back: exact_f64(back) / all }),
            probe_s: measured.run.speed_unit_ns.map(|unit| unit / 1e9),
            foreign_cores: foreign_cores(measured),
            stolen_cores: stolen_cores(measured),
            hosts: hosts(measured),
            places: places(measured),
            measured_s: measured.window.length_s(),
            run: measured.run.clone(),
        }
    }

    /// What others did to the run, if it was more than may be: in words.
    #[must_use]
    pub fn disturbed(&self, most_foreign_cores: f64) -> Option<String> {
        let stolen = self.stolen_cores;
        if self.foreign_cores > most_foreign_cores {
            return Some(format!("other processes used {:.2} of a core", self.foreign_cores));
        }
        (stolen > kendall_predict::twin::most_stolen(most_foreign_cores))
            .then(|| format!("{stolen:.2} of a core was stolen from the machine"))
    }

    /// Share of the host's cores that all of it kept busy.
    #[must_use]
    pub fn busy(&self) -> f64 {
        let cpu: f64 = self.uses.values().map(|used| used.cpu_s).sum();
        let cores: u32 = self.hosts.iter().map(|(_, cores)| cores).sum();
        cpu * self.throughput_per_s / f64::from(cores.max(1))
    }

    /// The host, where all ran on one.
    #[must_use]
    pub fn only_host(&self) -> Option<&(String, u32)> {
        self.hosts.first().filter(|_| self.hosts.len() == 1)
    }

    /// The tier that the clients talk to.
    #[must_use]
    pub fn entry(&self) -> Option<&str> {
        let edge = self.graph.edges.iter().find(|edge| edge.from == End::Clients)?;
        Some(edge.to.as_str())
    }
}

/// Flushes of the log that the tiers were told of. Middlewares of one database all tell of the same ones: what
/// one flush takes is the same by their sums.
fn flushes(measured: &Measured) -> Option<(u64, f64)> {
    let counted = measured.tiers.iter().flat_map(|tier| &tier.period.counted);
    let flushes: Vec<_> =
        counted.filter(|one| one.kind == counted::LOG && one.name == "flush").collect();
    let count: u64 = flushes.iter().map(|one| one.count).sum();
    let time = flushes.iter().map(|one| Seconds::from_nanos(one.time_ns).get()).sum();
    (count > 0).then_some((count, time))
}

/// Processor time that was stolen from the hosts, in cores.
fn stolen_cores(measured: &Measured) -> f64 {
    let hosts = measured.hosts_in_use().into_iter().filter(|host| host.length_s > 0.0);
    hosts.map(|host| host.cpu_steal_s / host.length_s).sum()
}

/// Hosts of each part.
fn places(measured: &Measured) -> BTreeMap<String, BTreeSet<String>> {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for tier in &measured.topology {
        places.entry(tier.tier.clone()).or_default().insert(tier.host.clone());
    }
    for generator in &measured.generators {
        places.entry(Part::generator().name).or_default().insert(generator.host.clone());
    }
    places
}

/// Hosts that something ran on, with their cores.
fn hosts(measured: &Measured) -> Vec<(String, u32)> {
    let used = measured.hosts_in_use().into_iter();
    let used: Vec<_> = used.map(|host| (host.host.clone(), host.cores)).collect();
    if used.is_empty() { vec![("localhost".to_owned(), 1)] } else { used }
}

/// Processor time that nobody of the study used on the hosts of the system, in cores.
fn foreign_cores(measured: &Measured) -> f64 {
    let used = measured.hosts_in_use();
    let busy: f64 = used
        .iter()
        .filter(|host| host.length_s > 0.0)
        .map(|host| (host.cpu_user_s + host.cpu_system_s) / host.length_s)
        .sum();
    let there = |host: &str| used.iter().any(|known| known.host == host);
    let own = measured.processes.iter().filter(|process| there(&process.host));
    let known: f64 = own.map(ProcessUse::cores_busy).sum();
    (busy - known).max(0.0)
}

fn uses(point: &OperatingPoint) -> BTreeMap<Part, PartUse> {
    let x = point.client.throughput_per_s;
    let per_request = |process: &ProcessView| {
        let all: f64 = process.threads.iter().map(|group| group.cpu_cores).sum();
        let worker = process.threads.iter().find(|group| group.name == WORKER_THREAD);
        let works = |group: &&ThreadView| {
            group.name != WORKER_THREAD && group.cpu_cores >= WORKING_SHARE * all
        };
        let others: f64 = process.threads.iter().filter(works).map(|group| group.threads).sum();
        let used = PartUse {
            cpu_s: (process.cpu_cores - process.spun_cores).max(0.0) / x,
            switches: process.switches_per_s / x,
            run_queue_wait_s: process.run_queue_wait.unwrap_or(0.0) / x,
            worker_share: worker.filter(|_| all > 0.0).map(|group| group.cpu_cores / all),
            worker_threads: small(worker.map_or(0.0, |group| group.threads)),
            other_threads: small(others).max(1),
            host_cores: small(process.host_cores),
        };
        (process.part.clone(), used)
    };
    let of_the_load = |process: &&ProcessView| process.part.role != Role::Study;
    point.processes.iter().filter(of_the_load).map(per_request).collect()
}

fn tiers(measured: &Measured, point: &OperatingPoint) -> BTreeMap<String, TierSeen> {
    let seen = |tier: &TierView| {
        let mut service_time = Histogram::new();
        let of =
            measured.tiers.iter().filter(|one| one.role == Role::Tier && one.tier == tier.name);
        of.for_each(|one| service_time.add(&one.period.stage(stage::SERVICE_TIME)));
        let batches = tier.batches.map_or(0.0, |batches| batches.per_s);
        let seen = TierSeen {
            service_s: tier.service_time_s,
            service_time,
            backend_s: tier.backend_time_s.unwrap_or(0.0),
            connection_wait_s: tier.connection_wait_s,
            batch: if batches > 0.0 {
                (tier.view.throughput_per_s / batches).max(1.0)
            } else {
                1.0
            },
            miss_share: tier.miss_share(),
        };
        (tier.name.clone(), seen)
    };
    point.tiers.iter().map(seen).collect()
}

/// Fewest values that tell a distribution.
const LEAST_VALUES: u64 = 30;

/// The shape of a histogram; `None` where there are too few values.
pub(crate) fn spread(histogram: &Histogram) -> Option<Spread> {
    if histogram.count() < LEAST_VALUES {
        return None;
    }
    let mut values = [0.0; 15];
    for (value, level) in values.iter_mut().zip(Spread::LEVELS) {
        *value = exact_f64(histogram.quantile(level)?);
    }
    Spread::measured(values)
}

/// A value of a study file as a number in base units, where it is one.
#[must_use]
pub fn number(value: &serde_json::Value) -> Option<f64> {
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
#[must_use]
pub fn lookup<'a>(settings: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
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
#[must_use]
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
pub(crate) fn small(value: f64) -> u32 {
    u32::try_from(whole_u64(value.max(0.0).round())).unwrap_or(u32::MAX)
}
