//! What the store holds, put together for the chapters: one entry a configuration, with its
//! repetitions, and the load curves that configurations form.

mod distribution;
mod point;
mod trace;

use std::collections::BTreeMap;

use kendall_predict::measured::OperatingPoint;
use kendall_protocols::snapshot::stage;
use kendall_stats::estimate::{Caveat, Estimate};
use kendall_stats::histogram::Histogram;
use kendall_stats::sample::mean_interval;
use kendall_store::{
    Extent, FactorLevel, Measured, OperationCounts, Results, Run, SearchLine, Status, StoreError,
    Study,
};
use kendall_units::exact_f64;

pub(crate) use distribution::{Distribution, PERCENTILES};
pub(crate) use trace::{Trace, TracePeriod};

/// Everything that the chapters draw on.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) study: Study,
    /// Every attempt, in the order of execution.
    pub(crate) runs: Vec<Run>,
    /// Usable runs by configuration, in the order of the design.
    pub(crate) configurations: Vec<Configuration>,
    /// Factors with more than one level, in the order of the study file.
    pub(crate) factors: Vec<Factor>,
    /// The factor that is the load, if one is varied.
    pub(crate) load: Option<LoadFactor>,
    /// Configurations that differ in their load only.
    pub(crate) curves: Vec<Curve>,
    /// How far an adaptive design came; empty for other designs.
    pub(crate) searches: Vec<SearchLine>,
    /// The runs of the configuration of highest throughput, period by period.
    pub(crate) traces: Vec<Trace>,
}

/// A factor that was varied.
#[derive(Debug, Clone)]
pub(crate) struct Factor {
    pub(crate) key: String,
    /// Levels in the order of the study file.
    pub(crate) levels: Vec<FactorLevel>,
}

/// The factor along the abscissa of the load curves.
#[derive(Debug, Clone)]
pub(crate) struct LoadFactor {
    pub(crate) key: String,
    /// For people, unit included.
    pub(crate) label: String,
}

/// Configurations that differ in their load only, by rising load.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Indices into [`Data::configurations`].
    pub(crate) configurations: Vec<usize>,
}

/// All usable repetitions of one combination of levels.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) levels: Vec<FactorLevel>,
    pub(crate) repetitions: Vec<Repetition>,
    /// Mean over the repetitions.
    pub(crate) point: OperatingPoint,
    /// Clients' response times, all repetitions and operations.
    pub(crate) client: Distribution,
    /// Clients' response times by operation.
    pub(crate) operations: BTreeMap<String, Distribution>,
    /// Response times at the first tier.
    pub(crate) tier: Option<Distribution>,
    /// Time in the stages of the first tier, by request type and stage.
    pub(crate) stages: BTreeMap<String, BTreeMap<String, Distribution>>,
    confidence: f64,
}

/// One usable run.
#[derive(Debug, Clone)]
pub(crate) struct Repetition {
    pub(crate) run: Run,
    pub(crate) point: OperatingPoint,
    /// Quantiles of the clients' response time in seconds, in the order of [`PERCENTILES`].
    pub(crate) percentiles_s: Vec<f64>,
    pub(crate) counts: Counts,
    /// By operation: completed per second, and mean response time in seconds.
    pub(crate) operations: BTreeMap<String, (f64, f64)>,
    pub(crate) backends: Vec<BackendLoad>,
    /// Completed per second in each second of the measured window.
    pub(crate) seconds: Vec<(f64, f64)>,
    /// Busiest generator thread: CPU time over wall time.
    pub(crate) generator_busy: Option<f64>,
    /// 99th percentile of the generators' lateness.
    pub(crate) lateness_p99_s: Option<f64>,
}

/// What happened to the requests of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) completed: u64,
    pub(crate) errors: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl Counts {
    pub(crate) fn miss_rate(self) -> Option<f64> {
        kendall_units::ratio(self.misses, self.hits + self.misses)
    }

    pub(crate) fn error_rate(self) -> Option<f64> {
        kendall_units::ratio(self.errors, self.completed + self.errors)
    }
}

