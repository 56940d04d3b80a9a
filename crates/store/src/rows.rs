//! Typed rows: what goes in and what comes out.

use std::collections::BTreeMap;

use kendall_protocols::load_result::{Drawn, GapCheck, GeneratorThread, Stalls};
use kendall_protocols::snapshot::CountedTime;
use kendall_protocols::topology::{Graph, Part, Role};
use kendall_protocols::waiting::Waiting;
use kendall_stats::adaptive::Shape;
use kendall_stats::estimate::{Caveat, Estimate};
use kendall_stats::histogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The study that a folder of results belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    pub name: String,
    /// One line that says what it asks.
    pub title: String,
    pub file_name: String,
    /// The study file as run, byte by byte.
    pub file: String,
    /// Digest of the effective values: a folder is only continued by the same study.
    pub fingerprint: String,
    /// Seed of all chance in the study; below 2^63.
    pub seed: u64,
    /// Kind of design, as in the file: `full`, `2kr`, …
    pub design: String,
    /// Confidence of every interval, from 0 to 1.
    pub confidence: f64,
    /// How many runs the design asks for; `None` where the data decide (adaptive, a stopping rule).
    pub planned_runs: Option<u64>,
    pub created_unix_ns: u64,
}

/// How far an adaptive design came on one line: one combination of the factors not searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchLine {
    /// Number of the line, from 0.
    pub line: u32,
    /// Dotted key of the factor that was searched, such as `workload.clients`.
    pub factor: String,
    /// Levels of the other factors, in the order of the study file.
    pub levels: Vec<FactorLevel>,
    /// Runs that were made on this line and may be used.
    pub runs: u64,
    /// Levels of the searched factor that there were to choose from.
    pub grid: u64,
    /// Runs that a sweep over all of them takes, with the repetitions that confirm the maximum.
    pub sweep_runs: u64,
    /// What was found; `None` where the search has not ended with a result.
    pub found: Option<SearchFound>,
    /// Why there is nothing found; empty where there is.
    pub without: String,
}

/// What an adaptive design found on one line, in the unit of the searched factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchFound {
    /// Highest throughput, from runs that were made after its level had been chosen.
    pub maximum_throughput_per_s: Estimate,
    pub best: f64,
    /// Lowest and highest level that measured within the interval of the maximum.
    pub best_between: (f64, f64),
    /// N*: level at which the line of the lowest level would reach the maximum.
    pub saturation_point: Estimate,
    /// Neighboring measured levels between which 95 % of the maximum is first reached.
    pub knee_between: (f64, f64),
    /// What the runs beyond the maximum tell from chance. The fit's may be another.
    pub shape: Shape,
    /// The highest level that was run, and its throughput over the maximum; `None` where that is
    /// the level of the maximum.
    pub beyond: Option<(f64, Estimate)>,
    /// The shape fitted to all runs of the line; `None` where fewer than five levels were run.
    pub fit: Option<FittedShape>,
}

/// A shape fitted to the runs of a search, in the unit of the searched factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FittedShape {
    /// The likeliest shape and the others that are not ruled out, with their weights (of 1).
    pub likely: Vec<(Shape, f64)>,
    pub maximum_throughput_per_s: Estimate,
    pub level_of_maximum: Estimate,
    /// The level that first reaches 95 % of it.
    pub knee: Estimate,
    /// Scatter of a run, as a share of its throughput.
    pub spread: f64,
}

impl FittedShape {
    /// `retrograde 97 %; its maximum lies at 13.6 (12.4 to 15.1); 95 % of its maximum is reached at
    /// 9.10 (8.50 to 9.80)`.
    pub fn in_words(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let around = |estimate: &Estimate| {
            let figures = |value: f64| kendall_stats::estimate::figures(value, 3);
            let ends = estimate.interval.map_or_else(String::new, |interval| {
                format!(" ({} to {})", figures(interval.low), figures(interval.high))
            });
            format!("{}{ends}", figures(estimate.center))
        };
        let likely: Vec<String> = self
            .likely
            .iter()
            .map(|(shape, share)| format!("{} {}", shape.as_str(), percent(*share)))
            .collect();
        let top = match self.likely.first() {
            Some((Shape::Retrograde, _)) => {
                format!("; its maximum lies at {}", around(&self.level_of_maximum))
            }
            Some((Shape::Cliff, _)) => {
                format!("; it breaks down after {}", around(&self.level_of_maximum))
            }
            Some((Shape::Growing | Shape::Saturating, _)) | None => String::new(),
        };
        format!(
            "{}{top}; 95 % of its maximum is reached at {}",
            likely.join(", or "),
            around(&self.knee)
        )
    }
}

