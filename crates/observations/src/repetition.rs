//! One usable run.

use std::collections::BTreeMap;

use kendall_fit::bottleneck::weight;
use kendall_fit::measured::OperatingPoint;
use kendall_protocols::load_result::JOB_LOOP;
use kendall_protocols::snapshot::{counted, stage};
use kendall_stats::histogram::Histogram;
use kendall_store::{Measured, OperationCounts, OperationPeriod, Period, Run};
use kendall_units::{Seconds, exact_f64};

use crate::calibration::stolen_cores;
use crate::point;

#[derive(Debug, Clone)]
pub struct Repetition {
    pub run: Run,
    /// What was measured, over the whole graph.
    pub point: OperatingPoint,
    /// Beside that of a run that no other process disturbed.
    pub weight: f64,
    /// Its load was a job with an end: its measured window is its makespan.
    pub is_job: bool,
    /// Requests whose response time is in the histograms.
    pub answered: u64,
    /// What happened to its requests.
    pub counts: Counts,
    pub operations: BTreeMap<String, OperationOfRun>,
    /// Requests that failed, by operation and kind of failure.
    pub errors: BTreeMap<(String, String), u64>,
    /// Replies of failed HTTP requests by status code, over the whole load: windows do not keep codes.
    pub failed_statuses: BTreeMap<u16, u64>,
    /// Each instance of each tier that reports, apart.
    pub instances: Vec<Instance>,
    /// What each instance of the first tier sent to each backend.
    pub backends: Vec<BackendLoad>,
    /// What takes time beside the stages of requests: statements inside a database, batches by kind.
    pub counted: Vec<Counted>,
    /// Completed per second in each second of the measured window.
    pub seconds: Vec<(f64, f64)>,
    /// Busiest generator thread: CPU time over wall time.
    pub generator_busy: Option<f64>,
    /// 99th percentile of the generators' lateness.
    pub lateness_p99_s: Option<f64>,
    /// Quantiles of the clients' response time in seconds, by quantile.
    pub(crate) quantiles_s: Vec<(f64, f64)>,
}

/// What happened to the requests of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Answered without an error.
    pub completed: u64,
    pub errors: u64,
    /// Keys asked for and found.
    pub hits: u64,
    /// Keys asked for and not found.
    pub misses: u64,
}

impl Counts {
    /// Share of keys that were not found.
    pub fn miss_rate(self) -> Option<f64> {
        kendall_units::ratio(self.misses, self.hits + self.misses)
    }

    /// Share of requests that failed.
    pub fn error_rate(self) -> Option<f64> {
        kendall_units::ratio(self.errors, self.completed + self.errors)
    }
}

/// What the clients saw of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OperationOfRun {
    pub throughput_per_s: f64,
    /// Mean response time; `None` where nothing was answered.
    pub response_time_s: Option<f64>,
    /// Requests whose response time is in the mean.
    pub answered: u64,
}

/// One instance of a tier, by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    pub tier: String,
    pub instance: u32,
    pub arrivals_per_s: f64,
    pub throughput_per_s: f64,
    /// R, W and S of its own requests, by the stage's name: the mean in seconds, and how many times it is of. A
    /// stage of which it recorded none is not in it.
    pub times: BTreeMap<String, (f64, f64)>,
    /// Time-weighted mean of the requests that waited.
    pub queue_length: f64,
    /// Time-weighted mean of the workers that served.
    pub workers_busy: f64,
    /// Workers; 0 where there is no limit.
    pub workers: u32,
}

/// What one instance of the first tier sent to one of its backends.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendLoad {
    pub instance: u32,
    pub backend: usize,
    pub requests: u64,
    pub keys: u64,
    pub errors: u64,
    /// Mean time until its answer.
    pub backend_time_mean_s: Option<f64>,
}

/// Things of one name that were counted in the measured window.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// One of `kendall_protocols::snapshot::counted`.
    pub kind: String,
    pub name: String,
    /// How many a second.
    pub per_s: f64,
    /// What they were about (rows, operations), a second.
    pub items_per_s: f64,
    pub time_mean_s: f64,
}