/// What one instance of the first tier sent to one of its backends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BackendLoad {
    pub(crate) tier: String,
    pub(crate) instance: u32,
    pub(crate) backend: usize,
    pub(crate) requests: u64,
    pub(crate) keys: u64,
    pub(crate) errors: u64,
    pub(crate) backend_time_mean_s: Option<f64>,
}

impl Data {
    /// Reads a folder of results.
    pub(crate) fn read(results: &Results) -> Result<Self, StoreError> {
        let study = results.study()?;
        let mut runs = results.runs()?;
        runs.sort_by_key(|run| (run.started_unix_ns, run.position, run.attempt));
        let latest = results.latest_runs()?;
        let factors = varied(&latest);
        let mut configurations = Vec::new();
        for runs in by_configuration(&latest) {
            configurations.push(Configuration::read(results, &runs, study.confidence)?);
        }
        let load = load_factor(&factors, &configurations);
        let curves = load
            .as_ref()
            .map_or_else(Vec::new, |load| curves(&configurations, &factors, &load.key));
        let searches = results.searches()?;
        let traces = Vec::new();
        let mut data =
            Self { study, runs, configurations, factors, load, curves, searches, traces };
        data.traces = data.traces_of_fastest(results)?;
        Ok(data)
    }

    fn traces_of_fastest(&self, results: &Results) -> Result<Vec<Trace>, StoreError> {
        let runs = self.fastest().into_iter().flat_map(|c| &c.repetitions);
        runs.map(|repetition| trace::of(results, &results.measured(repetition.run.id)?)).collect()
    }

    /// Attempts that may not be used.
    pub(crate) fn unusable(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.status != Status::Done)
    }

    /// Whether any run reports from inside a tier.
    pub(crate) fn has_tier(&self) -> bool {
        self.configurations.iter().any(|c| c.point.first_tier().is_some())
    }

    /// Most repetitions of any configuration.
    pub(crate) fn repetitions(&self) -> usize {
        self.configurations.iter().map(|c| c.repetitions.len()).max().unwrap_or(0)
    }

    /// The configuration of highest mean throughput.
    pub(crate) fn fastest(&self) -> Option<&Configuration> {
        self.configurations.iter().max_by(|a, b| a.throughput().total_cmp(&b.throughput()))
    }

    /// Configurations of a curve, by rising load.
    pub(crate) fn along<'a>(
        &'a self,
        curve: &'a Curve,
    ) -> impl Iterator<Item = &'a Configuration> + 'a {
        curve.configurations.iter().map(|&index| &self.configurations[index])
    }

    /// Levels of one configuration, for people.
    pub(crate) fn name_of(&self, configuration: &Configuration) -> String {
        let levels: Vec<String> = self
            .factors
            .iter()
            .filter_map(|factor| configuration.level(&factor.key))
            .map(|level| format!("{} {}", short(&level.factor), level.text))
            .collect();
        if levels.is_empty() { "the only configuration".to_owned() } else { levels.join(", ") }
    }
}

