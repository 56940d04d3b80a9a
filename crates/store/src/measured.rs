//! The measured window of one run, put together for those who analyze it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use kendall_protocols::topology::{Graph, Part, Role};
use kendall_protocols::waiting::Waiting;
use kendall_stats::histogram::Histogram;
use kendall_units::{Seconds, exact_f64};

use crate::rows::{
    Extent, Generator, HostSample, MeasuredWindow, OperationCounts, Process, ProcessSample, Run,
    RunId, ThreadSample, Tier, TierPeriod,
};
use crate::{Results, StoreError};

/// What one run measured between warm-up and cool-down.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The run, with its factors and settings.
    pub run: Run,
    /// The part of the run that counts.
    pub window: MeasuredWindow,
    /// Population N over all generators (closed loop), or connections (open loop).
    pub clients: u64,
    /// Mean think time Z that was asked for.
    pub think_time_mean_s: f64,
    /// Open loop: the rate that was asked for, over all generators.
    pub arrival_rate_per_s: Option<f64>,
    /// Requests completed per second, as the clients saw it.
    pub throughput_per_s: f64,
    /// Due to done, over all generators and operations, in nanoseconds.
    pub response_time: Histogram,
    /// The same by operation, over all generators.
    pub operations: BTreeMap<String, OperationCounts>,
    /// Parts of requests by name, over all generators: the requests of sequences.
    pub steps: BTreeMap<String, OperationCounts>,
    /// Each generator; its `operations` hold the measured window only.
    pub generators: Vec<Generator>,
    /// The system's tiers by their distance from the clients, and who talks to whom.
    pub graph: Graph,
    /// Each tier and link that reports on itself, tiers by their distance from the clients, over the snapshots nearest the window.
    pub tiers: Vec<MeasuredTier>,
    /// All tiers, without their periods: those that say nothing of themselves too.
    pub topology: Vec<Tier>,
    pub processes: Vec<ProcessUse>,
    pub hosts: Vec<HostUse>,
}

impl Measured {
    /// Hosts that a tier, a link or a generator ran on; all, where none of these is known.
    ///
    /// The machine that a study was started on is observed in any case. Where no part of the system ran there, what
    /// others do on it says nothing of the run.
    pub fn hosts_in_use(&self) -> Vec<&HostUse> {
        let of_processes = self.processes.iter().filter(|process| process.part.role != Role::Study);
        let names: BTreeSet<&str> = of_processes
            .map(|process| process.host.as_str())
            .chain(self.topology.iter().map(|tier| tier.host.as_str()))
            .chain(self.generators.iter().map(|generator| generator.host.as_str()))
            .collect();
        let used: Vec<&HostUse> =
            self.hosts.iter().filter(|host| names.contains(host.host.as_str())).collect();
        if used.is_empty() { self.hosts.iter().collect() } else { used }
    }
}

/// A tier instance in the measured window.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredTier {
    /// Name of the tier in the topology.
    pub tier: String,
    /// A tier or a link.
    pub role: Role,
    pub instance: u32,
    /// What it did; its `from_ns` and `to_ns` are the moments of the snapshots.
    pub period: TierPeriod,
}

impl MeasuredTier {
    /// Requests answered per second, of all types, by the tier's own count.
    pub fn throughput_per_s(&self) -> f64 {
        per_second(self.period.completions(), self.period.length_s())
    }

    /// Requests that arrived per second, of all types, by the tier's own count.
    pub fn arrivals_per_s(&self) -> f64 {
        per_second(self.period.arrivals(), self.period.length_s())
    }
}

