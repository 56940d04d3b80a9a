//! All usable repetitions of one combination of levels, and the estimates over them.

use std::collections::BTreeMap;

use kendall_fit::measured::OperatingPoint;
use kendall_fit::saturation::PLATEAU;
use kendall_protocols::snapshot::stage;
use kendall_stats::estimate::{Caveat, Estimate};
use kendall_stats::histogram::Histogram;
use kendall_stats::sample::{
    SampleError, enough_for, mean_interval, needed_for, positive_interval, positive_mean,
    positive_weighted_mean, weighted_mean,
};
use kendall_stats::within_run::WithinRun;
use kendall_store::{
    Extent, FactorLevel, Measured, OperationCounts, Period, Results, Run, StoreError,
};
use kendall_units::exact_f64;

use crate::alone;
use crate::point;
use crate::repetition::seconds;
use crate::trace;
use crate::{Counts, Distribution, Overview, Repetition};

/// All usable repetitions of one combination of levels.
#[derive(Debug)]
pub struct Configuration {
    /// Its number in the design.
    pub number: u32,
    pub levels: Vec<FactorLevel>,
    pub repetitions: Vec<Repetition>,
    /// All runs together: rates are means over runs, times are means over requests.
    pub point: OperatingPoint,
    /// Clients' response times, all repetitions and operations.
    pub client: Distribution,
    /// Clients' response times by operation.
    pub operations: BTreeMap<String, Distribution>,
    /// What happened to parts of requests, such as those of a sequence, by name.
    pub steps: BTreeMap<String, OperationCounts>,
    /// Response times at the first tier.
    pub tier: Option<Distribution>,
    /// Time in the queue of the first tier.
    pub waiting: Option<Distribution>,
    /// Time in the stages of the first tier, by request type and stage.
    pub stages: BTreeMap<String, BTreeMap<String, Distribution>>,
    /// What clients saw of its first run, period by period.
    pub first_run: Overview,
    mean: Pooled,
    quantiles: Vec<(f64, Pooled)>,
    alone: Option<WithinRun>,
    confidence: f64,
}

/// A value of all runs together, and of all but one, for each run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pooled {
    whole: Option<f64>,
    without: Vec<f64>,
}

impl Pooled {
    fn of(
        whole: &Histogram,
        without: &[Histogram],
        value: impl Fn(&Histogram) -> Option<f64>,
    ) -> Self {
        Self { whole: value(whole), without: without.iter().filter_map(value).collect() }
    }

    fn estimate(&self, confidence: f64) -> Option<Result<Estimate, SampleError>> {
        Some(positive_interval(self.whole?, &self.without, confidence))
    }
}

/// What is added up over the runs of a configuration.
#[derive(Default)]
struct Sums {
    operations: BTreeMap<String, Histogram>,
    steps: BTreeMap<String, OperationCounts>,
    tier: Option<Histogram>,
    waiting: Histogram,
    stages: BTreeMap<String, BTreeMap<String, Histogram>>,
}

impl Sums {
    fn add(&mut self, measured: &Measured) {
        for (name, counts) in &measured.operations {
            self.operations.entry(name.clone()).or_default().add(&counts.response_time);
        }
        for (name, counts) in &measured.steps {
            self.steps.entry(name.clone()).or_default().add(counts);
        }
        let Some(first) = point::first_tier(measured) else { return };
        let merged = self.tier.get_or_insert_with(Histogram::new);
        for instance in measured.tiers.iter().filter(|t| t.tier == first) {
            merged.add(&instance.period.stage(stage::RESPONSE_TIME));
            self.waiting.add(&instance.period.stage(stage::WAITING_TIME));
            for (request, of) in &instance.period.requests {
                let sums = self.stages.entry(request.clone()).or_default();
                for (stage, times) in &of.stages {
                    sums.entry(stage.clone()).or_default().add(times);
                }
            }
        }
    }
}