impl Configuration {
    fn read(results: &Results, runs: &[&Run], confidence: f64) -> Result<Self, StoreError> {
        let mut repetitions = Vec::new();
        let mut client = Histogram::new();
        let mut tier: Option<Histogram> = None;
        let mut operations: BTreeMap<String, Histogram> = BTreeMap::new();
        let mut stages: BTreeMap<String, BTreeMap<String, Histogram>> = BTreeMap::new();
        for run in runs {
            let measured = results.measured(run.id)?;
            client.add(&measured.response_time);
            for (name, counts) in &measured.operations {
                operations.entry(name.clone()).or_default().add(&counts.response_time);
            }
            if let Some(first) = point::first_tier(&measured) {
                let merged = tier.get_or_insert_with(Histogram::new);
                for instance in measured.tiers.iter().filter(|t| t.tier == first) {
                    merged.add(&instance.period.stage(stage::RESPONSE_TIME));
                    for (request, of) in &instance.period.requests {
                        let sums = stages.entry(request.clone()).or_default();
                        for (stage, times) in &of.stages {
                            sums.entry(stage.clone()).or_default().add(times);
                        }
                    }
                }
            }
            repetitions.push(Repetition::new(results, measured)?);
        }
        let points: Vec<&OperatingPoint> = repetitions.iter().map(|r| &r.point).collect();
        Ok(Self {
            levels: runs.first().map(|run| run.factors.clone()).unwrap_or_default(),
            point: point::mean(&points),
            client: Distribution::of(&client),
            operations: operations
                .into_iter()
                .map(|(name, histogram)| (name, Distribution::of(&histogram)))
                .collect(),
            tier: tier.filter(|h| h.count() > 0).map(|histogram| Distribution::of(&histogram)),
            stages: stages.into_iter().map(|(request, of)| (request, summaries(of))).collect(),
            repetitions,
            confidence,
        })
    }

    /// Mean over the repetitions of what `value` takes from each, with its interval; `None` where
    /// no repetition has it.
    pub(crate) fn estimate(&self, value: impl Fn(&Repetition) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> =
            self.repetitions.iter().filter_map(value).filter(|v| v.is_finite()).collect();
        mean_interval(&values, self.confidence).ok()
    }

    /// X at the clients, with the doubts of its runs.
    pub(crate) fn throughput_estimate(&self) -> Option<Estimate> {
        let estimate = self.estimate(|repetition| Some(repetition.point.client.throughput_per_s));
        estimate.map(|estimate| self.with_doubts(estimate))
    }

    /// R at the clients, with the doubts of its runs.
    pub(crate) fn response_estimate(&self) -> Option<Estimate> {
        let estimate = self.estimate(|repetition| Some(repetition.point.client.response_time_s));
        estimate.map(|estimate| self.with_doubts(estimate))
    }

    /// One of the [`PERCENTILES`] of the clients' response time; `None` where the runs hold too few
    /// requests for it.
    pub(crate) fn percentile_estimate(&self, place: usize) -> Option<Estimate> {
        self.client.enough_for(place).ok()?;
        self.estimate(|repetition| repetition.percentiles_s.get(place).copied())
    }

    /// Every doubt that a run of it carries, once a kind, with how many runs carry it.
    fn with_doubts(&self, estimate: Estimate) -> Estimate {
        let lists = self.repetitions.iter().map(|repetition| repetition.run.caveats.as_slice());
        let of = kendall_units::whole_u64(exact_f64(self.repetitions.len()));
        Caveat::by_kind(lists).into_iter().fold(estimate, |estimate, (caveat, runs)| {
            estimate.doubt(Caveat::InRuns { what: Box::new(caveat.clone()), runs, of, set: None })
        })
    }

    pub(crate) fn throughput(&self) -> f64 {
        self.point.client.throughput_per_s
    }

    pub(crate) fn level(&self, key: &str) -> Option<&FactorLevel> {
        self.levels.iter().find(|level| level.factor == key)
    }

    /// What happened over all repetitions.
    pub(crate) fn counts(&self) -> Counts {
        self.repetitions.iter().fold(Counts::default(), |sum, repetition| Counts {
            completed: sum.completed + repetition.counts.completed,
            errors: sum.errors + repetition.counts.errors,
            hits: sum.hits + repetition.counts.hits,
            misses: sum.misses + repetition.counts.misses,
        })
    }
}