impl Repetition {
    pub(crate) fn new(
        measured: Measured,
        seconds_of_window: &BTreeMap<u64, Period>,
        quantiles: &[f64],
    ) -> Self {
        let operations =
            measured.operations.keys().map(|name| (name.clone(), operation(&measured, name)));
        let operations = operations.collect();
        let mut lateness = Histogram::new();
        for generator in &measured.generators {
            lateness.add(&generator.lateness);
        }
        let point = point::of(&measured);
        let times = &measured.response_time;
        let quantile = |&q: &f64| Some((q, seconds(times.quantile(q))?));
        Self {
            weight: weight(&point, stolen_cores(&measured)),
            point,
            is_job: measured.generators.iter().all(|generator| generator.r#loop == JOB_LOOP),
            answered: times.count(),
            quantiles_s: quantiles.iter().filter_map(quantile).collect(),
            counts: counts(&measured.operations),
            operations,
            errors: errors(&measured.operations),
            failed_statuses: failed_statuses(&measured),
            instances: instances(&measured),
            backends: backends(&measured),
            counted: counted(&measured),
            seconds: seconds_of_window
                .iter()
                .map(|(&at, second)| (exact_f64(at), second.throughput_per_s()))
                .collect(),
            generator_busy: generator_busy(&measured),
            lateness_p99_s: seconds(lateness.quantile(0.99)),
            run: measured.run,
        }
    }

    /// A quantile of this run alone, whether or not its requests are enough for it.
    pub fn quantile_s(&self, quantile: f64) -> Option<f64> {
        let known = self.quantiles_s.iter().find(|(known, _)| known.total_cmp(&quantile).is_eq());
        known.map(|(_, value)| *value)
    }
}

pub(crate) fn seconds(nanoseconds: Option<u64>) -> Option<f64> {
    nanoseconds.map(|n| Seconds::from_nanos(n).get())
}

/// Each generator over its own windows, as the throughput of all operations is: only seconds that lie
/// whole inside the measured window are counted, so what they hold is no rate over that window.
fn operation(measured: &Measured, name: &str) -> OperationOfRun {
    let rows = measured.generators.iter().flat_map(|generator| &generator.operations);
    let rate = |row: &OperationPeriod| {
        let length_s = Seconds::from_nanos(row.to_ns.saturating_sub(row.from_ns)).get();
        if length_s > 0.0 { exact_f64(row.counts.completed) / length_s } else { 0.0 }
    };
    let times = measured.operations.get(name).map(|counts| &counts.response_time);
    OperationOfRun {
        throughput_per_s: rows.filter(|row| row.operation == name).map(rate).sum(),
        response_time_s: times.and_then(Histogram::mean).map(|ns| ns / 1e9),
        answered: times.map_or(0, Histogram::count),
    }
}

fn counts(operations: &BTreeMap<String, OperationCounts>) -> Counts {
    operations.values().fold(Counts::default(), |sum, counts| Counts {
        completed: sum.completed + counts.completed,
        errors: sum.errors + counts.errors.values().sum::<u64>(),
        hits: sum.hits + counts.hits,
        misses: sum.misses + counts.misses,
    })
}

fn errors(operations: &BTreeMap<String, OperationCounts>) -> BTreeMap<(String, String), u64> {
    let each = operations.iter().flat_map(|(operation, counts)| {
        counts.errors.iter().map(move |(kind, count)| ((operation.clone(), kind.clone()), *count))
    });
    each.filter(|(_, count)| *count > 0).collect()
}

fn failed_statuses(measured: &Measured) -> BTreeMap<u16, u64> {
    let mut statuses = BTreeMap::new();
    for (status, count) in measured.generators.iter().flat_map(|generator| &generator.statuses) {
        if !(200..300).contains(status) && *count > 0 {
            *statuses.entry(*status).or_default() += count;
        }
    }
    statuses
}

fn instances(measured: &Measured) -> Vec<Instance> {
    let stations = measured.tiers.iter().filter(|tier| point::is_station(tier));
    stations
        .map(|tier| {
            let time = |name: &str| {
                let times = tier.period.stage(name);
                Some((name.to_owned(), (times.mean()? / 1e9, exact_f64(times.count()))))
            };
            let stages = [stage::RESPONSE_TIME, stage::WAITING_TIME, stage::SERVICE_TIME];
            Instance {
                tier: tier.tier.clone(),
                instance: tier.instance,
                arrivals_per_s: tier.arrivals_per_s(),
                throughput_per_s: tier.throughput_per_s(),
                times: stages.into_iter().filter_map(time).collect(),
                queue_length: tier.period.queue_length.mean,
                workers_busy: tier.period.workers_busy.mean,
                workers: tier.period.workers,
            }
        })
        .collect()
}

/// Batches are each instance's own; of the database all instances tell the same, so the first that tells
/// is taken, over the time from its first to its last look.
fn counted(measured: &Measured) -> Vec<Counted> {
    let mut sums: BTreeMap<(&str, &str), (f64, f64, f64)> = BTreeMap::new();
    let mut told_by: BTreeMap<&str, u32> = BTreeMap::new();
    let stations = measured.tiers.iter().filter(|tier| point::is_station(tier));
    for tier in stations.filter(|tier| tier.period.length_s() > 0.0) {
        let look = tier.period.counted.iter().find(|one| one.kind == counted::LOOK);
        for one in tier.period.counted.iter().filter(|one| one.kind != counted::LOOK) {
            let length_s = match look {
                Some(look) if one.kind != counted::BATCH => exact_f64(look.time_ns) / 1e9,
                _ => tier.period.length_s(),
            };
            let first = *told_by.entry(&one.kind).or_insert(tier.instance);
            if one.kind != counted::BATCH && first != tier.instance {
                continue;
            }
            let sum = sums.entry((&one.kind, &one.name)).or_default();
            sum.0 += exact_f64(one.count) / length_s;
            sum.1 += exact_f64(one.items) / length_s;
            sum.2 += exact_f64(one.time_ns) / 1e9 / length_s;
        }
    }
    let one = |((kind, name), (per_s, items_per_s, time)): ((&str, &str), (f64, f64, f64))| {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        Counted { kind, name, per_s, items_per_s, time_mean_s: time / per_s }
    };
    sums.into_iter().filter(|(_, sum)| sum.0 > 0.0).map(one).collect()
}

fn backends(measured: &Measured) -> Vec<BackendLoad> {
    let Some(first) = point::first_tier(measured) else { return Vec::new() };
    let instances = measured.tiers.iter().filter(|tier| tier.tier == first);
    instances
        .flat_map(|tier| {
            tier.period.backends.iter().enumerate().map(|(backend, load)| BackendLoad {
                instance: tier.instance,
                backend,
                requests: load.requests,
                keys: load.keys,
                errors: load.errors,
                backend_time_mean_s: load.backend_time.mean().map(|ns| ns / 1e9),
            })
        })
        .collect()
}

fn generator_busy(measured: &Measured) -> Option<f64> {
    let threads = measured.generators.iter().flat_map(|generator| &generator.threads);
    threads
        .filter_map(|t| kendall_units::ratio(t.cpu_user_ns + t.cpu_system_ns, t.wall_ns))
        .max_by(f64::total_cmp)
}