/// What one process used in the measured window.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessUse {
    pub part: Part,
    /// Number of the instance of that part.
    pub instance: u32,
    pub host: String,
    /// Time between the two samples used, which lie nearest the window's edges.
    pub length_s: f64,
    pub cpu_user_s: f64,
    pub cpu_system_s: f64,
    /// Its threads that were ready and had no core, on average; `None` where nothing counts them.
    waits_counted: Option<f64>,
    /// Where nothing does: share of the time in which one of them at least had none; `None` where nothing says that either.
    cpu_pressure: Option<f64>,
    /// Context switches because it waited.
    pub voluntary_switches_per_s: f64,
    /// Context switches because it was preempted.
    pub involuntary_switches_per_s: f64,
    pub resident_bytes_maximum: u64,
    /// What its threads and connections waited for, on average; `None` where it could not be read.
    pub waiting: Option<Waiting>,
    /// Its threads by name, busiest first; empty where they were not counted.
    pub threads: Vec<ThreadUse>,
}

/// What the threads of one name used in the measured window.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadUse {
    /// Their name, without a number at its end.
    pub name: String,
    /// How many there were at the end of the window.
    pub threads: u64,
    /// Cores that they kept busy on average, together.
    pub cores_busy: f64,
    /// Seconds per second in which they were ready and had no core.
    pub run_queue_wait: f64,
}

impl ProcessUse {
    /// Between its samples next to the ends of the window.
    pub fn of(process: &Process, window: &MeasuredWindow) -> Option<Self> {
        let moment = |sample: &ProcessSample| sample.at_ns;
        let (from, to) = ends(&process.samples, window, moment)?;
        let inside =
            process.samples.iter().filter(|sample| (from.at_ns..=to.at_ns).contains(&sample.at_ns));
        // Each tells of the time since the one before it.
        let after = inside.clone().filter(|sample| sample.at_ns > from.at_ns);
        let waiting = Waiting::over_time(after.filter_map(|sample| sample.waiting));
        let rate = |of: fn(&ProcessSample) -> Option<u64>| {
            growth(inside.clone().filter_map(|sample| Some((sample.at_ns, of(sample)?))))
        };
        Some(Self {
            part: process.part.clone(),
            instance: process.instance,
            host: process.host.clone(),
            length_s: seconds_between(from.at_ns, to.at_ns),
            cpu_user_s: seconds_between(from.cpu_user_ns, to.cpu_user_ns),
            cpu_system_s: seconds_between(from.cpu_system_ns, to.cpu_system_ns),
            waits_counted: rate(|sample| sample.run_queue_wait_ns).map(|rate| rate / 1e9),
            cpu_pressure: rate(|sample| sample.cpu_pressure_ns).map(|rate| rate / 1e9),
            voluntary_switches_per_s: rate(|one| Some(one.voluntary_switches)).unwrap_or(0.0),
            involuntary_switches_per_s: rate(|one| Some(one.involuntary_switches)).unwrap_or(0.0),
            resident_bytes_maximum: inside.map(|sample| sample.resident_bytes).max().unwrap_or(0),
            waiting,
            threads: thread_uses(&process.threads, window),
        })
    }

    /// Cores that it kept busy on average: 1.0 is one whole core.
    pub fn cores_busy(&self) -> f64 {
        let time_s = self.cpu_user_s + self.cpu_system_s;
        if self.length_s > 0.0 { time_s / self.length_s } else { 0.0 }
    }

    /// Its threads that were ready and had no core, on average; `None` where nothing tells. The pressure is a mean over the
    /// cores that it used, each of which had one thread at least that waited: more at once are not told.
    pub fn run_queue_wait(&self) -> Option<f64> {
        let pressure = || Some(self.cpu_pressure? * self.cores_busy().max(1.0));
        self.waits_counted.or_else(pressure)
    }
}

/// What a host used in the measured window.
#[derive(Debug, Clone, PartialEq)]
pub struct HostUse {
    pub host: String,
    pub cores: u32,
    /// Time between the two samples used.
    pub length_s: f64,
    /// CPU time in user mode, over all cores.
    pub cpu_user_s: f64,
    /// CPU time in the kernel, over all cores.
    pub cpu_system_s: f64,
    /// Idle time, over all cores.
    pub cpu_idle_s: f64,
    /// Time that a hypervisor gave to others, over all cores.
    pub cpu_steal_s: f64,
    /// Bytes received, loopback included.
    pub network_in_bytes: u64,
    /// Bytes sent, loopback included.
    pub network_out_bytes: u64,
}