/// A throughput below this share of the maximum has fallen: by more than 5 %.
const FALLEN: f64 = 0.95;

impl SearchFound {
    /// What the curve does beyond its maximum, in a sentence with its interval; `None` where nothing
    /// was stored about it.
    pub fn beyond_in_words(&self) -> Option<String> {
        let Some((level, ratio)) = &self.beyond else {
            let words = "the maximum lies at the highest level: it may grow on";
            return (self.shape == Shape::Growing).then(|| words.to_owned());
        };
        let percent = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
        let range = ratio.interval.map_or_else(String::new, |interval| {
            format!(" ({} to {})", percent(interval.low), percent(interval.high))
        });
        // A fall is told by the interval that is printed beside it.
        let fallen = ratio.interval.map_or(ratio.center, |interval| interval.high) < FALLEN;
        let what = match (self.shape, fallen) {
            (Shape::Cliff, _) => "beyond the maximum the throughput breaks down",
            (_, true) => "beyond the maximum the throughput falls",
            (_, false) => "beyond the maximum no fall of more than 5 % is significant",
        };
        Some(format!("{what}: {}{range} at {level}", percent(ratio.center)))
    }
}

/// Key of a stored run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunId(pub i64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Measured; may be used.
    Done,
    /// Something broke: a tier died, a disk was full. There may be no rows beside it.
    Failed,
    /// Measured, but must not be used: the generator was the bottleneck, a law was violated.
    Rejected,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
        }
    }
}

/// What stands between the keys of a factor that sets several at once, and between the values of a level of it
/// that has no name.
pub const TUPLE: &str = "+";

/// The dotted keys that the levels of a factor set: one, or those of a tuple.
pub fn keys_of(factor: &str) -> impl Iterator<Item = &str> {
    factor.split(TUPLE)
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactorLevel {
    /// Dotted key of the study file, such as `system.workers`; of a tuple its keys ([`keys_of`]).
    pub factor: String,
    /// Index of the level in the order of the study file.
    pub level: u32,
    /// As written in the study file, without quotes.
    pub text: String,
    /// As a number in base units (seconds, bytes, 1/s, or plain); `None` for words.
    pub number: Option<f64>,
}

/// The part of a run that counts: what warm-up and cool-down left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredWindow {
    /// First moment, `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    pub to_ns: u64,
    /// The rule that cut it, in words with its figures.
    pub rule: String,
}

impl MeasuredWindow {
    pub fn length_s(&self) -> f64 {
        kendall_units::Seconds::from_nanos(self.to_ns.saturating_sub(self.from_ns)).get()
    }
}

/// Why a run was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The study's design asks for it.
    #[default]
    Design,
    /// It verifies a prediction, or repeats a configuration beside one that does.
    Verification,
}

impl Purpose {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Design => "design",
            Self::Verification => "verification",
        }
    }
}

/// What was asked of the model of a study, and what it answered.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPrediction {
    pub made_unix_ns: u64,
    /// Keys and values as they were asked.
    pub asked: Vec<(String, String)>,
    /// The answer as `kendall predict --format json` prints it.
    pub answer: Value,
    /// The run that verified it.
    pub run: Option<RunId>,
    /// The run that measured a configuration again beside it.
    pub repeated: Option<RunId>,
    /// What the verification found; `None` without one.
    pub verdict: Option<Value>,
}

/// First number of configurations that are not part of the design.
pub const FIRST_VERIFICATION: u32 = 1_000_000;

/// What one client alone, before the load of a run, has more in its number than the run's configuration.
pub const ONE_CLIENT: u32 = 2_000_000;