impl Repetition {
    fn new(results: &Results, measured: Measured) -> Result<Self, StoreError> {
        let operations = measured
            .operations
            .iter()
            .map(|(name, counts)| (name.clone(), per_operation(counts, measured.window.length_s())))
            .collect();
        let mut lateness = Histogram::new();
        for generator in &measured.generators {
            lateness.add(&generator.lateness);
        }
        Ok(Self {
            point: point::of(&measured),
            percentiles_s: PERCENTILES
                .iter()
                .map(|&p| seconds(measured.response_time.quantile(p)).unwrap_or(f64::NAN))
                .collect(),
            counts: counts(&measured.operations),
            operations,
            backends: backends(&measured),
            seconds: throughput_by_second(results, &measured)?,
            generator_busy: generator_busy(&measured),
            lateness_p99_s: seconds(lateness.quantile(0.99)),
            run: measured.run,
        })
    }
}

/// Distributions without their steps of 0.1 ms, of those that have any time.
fn summaries(stages: BTreeMap<String, Histogram>) -> BTreeMap<String, Distribution> {
    let seen = stages.into_iter().filter(|(_, times)| times.count() > 0);
    let summary = |times: &Histogram| Distribution { steps: Vec::new(), ..Distribution::of(times) };
    seen.map(|(stage, times)| (stage, summary(&times))).collect()
}

/// `8 workers, placement hash`; `all` where there are no levels.
pub(crate) fn name_of_levels(levels: &[&FactorLevel]) -> String {
    let names: Vec<String> = levels
        .iter()
        .map(|level| match level.number {
            // `8 workers`, but `batch 8`.
            Some(_) if short(&level.factor).ends_with('s') => {
                format!("{} {}", level.text, short(&level.factor))
            }
            _ => format!("{} {}", short(&level.factor), level.text),
        })
        .collect();
    if names.is_empty() { "all".to_owned() } else { names.join(", ") }
}

/// The part of a dotted key that tells: `system.workers` is `workers`.
pub(crate) fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn seconds(nanoseconds: Option<u64>) -> Option<f64> {
    nanoseconds.map(|n| kendall_units::Seconds::from_nanos(n).get())
}

fn per_operation(counts: &OperationCounts, length_s: f64) -> (f64, f64) {
    let mean = counts.response_time.mean().unwrap_or(f64::NAN) / 1e9;
    (exact_f64(counts.completed) / length_s, mean)
}

fn counts(operations: &BTreeMap<String, OperationCounts>) -> Counts {
    operations.values().fold(Counts::default(), |sum, counts| Counts {
        completed: sum.completed + counts.completed,
        errors: sum.errors + counts.errors.values().sum::<u64>(),
        hits: sum.hits + counts.hits,
        misses: sum.misses + counts.misses,
    })
}