impl Configuration {
    pub(crate) fn read(
        results: &Results,
        runs: &[&Run],
        confidence: f64,
        quantiles: &[f64],
    ) -> Result<Self, StoreError> {
        let mut repetitions = Vec::new();
        let mut sums = Sums::default();
        let mut times: Vec<Histogram> = Vec::new();
        let mut first_run = None;
        let mut last_seconds: Vec<Period> = Vec::new();
        for run in runs {
            let measured = results.measured(run.id)?;
            sums.add(&measured);
            times.push(measured.response_time.clone());
            let generators = results.generators(run.id, Some(Extent::Second))?;
            first_run.get_or_insert_with(|| trace::overview(&generators, &measured.window));
            let seconds = measured.window.seconds(&generators);
            repetitions.push(Repetition::new(measured, &seconds, quantiles));
            last_seconds = seconds.into_values().collect();
        }
        let whole = Histogram::merged(&times);
        let without: Vec<Histogram> = if times.len() < 2 {
            Vec::new()
        } else {
            (0..times.len())
                .map(|left| {
                    let rest = times.iter().enumerate().filter(|(place, _)| *place != left);
                    Histogram::merged(rest.map(|(_, one)| one))
                })
                .collect()
        };
        let points: Vec<&OperatingPoint> = repetitions.iter().map(|r| &r.point).collect();
        let client = Distribution::of(&whole);
        let mut point = point::together(&points);
        if client.count > 0 {
            point.client.response_time_s = client.mean_s;
        }
        let quantile = |&q: &f64| (q, Pooled::of(&whole, &without, |h| seconds(h.quantile(q))));
        let mut read = Self {
            number: runs.first().map_or(0, |run| run.configuration),
            levels: runs.first().map(|run| run.factors.clone()).unwrap_or_default(),
            point,
            client,
            operations: sums
                .operations
                .iter()
                .map(|(n, h)| (n.clone(), Distribution::of(h)))
                .collect(),
            steps: sums.steps,
            tier: sums.tier.filter(|h| h.count() > 0).map(|histogram| Distribution::of(&histogram)),
            waiting: (sums.waiting.count() > 0).then(|| Distribution::of(&sums.waiting)),
            stages: sums.stages.into_iter().map(|(request, of)| (request, summaries(of))).collect(),
            mean: Pooled::of(&whole, &without, |h| h.mean().map(|ns| ns / 1e9)),
            quantiles: quantiles.iter().map(quantile).collect(),
            first_run: first_run.unwrap_or_default(),
            alone: None,
            repetitions,
            confidence,
        };
        // A job tells its makespan; what its seconds differ by is its beginning and its end.
        if matches!(read.repetitions.as_slice(), [only] if !only.is_job) {
            read.alone = alone::of(&read, &last_seconds, quantiles, confidence);
        }
        Ok(read)
    }

    /// Mean over the repetitions of what `value` takes from each, which is not negative, with its
    /// interval; `None` where no repetition has it.
    pub fn estimate(&self, value: impl Fn(&Repetition) -> Option<f64>) -> Option<Estimate> {
        positive_mean(&self.values(value), self.confidence).ok()
    }

    /// The mean over the repetitions of a difference, which may have either sign.
    pub fn difference(&self, value: impl Fn(&Repetition) -> Option<f64>) -> Option<Estimate> {
        mean_interval(&self.values(value), self.confidence).ok()
    }

    /// Mean over all that was counted in all repetitions, with its interval: `value` takes from each
    /// its own mean, which is not negative, and how many there were. For times of requests, so that
    /// they are those of [`point`](Self::point); `None` where no repetition has it.
    pub fn weighted(&self, value: impl Fn(&Repetition) -> Option<(f64, f64)>) -> Option<Estimate> {
        positive_weighted_mean(&self.pairs(value), self.confidence).ok()
    }

    /// The same of what may have either sign.
    pub fn weighted_difference(
        &self,
        value: impl Fn(&Repetition) -> Option<(f64, f64)>,
    ) -> Option<Estimate> {
        weighted_mean(&self.pairs(value), self.confidence).ok()
    }

    /// The mean time in a stage of the first tier that reports, over all times that it recorded.
    pub fn tier_time(&self, stage: &str) -> Option<Estimate> {
        self.weighted(|repetition| {
            let tier = repetition.point.first_tier()?;
            Some((tier.time_s(stage)?, tier.recorded(stage)))
        })
    }

    fn pairs(&self, value: impl Fn(&Repetition) -> Option<(f64, f64)>) -> Vec<(f64, f64)> {
        let finite = |(value, weight): &(f64, f64)| value.is_finite() && weight.is_finite();
        self.repetitions.iter().filter_map(value).filter(finite).collect()
    }

    fn values(&self, value: impl Fn(&Repetition) -> Option<f64>) -> Vec<f64> {
        self.repetitions.iter().filter_map(value).filter(|v| v.is_finite()).collect()
    }

    /// X at the clients, with the caveats of its runs.
    pub fn throughput_estimate(&self) -> Option<Estimate> {
        let estimate = self.estimate(|repetition| Some(repetition.point.client.throughput_per_s));
        estimate.map(|estimate| self.with_doubts(estimate))
    }

    /// By how many requests a second the queue of an open loop grows: what was offered beyond what was answered or
    /// failed. `None` in a closed loop, and where nothing says that there is no steady state.
    pub fn queue_growth(&self) -> Option<Estimate> {
        let growth = self.difference(|repetition| {
            let failed = repetition.counts.error_rate().unwrap_or(0.0);
            let ended = repetition.point.client.throughput_per_s / (1.0 - failed);
            Some(repetition.point.offered_per_s()? - ended)
        })?;
        let certain = growth.interval.is_none_or(|interval| interval.low > 0.0);
        let grows = growth.center > PLATEAU * self.point.offered_per_s()?;
        (certain && grows).then_some(growth)
    }