/// One run: what was asked, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Key; [`RunId::default`] before it is stored.
    pub id: RunId,
    /// Index of the combination of levels in the design.
    pub configuration: u32,
    /// Repetition, and block: each block holds every configuration once, in random order.
    pub repetition: u32,
    /// Place in the order of execution, from 0.
    pub position: u32,
    /// 0 for the first try, more where a rejected or failed run was tried again.
    pub attempt: u32,
    pub status: Status,
    /// Why it failed or was rejected; empty when done.
    pub reasons: Vec<String>,
    /// Caveats, which do not reject it.
    pub caveats: Vec<Caveat>,
    /// Levels, in the order of the study file.
    pub factors: Vec<FactorLevel>,
    /// All effective values of this run, defaults included, as the study file would say them.
    pub settings: Value,
    /// Machine, versions, revision and seed, as one JSON object.
    pub environment: Value,
    pub started_unix_ns: u64,
    pub ended_unix_ns: u64,
    /// Start, `CLOCK_MONOTONIC`.
    pub started_ns: u64,
    /// End, `CLOCK_MONOTONIC`.
    pub ended_ns: u64,
    /// The part that counts; `None` where the run failed before there was one.
    pub measured: Option<MeasuredWindow>,
    pub purpose: Purpose,
    /// Mean time of the speed probe's unit of work in the measured window; `None` without a probe.
    pub speed_unit_ns: Option<f64>,
    /// The run before whose load one client alone was measured; `None` for all other runs.
    pub one_client_of: Option<RunId>,
}

impl Run {
    /// The level of a factor, by its dotted key.
    pub fn factor(&self, key: &str) -> Option<&FactorLevel> {
        self.factors.iter().find(|level| level.factor == key)
    }

    /// An effective value by its dotted key, such as `system.workers`, varied or not.
    pub fn setting(&self, key: &str) -> Option<&Value> {
        key.split('.').try_fold(&self.settings, |value, part| value.get(part))
    }

    /// Its environment without what is measured of the machine and its hosts, which is never the same twice.
    pub fn stated_environment(&self) -> Value {
        let mut stated = self.environment.clone();
        let without = |value: &mut Value, measured: &[&str]| {
            if let Some(members) = value.as_object_mut() {
                members.retain(|key, _| !measured.contains(&key.as_str()));
            }
        };
        without(&mut stated, &["ways", "loopback", "pgbench"]);
        let hosts = stated.get_mut("hosts").and_then(Value::as_object_mut);
        for host in hosts.into_iter().flat_map(|hosts| hosts.values_mut()) {
            without(host, &["clock", "longest_silence_s"]);
        }
        stated
    }

    /// Whether its numbers may be used.
    pub fn is_usable(&self) -> bool {
        self.status == Status::Done
    }
}

/// A number that a report says of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryRow {
    pub configuration: u32,
    /// Its key in the report's tables, unit included.
    pub variable: String,
    /// The number; `None` where there is none.
    pub value: Option<f64>,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end of its interval.
    pub high: Option<f64>,
    /// Why there is no number.
    pub why: Option<String>,
}

/// What period a row describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// One second (the last may be shorter).
    Second,
    /// The whole measured window, after the cut.
    Measured,
    /// What was under way at the end of the load and was waited for: in no second and not measured.
    Drained,
    /// The whole load, uncut, with what was drained.
    Whole,
    /// The measured window, of the parts of requests: they are in no other row.
    Steps,
}

impl Extent {
    pub const ALL: &'static [Self] =
        &[Self::Second, Self::Measured, Self::Drained, Self::Whole, Self::Steps];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Measured => "measured",
            Self::Drained => "drained",
            Self::Whole => "whole",
            Self::Steps => "steps",
        }
    }
}

