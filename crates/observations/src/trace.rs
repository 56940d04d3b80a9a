//! What happened when, within the runs of one configuration.

use std::collections::BTreeMap;

use kendall_protocols::snapshot::stage;
use kendall_protocols::topology::TierId;
use kendall_stats::histogram::Histogram;
use kendall_store::{Extent, Measured, Results, StoreError, TierPeriod};
use kendall_units::exact_f64;

use crate::point;

/// Widths of periods in seconds: the first of which there are not too many.
const WIDTHS_S: [u64; 9] = [1, 2, 5, 10, 20, 30, 60, 300, 600];

/// Periods of a run at most, beyond which they are made wider.
const MOST_PERIODS: u64 = 60;

/// One run, period by period.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Number of the repetition.
    pub repetition: u32,
    /// Length of a period.
    pub width_s: u64,
    /// One after the other.
    pub periods: Vec<TracePeriod>,
    /// Tiers that have workers or name stages of their own, by when a period began, in seconds.
    pub pools: BTreeMap<u64, BTreeMap<String, TracedPool>>,
}

/// What a tier did in a period, all instances together.
#[derive(Debug, Clone, Default)]
pub struct TracedPool {
    /// Times of requests in the stages that it names beside those of every tier, by their names, and
    /// their waiting for a worker.
    pub stages: BTreeMap<String, Histogram>,
    /// By how many workers of an instance were busy, in the mean of about a second, rounded: for how
    /// many nanoseconds. Empty where there is no pool of workers.
    pub busy: BTreeMap<u32, u64>,
    /// How many tiers are asked on the way to it, itself included.
    pub depth: usize,
}

/// What happened in one period.
#[derive(Debug, Clone, Default)]
pub struct TracePeriod {
    /// Since the measured window began.
    pub from_s: f64,
    /// Completed a second.
    pub throughput_per_s: f64,
    /// R.
    pub response_time_s: Option<f64>,
    /// 99th percentile of the response time.
    pub p99_s: Option<f64>,
    /// All response times of the period.
    pub times: Histogram,
    /// Requests that failed.
    pub errors: u64,
    /// In the first tier.
    pub tier: TracedTier,
}

/// Mean times in the stages of the first tier, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct TracedTier {
    /// R.
    pub response_time_s: Option<f64>,
    /// W.
    pub waiting_time_s: Option<f64>,
    /// S.
    pub service_time_s: Option<f64>,
    /// The part of S spent waiting for backends.
    pub backend_time_s: Option<f64>,
}

/// What clients did in a period, while it is added up.
#[derive(Default)]
struct Clients {
    /// Completed, and the nanoseconds that were looked at, by generator.
    generators: BTreeMap<u32, (u64, u64)>,
    response_time: Histogram,
    errors: u64,
}

/// The period of a width that holds most of `from_ns` to `to_ns`, if it lies in the window.
fn place(measured: &Measured, width_ns: u64, from_ns: u64, to_ns: u64) -> Option<u64> {
    let middle = from_ns / 2 + to_ns / 2;
    let window = &measured.window;
    (middle >= window.from_ns && middle < window.to_ns)
        .then(|| (middle - window.from_ns) / width_ns)
}

/// The run that `measured` is of.
pub(crate) fn of(results: &Results, measured: &Measured) -> Result<Trace, StoreError> {
    let length = kendall_units::whole_u64(measured.window.length_s());
    let width_s = WIDTHS_S.into_iter().find(|width| length / width <= MOST_PERIODS);
    let width_s = width_s.unwrap_or(WIDTHS_S[WIDTHS_S.len() - 1]);
    let width_ns = width_s * 1_000_000_000;
    let clients = clients(results, measured, width_ns)?;
    let tiers = tiers(results, measured, width_ns)?;
    let periods = clients.into_iter().map(|(number, clients)| TracePeriod {
        from_s: exact_f64(number * width_s),
        throughput_per_s: clients
            .generators
            .values()
            .map(|(completed, ns)| exact_f64(*completed) / (exact_f64(*ns).max(1.0) / 1e9))
            .sum(),
        response_time_s: clients.response_time.mean().map(|ns| ns / 1e9),
        p99_s: clients.response_time.quantile(0.99).map(|ns| exact_f64(ns) / 1e9),
        errors: clients.errors,
        times: clients.response_time,
        tier: tiers.get(&number).copied().unwrap_or_default(),
    });
    let pools = pools(results, measured, width_ns)?;
    let pools = pools.into_iter().map(|(number, pools)| (number * width_s, pools)).collect();
    let repetition = measured.run.repetition;
    Ok(Trace { repetition, width_s, periods: periods.collect(), pools })
}