    /// R at the clients: the mean of all requests of all runs, with the caveats of its runs.
    pub fn response_estimate(&self) -> Option<Estimate> {
        let estimate = self.mean.estimate(self.confidence)?.ok()?;
        Some(self.with_doubts(estimate))
    }

    /// Whether its load is a job with an end.
    pub fn is_job(&self) -> bool {
        self.repetitions.iter().all(|repetition| repetition.is_job)
    }

    /// Of jobs with an end, the time from their start to their end; `None` for other loads.
    pub fn makespan_estimate(&self) -> Option<Estimate> {
        let makespan = || self.estimate(|repetition| Some(repetition.point.duration_s));
        self.is_job().then(makespan).flatten()
    }

    /// A percentile of the clients' response time, of all requests of all runs.
    ///
    /// # Errors
    /// [`Caveat::TooFewSamples`] where all runs together hold too few requests for it, or where
    /// this quantile was not read.
    pub fn percentile_estimate(&self, quantile: f64) -> Result<Estimate, Caveat> {
        enough_for(quantile, self.client.count)?;
        let known = self.quantiles.iter().find(|(known, _)| known.total_cmp(&quantile).is_eq());
        let none =
            || Caveat::TooFewSamples { quantile, effective: 0.0, need: needed_for(quantile) };
        let estimate = known.and_then(|(_, pooled)| pooled.estimate(self.confidence));
        estimate.and_then(Result::ok).ok_or_else(none)
    }

    /// What a run that is the only one of its configuration says of itself, with intervals from its own
    /// seconds: what differs between runs is not in them, so they decide nothing. `None` where there are several
    /// runs, and of a job, whose seconds are not alike.
    pub fn alone(&self) -> Option<&WithinRun> {
        self.alone.as_ref()
    }

    /// Every kind of caveat of its runs once, with the number of runs that have it; but for too few requests
    /// in a run for a percentile of that run, and what is no doubt.
    fn with_doubts(&self, estimate: Estimate) -> Estimate {
        let of_another = |caveat: &Caveat| match caveat {
            Caveat::InRuns { what, .. } => matches!(**what, Caveat::TooFewSamples { .. }),
            _ => false,
        };
        let is_its = |caveat: &Caveat| !of_another(caveat) && !caveat.is_remark();
        let doubts = self.doubts().into_iter().filter(is_its);
        doubts.fold(estimate, Estimate::doubt)
    }

    /// Every kind of caveat of its runs once.
    pub fn doubts(&self) -> Vec<Caveat> {
        let lists = self.repetitions.iter().map(|repetition| repetition.run.caveats.as_slice());
        Caveat::in_runs(lists, None)
    }

    pub fn throughput(&self) -> f64 {
        self.point.client.throughput_per_s
    }

    /// Standard deviation of the throughput of single seconds about the mean of their run, over all
    /// runs; `None` below three seconds.
    pub fn throughput_deviation_per_s(&self) -> Option<f64> {
        let (mut squares, mut degrees) = (0.0, 0.0);
        for repetition in self.repetitions.iter().filter(|r| r.seconds.len() > 1) {
            let count = exact_f64(repetition.seconds.len());
            let mean = repetition.seconds.iter().map(|(_, x)| x).sum::<f64>() / count;
            squares += repetition.seconds.iter().map(|(_, x)| (x - mean).powi(2)).sum::<f64>();
            degrees += count - 1.0;
        }
        (degrees >= 2.0).then(|| (squares / degrees).sqrt())
    }

    pub fn level(&self, key: &str) -> Option<&FactorLevel> {
        self.levels.iter().find(|level| level.factor == key)
    }

    /// What happened over all repetitions.
    pub fn counts(&self) -> Counts {
        self.repetitions.iter().fold(Counts::default(), |sum, repetition| Counts {
            completed: sum.completed + repetition.counts.completed,
            errors: sum.errors + repetition.counts.errors,
            hits: sum.hits + repetition.counts.hits,
            misses: sum.misses + repetition.counts.misses,
        })
    }

    /// Replies of failed HTTP requests by status code, over all repetitions and their whole loads.
    pub fn failed_statuses(&self) -> BTreeMap<u16, u64> {
        let mut statuses = BTreeMap::new();
        for (status, count) in self.repetitions.iter().flat_map(|one| &one.failed_statuses) {
            *statuses.entry(*status).or_default() += count;
        }
        statuses
    }
}

/// Distributions without their steps of 0.1 ms, of those that have any time.
fn summaries(stages: BTreeMap<String, Histogram>) -> BTreeMap<String, Distribution> {
    let seen = stages.into_iter().filter(|(_, times)| times.count() > 0);
    let summary = |times: &Histogram| Distribution { steps: Vec::new(), ..Distribution::of(times) };
    seen.map(|(stage, times)| (stage, summary(&times))).collect()
}