/// Everything about one run, stored at once when it ends.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// What was asked and how it ended.
    pub run: Run,
    /// The system's tiers and who talks to whom.
    pub graph: Graph,
    pub generators: Vec<Generator>,
    /// One per instance of a tier.
    pub tiers: Vec<Tier>,
    pub processes: Vec<Process>,
    pub hosts: Vec<HostSample>,
    /// How fast the cores were; empty where it was not probed.
    pub speeds: Vec<SpeedSample>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generator {
    /// Number of the generator, from 0.
    pub generator: u32,
    pub host: String,
    pub command: String,
    /// `memcached`, `http`, …
    pub protocol: String,
    pub targets: Vec<String>,
    /// `closed` or `open`.
    pub r#loop: String,
    /// Clients of this generator (closed loop), or connections (open loop).
    pub clients: u64,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub think_time_mean_ns: u64,
    /// Open loop: the rate that was asked for.
    pub arrival_rate_per_s: Option<f64>,
    /// Message queue: `single` or `stream`.
    pub calls: Option<String>,
    pub seed: u64,
    /// How late it was against its own schedule.
    pub lateness: Histogram,
    /// Open loop: gaps between sends.
    pub gaps: Histogram,
    /// Open loop: due to a free connection, of the arrivals that found none free.
    pub connection_wait: Histogram,
    /// Open loop: whether the stream of requests was the one that was asked for.
    pub gap_check: Option<GapCheck>,
    /// Open loop: arrivals that were due and could not be sent before the end.
    pub unsent: u64,
    /// Connections that had to be made again.
    pub reconnects: u64,
    /// Replies by HTTP status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Closed loop: how long nothing completed.
    pub stalls: Option<Stalls>,
    /// What was drawn for requests whose content varies, by name.
    pub drawn: BTreeMap<String, Drawn>,
    pub threads: Vec<GeneratorThread>,
    /// Requests by period and operation, ordered by extent and time.
    pub operations: Vec<OperationPeriod>,
}

/// Requests of one kind in one period, as one generator saw them.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationPeriod {
    pub extent: Extent,
    pub from_ns: u64,
    pub to_ns: u64,
    /// `get`, `set`, …
    pub operation: String,
    pub counts: OperationCounts,
}

/// What happened to requests of one kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OperationCounts {
    pub sent: u64,
    /// Requests answered without an error (misses included).
    pub completed: u64,
    pub hits: u64,
    pub misses: u64,
    pub errors: BTreeMap<String, u64>,
    pub bytes_out: u64,
    pub bytes_in: u64,
    /// Due to done, of those completed.
    pub response_time: Histogram,
}

impl OperationCounts {
    /// Adds what happened elsewhere or later.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.completed += other.completed;
        self.hits += other.hits;
        self.misses += other.misses;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.response_time.add(&other.response_time);
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tier {
    /// Name of the tier in the study's topology, such as `proxies`; of a link who it lies between.
    pub tier: String,
    /// [`Role::Tier`] or [`Role::Link`].
    pub role: Role,
    /// Number of the instance, from 0.
    pub instance: u32,
    /// What it is: `memcached-proxy`, `memcached`, `link`, `process`, …
    pub kind: String,
    pub host: String,
    pub address: String,
    /// Its process; 0 where it is not known.
    pub pid: u32,
    /// Its command line; empty where it was not started by the study.
    pub command: String,
    /// What it said about itself by period, ordered by extent and time; empty for a tier that
    /// says nothing.
    pub periods: Vec<TierPeriod>,
}

/// A level that goes up and down, over a period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Level {
    pub mean: f64,
    /// Highest; over a period longer than a second, the highest of the samples' recent maxima.
    pub maximum: u64,
}

/// What a tier did in one period: the difference of two of its snapshots.
#[derive(Debug, Clone, PartialEq)]
pub struct TierPeriod {
    pub extent: Extent,
    /// Moment of the first snapshot.
    pub from_ns: u64,
    /// Moment of the second snapshot.
    pub to_ns: u64,
    /// Workers at the end; 0 where there is no worker limit.
    pub workers: u32,
    /// Requests that waited for a worker.
    pub queue_length: Level,
    /// Workers that served a request.
    pub workers_busy: Level,
    /// How long workers were held, one entry a batch; empty where one serves a request at a time.
    pub held_time: Histogram,
    pub connections: Level,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// CPU time in user mode, by the tier's own account.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel, by the tier's own account.
    pub cpu_system_ns: u64,
    /// Part of the CPU time that was spent awake for the next timer; `None` where it does not say.
    pub spun_ns: Option<u64>,
    /// Hits, misses, errors by kind.
    pub outcomes: BTreeMap<String, u64>,
    /// How often each bound was hit.
    pub limits_hit: BTreeMap<String, u64>,
    pub requests: BTreeMap<String, TierRequests>,
    /// One per backend, in the order of the tier's command line.
    pub backends: Vec<TierBackend>,
    /// Statements, batches and the like, with the time that they took together; not of single seconds.
    pub counted: Vec<CountedTime>,
}