impl HostUse {
    /// Of the samples of one host, between those next to the ends of the window.
    pub fn of(samples: &[impl Borrow<HostSample>], window: &MeasuredWindow) -> Option<Self> {
        let (from, to) = ends(samples, window, |sample| sample.borrow().at_ns)?;
        let (from, to) = (from.borrow(), to.borrow());
        Some(Self {
            host: from.host.clone(),
            cores: to.cores,
            length_s: seconds_between(from.at_ns, to.at_ns),
            cpu_user_s: seconds_between(from.cpu_user_ns, to.cpu_user_ns),
            cpu_system_s: seconds_between(from.cpu_system_ns, to.cpu_system_ns),
            cpu_idle_s: seconds_between(from.cpu_idle_ns, to.cpu_idle_ns),
            cpu_steal_s: seconds_between(from.cpu_steal_ns, to.cpu_steal_ns),
            network_in_bytes: to.network_in_bytes.saturating_sub(from.network_in_bytes),
            network_out_bytes: to.network_out_bytes.saturating_sub(from.network_out_bytes),
        })
    }

    /// Share of all cores that was busy, from 0 to 1.
    pub fn utilization(&self) -> f64 {
        self.share(self.cpu_user_s + self.cpu_system_s)
    }

    /// Share of the time of all cores that a hypervisor gave to others, from 0 to 1.
    pub fn stolen(&self) -> f64 {
        self.share(self.cpu_steal_s)
    }

    fn share(&self, part_s: f64) -> f64 {
        let all_s = self.cpu_user_s + self.cpu_system_s + self.cpu_idle_s + self.cpu_steal_s;
        if all_s > 0.0 { part_s / all_s } else { 0.0 }
    }
}

impl Results {
    pub fn measured(&self, id: RunId) -> Result<Measured, StoreError> {
        let run = self.run(id)?;
        let window = run.measured.clone().ok_or(StoreError::NotMeasured(id.0))?;
        let generators = self.generators(id, Some(Extent::Measured))?;
        let operations = by_name(&generators);
        let mut response_time = Histogram::new();
        for counts in operations.values() {
            response_time.add(&counts.response_time);
        }
        // Each generator over its own windows: they may begin a few milliseconds apart.
        let throughput_per_s = generators
            .iter()
            .flat_map(|generator| &generator.operations)
            .map(|row| per_second(row.counts.completed, seconds_between(row.from_ns, row.to_ns)))
            .sum();
        let (tiers, topology) = tiers(self.tiers(id, Some(Extent::Measured))?);
        let processes = self.processes(id)?;
        Ok(Measured {
            clients: generators.iter().map(|generator| generator.clients).sum(),
            think_time_mean_s: think_time_mean_s(&generators),
            arrival_rate_per_s: generators.iter().map(|row| row.arrival_rate_per_s).sum(),
            throughput_per_s,
            response_time,
            operations,
            steps: by_name(&self.generators(id, Some(Extent::Steps))?),
            generators,
            graph: self.graph(id)?,
            tiers,
            topology,
            processes: processes.iter().filter_map(|row| ProcessUse::of(row, &window)).collect(),
            hosts: host_uses(&self.hosts(id)?, &window),
            run,
            window,
        })
    }
}

fn by_name(generators: &[Generator]) -> BTreeMap<String, OperationCounts> {
    let mut sums: BTreeMap<String, OperationCounts> = BTreeMap::new();
    for period in generators.iter().flat_map(|generator| &generator.operations) {
        sums.entry(period.operation.clone()).or_default().add(&period.counts);
    }
    sums
}

fn per_second(count: u64, length_s: f64) -> f64 {
    if length_s > 0.0 { exact_f64(count) / length_s } else { 0.0 }
}

