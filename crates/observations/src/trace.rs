//! What happened when, within a run.

use std::collections::BTreeMap;

use kendall_protocols::snapshot::stage;
use kendall_protocols::topology::TierId;
use kendall_stats::histogram::Histogram;
use kendall_store::{
    Extent, Generator, Measured, MeasuredWindow, Period, Results, StoreError, Tier, TierPeriod,
};
use kendall_units::exact_f64;

use crate::point;

/// Widths of periods in seconds: the first of which there are not too many.
const WIDTHS_S: [u64; 9] = [1, 2, 5, 10, 20, 30, 60, 300, 600];

/// Periods of a run at most, beyond which they are made wider.
const MOST_PERIODS: u64 = 60;

/// One run, period by period.
#[derive(Debug, Clone)]
pub struct Trace {
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

/// One run as its clients saw it, period by period: small, whatever the length of the run.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// Length of a period.
    pub width_s: u64,
    /// One after the other.
    pub periods: Vec<ClientPeriod>,
}

/// What clients saw in one period.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientPeriod {
    /// Since the measured window began.
    pub from_s: f64,
    pub throughput_per_s: f64,
    pub response_time_s: Option<f64>,
    /// 99th percentile of the response time.
    pub p99_s: Option<f64>,
    pub errors: u64,
}

/// What happened in one period.
#[derive(Debug, Clone, Default)]
pub struct TracePeriod {
    pub clients: ClientPeriod,
    /// All response times of the period.
    pub times: Histogram,
    /// In the first tier.
    pub tier: TracedTier,
}

/// Mean times in the stages of the first tier, in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct TracedTier {
    pub response_time_s: Option<f64>,
    pub waiting_time_s: Option<f64>,
    pub service_time_s: Option<f64>,
    /// The part of S spent waiting for backends.
    pub backend_time_s: Option<f64>,
}

impl ClientPeriod {
    fn of(period: &Period, from_s: u64) -> Self {
        let times = &period.counts.response_time;
        Self {
            from_s: exact_f64(from_s),
            throughput_per_s: period.throughput_per_s(),
            response_time_s: times.mean().map(|ns| ns / 1e9),
            p99_s: times.quantile(0.99).map(|ns| exact_f64(ns) / 1e9),
            errors: period.counts.errors.values().sum(),
        }
    }
}

/// The measured window, cut into periods.
#[derive(Clone, Copy)]
struct Cut<'a> {
    window: &'a MeasuredWindow,
    width_s: u64,
}

impl<'a> Cut<'a> {
    fn of(window: &'a MeasuredWindow) -> Self {
        let length = kendall_units::whole_u64(window.length_s());
        let width_s = WIDTHS_S.into_iter().find(|width| length / width <= MOST_PERIODS);
        Self { window, width_s: width_s.unwrap_or(WIDTHS_S[WIDTHS_S.len() - 1]) }
    }

    /// The period that holds most of `from_ns` to `to_ns`, if it lies in the window.
    fn place(self, from_ns: u64, to_ns: u64) -> Option<u64> {
        self.window.place(from_ns, to_ns, self.width_s)
    }

    /// What clients did, by period.
    fn clients(self, generators: &[Generator]) -> BTreeMap<u64, Period> {
        self.window.periods(generators, self.width_s)
    }
}

/// The run that `measured` is of.
pub(crate) fn of(results: &Results, measured: &Measured) -> Result<Trace, StoreError> {
    let cut = Cut::of(&measured.window);
    let clients = cut.clients(&results.generators(measured.run.id, Some(Extent::Second))?);
    let tiers = results.tiers(measured.run.id, Some(Extent::Second))?;
    let (first, pools) = (first_tier(measured, &tiers, cut), pools(measured, &tiers, cut));
    let periods = clients.into_iter().map(|(number, clients)| TracePeriod {
        clients: ClientPeriod::of(&clients, number * cut.width_s),
        times: clients.counts.response_time,
        tier: first.get(&number).copied().unwrap_or_default(),
    });
    let pools = pools.into_iter().map(|(number, pools)| (number * cut.width_s, pools)).collect();
    let repetition = measured.run.repetition;
    Ok(Trace { repetition, width_s: cut.width_s, periods: periods.collect(), pools })
}

/// A run as its clients saw it, from its second rows.
pub(crate) fn overview(generators: &[Generator], window: &MeasuredWindow) -> Overview {
    let cut = Cut::of(window);
    let seen = |(number, period): (u64, Period)| ClientPeriod::of(&period, number * cut.width_s);
    Overview {
        width_s: cut.width_s,
        periods: cut.clients(generators).into_iter().map(seen).collect(),
    }
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
    measured: &Measured,
    tiers: &[Tier],
    cut: Cut<'_>,
) -> BTreeMap<u64, BTreeMap<String, TracedPool>> {
    let mut found: BTreeMap<u64, BTreeMap<String, TracedPool>> = BTreeMap::new();
    for tier in tiers {
        let depth = measured.graph.way_to(&TierId::stored(tier.tier.as_str())).len();
        for period in &tier.periods {
            let all = || period.requests.values().flat_map(|requests| &requests.stages);
            let has_own = all().any(|(name, _)| !COMMON.contains(&name.as_str()));
            let at = cut.place(period.from_ns, period.to_ns);
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
    found
}

/// Mean times in the first tier, by period.
fn first_tier(measured: &Measured, tiers: &[Tier], cut: Cut<'_>) -> BTreeMap<u64, TracedTier> {
    let Some(first) = point::first_tier(measured) else { return BTreeMap::new() };
    let mut periods: BTreeMap<u64, Vec<&TierPeriod>> = BTreeMap::new();
    for period in tiers.iter().filter(|tier| tier.tier == first).flat_map(|tier| &tier.periods) {
        if let Some(place) = cut.place(period.from_ns, period.to_ns) {
            periods.entry(place).or_default().push(period);
        }
    }
    let mean = |periods: &[&TierPeriod], stage: &str| {
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
    traced.collect()
}