impl TierPeriod {
    pub fn length_s(&self) -> f64 {
        kendall_units::Seconds::from_nanos(self.to_ns.saturating_sub(self.from_ns)).get()
    }

    /// Requests answered in the period, of all types.
    pub fn completions(&self) -> u64 {
        self.requests.values().map(|requests| requests.completions).sum()
    }

    /// Requests that arrived in the period, of all types.
    pub fn arrivals(&self) -> u64 {
        self.requests.values().map(|requests| requests.arrivals).sum()
    }

    /// One stage over all request types.
    pub fn stage(&self, stage: &str) -> Histogram {
        let mut merged = Histogram::new();
        for histogram in self.requests.values().filter_map(|requests| requests.stages.get(stage)) {
            merged.add(histogram);
        }
        merged
    }
}

/// Requests of one type in a period of a tier.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TierRequests {
    /// Requests whose last byte was read.
    pub arrivals: u64,
    pub completions: u64,
    /// Time in each stage, by the names in `kendall_protocols::snapshot::stage`.
    pub stages: BTreeMap<String, Histogram>,
}

/// What a tier sent to one backend in a period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TierBackend {
    pub address: String,
    pub requests: u64,
    pub keys: u64,
    pub errors: u64,
    /// Request sent to answer received.
    pub backend_time: Histogram,
}

/// Resources of one process, by the operating system's accounting.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Process {
    pub part: Part,
    /// Number of the instance of that part.
    pub instance: u32,
    pub host: String,
    pub pid: u32,
    /// Cumulative counters, about one a second, in order.
    pub samples: Vec<ProcessSample>,
    /// CPU time of its threads by name, about one sample of each a second, ordered by name and
    /// time; empty where the source of the counters knows no threads.
    pub threads: Vec<ThreadSample>,
}

/// Cumulative counters of the threads of one name at one moment. Threads that are numbered
/// (`worker-7`) share the name without the number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Name, without a number at its end.
    pub name: String,
    /// The moment, `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Threads of that name at this moment.
    pub threads: u64,
    /// CPU time of those that live, user and system together.
    pub cpu_ns: u64,
    /// Time that they were ready to run and had no core.
    pub run_queue_wait_ns: u64,
}

/// Cumulative counters of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The moment, `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// CPU time in user mode, all threads.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel, all threads.
    pub cpu_system_ns: u64,
    /// Time that its threads were ready to run and had no core; `None` where nothing counts it.
    pub run_queue_wait_ns: Option<u64>,
    /// Where nothing does: time in which one of them at least had none, of all in its control group, or on the machine.
    pub cpu_pressure_ns: Option<u64>,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because it was preempted.
    pub involuntary_switches: u64,
    /// Memory in use at this moment.
    pub resident_bytes: u64,
    pub threads: u64,
    /// What they waited for, on average at some ten moments a second since the sample before; `None` where it cannot be read.
    pub waiting: Option<Waiting>,
}

/// How fast one core was at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SpeedSample {
    pub host: String,
    pub core: u32,
    /// The moment, `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Mean time of a unit of work that never changes.
    pub unit_ns: f64,
}

/// Cumulative counters of a host at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostSample {
    pub host: String,
    /// The moment, `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    pub cores: u32,
    /// CPU time in user mode (nice included), over all cores.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel (interrupts included), over all cores.
    pub cpu_system_ns: u64,
    /// Idle time (waiting for disks included), over all cores.
    pub cpu_idle_ns: u64,
    /// Time that a hypervisor gave to others, over all cores.
    pub cpu_steal_ns: u64,
    pub context_switches: u64,
    /// Bytes received on all interfaces, loopback included.
    pub network_in_bytes: u64,
    /// Bytes sent on all interfaces, loopback included.
    pub network_out_bytes: u64,
}

impl HostSample {
    /// CPU time in use by programs of this machine, over all cores.
    pub fn busy_ns(&self) -> u64 {
        self.cpu_user_ns + self.cpu_system_ns
    }
}