fn clients(
    results: &Results,
    measured: &Measured,
    width_ns: u64,
) -> Result<BTreeMap<u64, Clients>, StoreError> {
    let mut periods: BTreeMap<u64, Clients> = BTreeMap::new();
    for generator in results.generators(measured.run.id, Some(Extent::Second))? {
        let mut last = None;
        for row in &generator.operations {
            let Some(place) = place(measured, width_ns, row.from_ns, row.to_ns) else { continue };
            let period = periods.entry(place).or_default();
            period.response_time.add(&row.counts.response_time);
            period.errors += row.counts.errors.values().sum::<u64>();
            let sum = period.generators.entry(generator.generator).or_default();
            sum.0 += row.counts.completed;
            // Rows of several operations share a second.
            if last != Some(row.from_ns) {
                sum.1 += row.to_ns.saturating_sub(row.from_ns);
                last = Some(row.from_ns);
            }
        }
    }
    Ok(periods)
}

/// Stages that every tier has.
const COMMON: [&str; 5] = [
    stage::WAITING_TIME,
    stage::SERVICE_TIME,
    stage::BACKEND_TIME,
    stage::RESPONSE_TIME,
    stage::CONNECTION_WAIT_TIME,
];

fn pools(
    results: &Results,
    measured: &Measured,
    width_ns: u64,
) -> Result<BTreeMap<u64, BTreeMap<String, TracedPool>>, StoreError> {
    let mut found: BTreeMap<u64, BTreeMap<String, TracedPool>> = BTreeMap::new();
    for tier in results.tiers(measured.run.id, Some(Extent::Second))? {
        let depth = measured.graph.way_to(&TierId::stored(tier.tier.as_str())).len();
        for period in tier.periods {
            let all = || period.requests.values().flat_map(|requests| &requests.stages);
            let has_own = all().any(|(name, _)| !COMMON.contains(&name.as_str()));
            let at = place(measured, width_ns, period.from_ns, period.to_ns);
            let Some(at) = at.filter(|_| has_own || period.workers > 0) else { continue };
            let pool = found.entry(at).or_default().entry(tier.tier.clone()).or_default();
            pool.depth = depth;
            for (name, times) in all().filter(|_| has_own) {
                if name == stage::WAITING_TIME || !COMMON.contains(&name.as_str()) {
                    pool.stages.entry(name.clone()).or_default().add(times);
                }
            }
            if period.workers > 0 {
                let busy = kendall_units::whole_u64(period.workers_busy.mean.round());
                let busy = u32::try_from(busy).unwrap_or(u32::MAX);
                let length = period.to_ns.saturating_sub(period.from_ns);
                *pool.busy.entry(busy).or_default() += length;
            }
        }
    }
    Ok(found)
}

fn tiers(
    results: &Results,
    measured: &Measured,
    width_ns: u64,
) -> Result<BTreeMap<u64, TracedTier>, StoreError> {
    let Some(first) = point::first_tier(measured) else { return Ok(BTreeMap::new()) };
    let mut periods: BTreeMap<u64, Vec<TierPeriod>> = BTreeMap::new();
    for tier in results.tiers(measured.run.id, Some(Extent::Second))? {
        for period in tier.periods.into_iter().filter(|_| tier.tier == first) {
            if let Some(place) = place(measured, width_ns, period.from_ns, period.to_ns) {
                periods.entry(place).or_default().push(period);
            }
        }
    }
    let mean = |periods: &[TierPeriod], stage: &str| {
        let mut merged = Histogram::new();
        for period in periods {
            merged.add(&period.stage(stage));
        }
        merged.mean().map(|ns| ns / 1e9)
    };
    let traced = periods.into_iter().map(|(place, periods)| {
        let tier = TracedTier {
            response_time_s: mean(&periods, stage::RESPONSE_TIME),
            waiting_time_s: mean(&periods, stage::WAITING_TIME),
            service_time_s: mean(&periods, stage::SERVICE_TIME),
            backend_time_s: mean(&periods, stage::BACKEND_TIME),
        };
        (place, tier)
    });
    Ok(traced.collect())
}