fn backends(measured: &Measured) -> Vec<BackendLoad> {
    let Some(first) = point::first_tier(measured) else { return Vec::new() };
    let instances = measured.tiers.iter().filter(|tier| tier.tier == first);
    instances
        .flat_map(|tier| {
            tier.period.backends.iter().enumerate().map(|(backend, load)| BackendLoad {
                tier: tier.tier.clone(),
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

/// Throughput in the whole seconds of the measured window, over all generators.
fn throughput_by_second(
    results: &Results,
    measured: &Measured,
) -> Result<Vec<(f64, f64)>, StoreError> {
    const SECOND_NS: u64 = 1_000_000_000;
    let window = &measured.window;
    let mut completed: BTreeMap<u64, u64> = BTreeMap::new();
    for generator in results.generators(measured.run.id, Some(Extent::Second))? {
        for period in generator.operations {
            let middle = period.from_ns / 2 + period.to_ns / 2;
            let whole = period.to_ns.saturating_sub(period.from_ns) >= SECOND_NS * 9 / 10;
            if whole && middle >= window.from_ns && middle < window.to_ns {
                let place = (middle - window.from_ns) / SECOND_NS;
                *completed.entry(place).or_default() += period.counts.completed;
            }
        }
    }
    Ok(completed.into_iter().map(|(at, count)| (exact_f64(at), exact_f64(count))).collect())
}

fn generator_busy(measured: &Measured) -> Option<f64> {
    let threads = measured.generators.iter().flat_map(|generator| &generator.threads);
    threads
        .filter_map(|t| kendall_units::ratio(t.cpu_user_ns + t.cpu_system_ns, t.wall_ns))
        .max_by(f64::total_cmp)
}

fn by_configuration(runs: &[Run]) -> Vec<Vec<&Run>> {
    let mut groups: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.is_usable() && run.measured.is_some()) {
        groups.entry(run.configuration).or_default().push(run);
    }
    groups.into_values().collect()
}

fn varied(runs: &[Run]) -> Vec<Factor> {
    let mut factors: Vec<Factor> = Vec::new();
    for level in runs.iter().flat_map(|run| &run.factors) {
        match factors.iter_mut().find(|factor| factor.key == level.factor) {
            Some(factor) if factor.levels.iter().all(|known| known.text != level.text) => {
                factor.levels.push(level.clone());
            }
            Some(_) => {}
            None => {
                factors.push(Factor { key: level.factor.clone(), levels: vec![level.clone()] });
            }
        }
    }
    for factor in &mut factors {
        let numeric = factor.levels.iter().all(|level| level.number.is_some());
        factor.levels.sort_by(|a, b| match (a.number, b.number) {
            (Some(a), Some(b)) if numeric => a.total_cmp(&b),
            _ => a.level.cmp(&b.level),
        });
    }
    factors.retain(|factor| factor.levels.len() > 1);
    factors
}

/// Keys that are a load, with their label.
const LOADS: [(&str, &str); 4] = [
    ("workload.clients", "clients"),
    ("workload.rate", "arrival rate (1/s)"),
    ("workload.arrival_rate", "arrival rate (1/s)"),
    ("workload.connections", "connections"),
];

fn load_factor(factors: &[Factor], configurations: &[Configuration]) -> Option<LoadFactor> {
    // Two levels are a factor of an experiment, not a curve.
    let curve = |key: &str| {
        configurations.len() > 2 && factors.iter().any(|f| f.key == key && f.levels.len() > 2)
    };
    let found = LOADS.iter().find(|(key, _)| curve(key));
    found.map(|(key, label)| LoadFactor { key: (*key).to_owned(), label: (*label).to_owned() })
}

fn curves(configurations: &[Configuration], factors: &[Factor], load: &str) -> Vec<Curve> {
    let mut curves: Vec<(Vec<&str>, Curve)> = Vec::new();
    for (index, configuration) in configurations.iter().enumerate() {
        let others = || factors.iter().filter(|factor| factor.key != load);
        let levels: Vec<&FactorLevel> =
            others().filter_map(|factor| configuration.level(&factor.key)).collect();
        let key: Vec<&str> = levels.iter().map(|level| level.text.as_str()).collect();
        if let Some((_, curve)) = curves.iter_mut().find(|(known, _)| *known == key) {
            curve.configurations.push(index);
            continue;
        }
        curves.push((key, Curve { name: name_of_levels(&levels), configurations: vec![index] }));
    }
    let mut curves: Vec<Curve> = curves.into_iter().map(|(_, curve)| curve).collect();
    for curve in &mut curves {
        let load_of = |&index: &usize| configurations[index].level(load).and_then(|l| l.number);
        curve
            .configurations
            .sort_by(|a, b| load_of(a).unwrap_or(0.0).total_cmp(&load_of(b).unwrap_or(0.0)));
    }
    let first_levels = |curve: &Curve| -> Vec<f64> {
        let levels = &configurations[curve.configurations[0]].levels;
        levels
            .iter()
            .filter(|level| level.factor != load)
            .map(|level| level.number.unwrap_or_else(|| f64::from(level.level)))
            .collect()
    };
    curves.sort_by(|a, b| {
        first_levels(a).partial_cmp(&first_levels(b)).unwrap_or(std::cmp::Ordering::Equal)
    });
    curves
}