/// Mean over the clients, should generators differ.
fn think_time_mean_s(generators: &[Generator]) -> f64 {
    let clients: u64 = generators.iter().map(|row| row.clients).sum();
    let weighted: f64 = generators
        .iter()
        .map(|row| Seconds::from_nanos(row.think_time_mean_ns).get() * exact_f64(row.clients))
        .sum();
    if clients > 0 { weighted / exact_f64(clients) } else { 0.0 }
}

fn tiers(rows: Vec<Tier>) -> (Vec<MeasuredTier>, Vec<Tier>) {
    let mut measured = Vec::new();
    let mut topology = Vec::new();
    for mut row in rows {
        if let Some(period) = std::mem::take(&mut row.periods).into_iter().next() {
            measured.push(MeasuredTier {
                tier: row.tier.clone(),
                role: row.role,
                instance: row.instance,
                period,
            });
        }
        topology.push(row);
    }
    (measured, topology)
}

/// The sample whose moment lies nearest to `at_ns`.
fn nearest<T>(samples: &[T], at_ns: u64, moment: impl Fn(&T) -> u64) -> Option<&T> {
    samples.iter().min_by_key(|sample| moment(sample).abs_diff(at_ns))
}

/// The samples nearest to the ends of the window. Where one sample is nearest to both, the last before the window and the
/// first after it: nothing can be told from one.
fn ends<'a, T>(
    samples: &'a [T],
    window: &MeasuredWindow,
    moment: impl Fn(&T) -> u64,
) -> Option<(&'a T, &'a T)> {
    let from = nearest(samples, window.from_ns, &moment)?;
    let to = nearest(samples, window.to_ns, &moment)?;
    if moment(from) < moment(to) {
        return Some((from, to));
    }
    let before = samples.iter().rfind(|sample| moment(sample) <= window.from_ns);
    let after = samples.iter().find(|sample| moment(sample) >= window.to_ns);
    Some((before.unwrap_or(from), after.unwrap_or(to)))
}

fn seconds_between(from: u64, to: u64) -> f64 {
    Seconds::from_nanos(to.saturating_sub(from)).get()
}

/// By how much a counter of the threads that live grew a second: without the times in which it fell, since threads ended.
fn growth(counted: impl Iterator<Item = (u64, u64)>) -> Option<f64> {
    let counted: Vec<(u64, u64)> = counted.collect();
    let grew = |pair: &&[(u64, u64)]| pair[1].1 >= pair[0].1 && pair[1].0 > pair[0].0;
    let (mut grown, mut length_s) = (0.0, 0.0);
    for pair in counted.windows(2).filter(grew) {
        grown += exact_f64(pair[1].1 - pair[0].1);
        length_s += seconds_between(pair[0].0, pair[1].0);
    }
    (length_s > 0.0).then(|| grown / length_s)
}

fn thread_uses(samples: &[ThreadSample], window: &MeasuredWindow) -> Vec<ThreadUse> {
    let moment = |sample: &ThreadSample| sample.at_ns;
    let mut uses: Vec<ThreadUse> = samples
        .chunk_by(|a, b| a.name == b.name)
        .filter_map(|samples| {
            let (from, to) = ends(samples, window, moment)?;
            let inside = samples.iter().filter(|one| (from.at_ns..=to.at_ns).contains(&one.at_ns));
            let rate = |of: fn(&ThreadSample) -> u64| {
                Some(growth(inside.clone().map(|one| (one.at_ns, of(one))))? / 1e9)
            };
            Some(ThreadUse {
                name: to.name.clone(),
                threads: to.threads,
                cores_busy: rate(|one| one.cpu_ns)?,
                run_queue_wait: rate(|one| one.run_queue_wait_ns)?,
            })
        })
        .collect();
    uses.sort_by(|a, b| b.cores_busy.total_cmp(&a.cores_busy));
    uses
}

fn host_uses(samples: &[HostSample], window: &MeasuredWindow) -> Vec<HostUse> {
    let by_host = samples.chunk_by(|a, b| a.host == b.host);
    by_host.filter_map(|samples| HostUse::of(samples, window)).collect()
}
