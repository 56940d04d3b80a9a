//! From windows to checks of the monitoring, demands, headroom and the network.

use kendall_fit::demands::{self, DemandFit, LoadPoint};
use kendall_fit::model::CONFIDENCE;
use kendall_fit::open::{
    self, ClassNetwork, ENOUGH_SPREAD, Fitted, Monitored, MonitoredTier, Monitoring, Network,
    TOLERANCE, TierMeans,
};
use kendall_queueing::model::MOST_SERVERS;
use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample;
use kendall_units::{Rate, counted, exact_f64, whole_u64};

use crate::arrivals::dispersion;
use crate::bins::{counts, square_bounds};
use crate::busy::{Capped, Counted, MOST_BUSY};
use crate::fetch::{Observed, TierSeries, asked, begins};
use crate::flow::{Flow, Verdict, flow};
use crate::grid::Grid;
use crate::growth::{Growth, Saturation, growth};
use crate::quantity::Quantity;
use crate::system::{Queues, System, Tier};
use crate::windows::{Window, Windows, present, weighted_mean as weighted};

/// Of all draws: the same monitoring gives the same answer.
const SEED: u64 = 1;

/// Windows that an analysis needs: two coefficients and a degree of freedom for each.
const FEWEST_WINDOWS: usize = 4;

/// Why a tier has no capacity although a query gives how many of its servers are busy.
pub(crate) const NO_SERVERS: &str =
    "neither the file nor a query says how many servers it has: write `servers = N`";

/// So many gaps are outages.
const FEW_GAPS: usize = 2;

/// A law whose difference is not known to within this is not checked by it.
const UNTOLD: f64 = 0.25;

pub(crate) const FORCED_FLOW: &str = "forced flow: throughput follows that of the entry";
const UNRELATED: &str = "its query for `throughput` is not of the requests that the entry sends it";
const LATE: &str = "the clocks of two monitoring systems differ, or it works on requests long after the entry has answered \
                    them";

/// A sample is that of now for so long.
const LOOKBACK_S: u64 = 300;

/// Loads that differ this little do not tell what is busy without load from what is busy with it.
///
/// # Source
/// Belsley, Kuh and Welsch 1980: from 30 on, collinearity does harm.
const HIGH_CONDITION: f64 = 30.0;
/// A utilization above this is not written out.
const MOST_PERCENT: f64 = 100.0;

#[derive(Debug, Clone)]
pub struct Analysis {
    /// All windows, with why some are left out.
    pub windows: Windows,
    /// One a tier, in the order of the system.
    pub tiers: Vec<TierAnalysis>,
    /// The same as a network is fitted to.
    pub monitored: Monitored,
    /// Checks of the monitoring.
    pub laws: Vec<LawCheck>,
    /// Tiers of which nothing tells whether they serve the requests of the entry, and why.
    pub untold: Vec<(String, String)>,
    /// What may be scraped twice, and what would tell.
    pub maybe_twice: Vec<String>,
    /// Queries that give no figures, and figures that begin late.
    pub lacking: Vec<String>,
    /// Load of now, 1/s: in the last tenth of the time (an hour at most), steady or not.
    pub rate_now_per_s: f64,
    /// Lowest and highest load of a window that is used.
    pub rates_seen_per_s: (f64, f64),
    /// The tier that saturates first, where the intervals tell; else the candidates.
    pub bottleneck: Result<usize, Vec<usize>>,
    /// The open network, or why there is none.
    pub network: Result<Network, String>,
    /// The same with the classes of the entry, or why there is none; `None` where it has no classes.
    pub class_network: Option<Result<ClassNetwork, String>>,
    /// How the load grows from day to day, where whole days were seen.
    pub growth: Result<Growth, String>,
    /// The moments that were seen.
    pub seen: Grid,
}

impl Analysis {
    /// What answers to what-if rest on.
    pub fn fitted(&self) -> Fitted<'_> {
        Fitted {
            monitored: &self.monitored,
            network: &self.network,
            classes: self.class_network.as_ref(),
            rate_now_per_s: self.rate_now_per_s,
            rates_seen_per_s: self.rates_seen_per_s,
        }
    }

    /// When a tier saturates at the growth that was seen.
    pub fn saturation(&self, tier: usize) -> Option<Saturation> {
        let growth = self.growth.as_ref().ok()?;
        let headroom = self.tiers.get(tier)?.headroom.as_ref()?;
        Some(growth.reaches(&headroom.capacity_per_s, SEED))
    }
}

#[derive(Debug, Clone)]
pub struct TierAnalysis {
    /// m; 1 where it is not told, and nothing rests on it.
    pub servers: u64,
    /// The file or a query says m.
    pub servers_told: bool,
    /// Nothing says m, which is all that its capacity lacks.
    pub lacks_servers: bool,
    /// V: requests here for one at the entry.
    pub visits: Estimate,
    /// Requests here that do not come from the entry, 1/s: they are in no visit. `None` where there are few or none.
    pub own_per_s: Option<Estimate>,
    /// D = V·S of one request of the system in busy servers and seconds, by regression.
    pub demand: Result<DemandFit, String>,
    /// Highest utilization of a window that is used.
    pub utilization_seen: f64,
    /// Share of the requests of each server with a queue of its own, the largest first; `None` where nothing tells
    /// them apart, and they are taken as alike.
    pub shares: Option<Vec<f64>>,
    /// When it saturates.
    pub headroom: Option<Headroom>,
    /// Its figures cannot be of this system: neither a demand nor a network rests on them.
    pub impossible: Option<Impossible>,
    /// Its busy servers are response time × throughput: a request is taken to hold one for all of its response time.
    pub by_stay: bool,
}

impl TierAnalysis {
    /// Servers that are busy without load. Of an entry with classes that may be a mix that goes with the load, which a network with
    /// classes explains, unless the tier has requests of its own.
    fn own_busy(&self, has_classes: bool) -> f64 {
        let is_known = self.headroom.is_some() && (self.own_per_s.is_some() || !has_classes);
        let demand = self.demand.as_ref().ok().filter(|_| is_known);
        demand.and_then(|fit| fit.background.as_ref()).map_or(0.0, |part| part.estimate.center)
    }

    /// Where its servers are held the longer the more wait below, they are full before a straight line says so.
    fn is_held_below(&mut self, capacity_per_s: Option<Estimate>, rate_now_per_s: f64) {
        let Some((found, capacity_per_s)) = self.headroom.as_mut().zip(capacity_per_s) else {
            return;
        };
        if capacity_per_s.center < found.capacity_per_s.center {
            let ratio = capacity_per_s.map(|rate| rate / rate_now_per_s);
            *found = Headroom { capacity_per_s, ratio };
        }
    }

    /// Rests nothing on its figures.
    fn leave_out(&mut self, why: Impossible) {
        self.demand = Err(why.why.clone());
        self.headroom = None;
        self.impossible.get_or_insert(why);
    }
}

/// Figures that no system has.
#[derive(Debug, Clone, PartialEq)]
pub struct Impossible {
    pub why: String,
    /// By how much, as a share: busier than all servers, or more than the capacity that follows from how busy they were.
    pub beyond: f64,
}

/// How far a tier is from saturation.
#[derive(Debug, Clone, PartialEq)]
pub struct Headroom {
    /// Load of the system at which all its servers are busy, 1/s.
    pub capacity_per_s: Estimate,
    /// Capacity over the load now.
    pub ratio: Estimate,
}

/// One law, as a check of the monitoring.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LawCheck {
    pub law: &'static str,
    pub tier: String,
    /// Mean of (left − right)/right over the windows.
    pub difference: f64,
    /// Standard deviation of it over the windows.
    pub spread: f64,
    pub windows: usize,
    pub holds: bool,
    /// What a difference usually means.
    pub explanation: &'static str,
    /// How much later than the entry it seems to do what it does, s, where that is not 0.
    pub lag_s: Option<f64>,
}

impl LawCheck {
    /// Whether the tier serves other requests than those that the entry sends it.
    pub(crate) fn is_unrelated(&self) -> bool {
        self.law == FORCED_FLOW && !self.holds && self.lag_s.is_none()
    }
}

/// Monitoring that carries no analysis.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AnalyzeError {
    #[error(
        "tiers.{tier}: the entry needs a query for `throughput` or `arrivals`: nothing else gives the load"
    )]
    NoLoad { tier: String },
    #[error(
        "{used} of {all} windows of {seconds} s can be used, {FEWEST_WINDOWS} are needed: analyze \
         a longer time (--from), one with a steadier load, or shorter windows (`block` in the file){why}"
    )]
    TooFewWindows { used: usize, all: usize, seconds: u64, why: String },
    #[error(
        "tiers.{tier}: its query for `servers` gives {servers:?}, not a whole number of 1 to {MOST_SERVERS}: correct it, \
         or write `servers`"
    )]
    ServersOfQuery { tier: String, servers: f64 },
}

pub fn analyze(system: &System, observed: &Observed) -> Result<Analysis, AnalyzeError> {
    check_load(system, observed)?;
    let mut windows = Windows::of(system, observed, FEWEST_WINDOWS);
    let servers = known_servers(system, observed, &mut windows)?;
    let counted = windows.count_by_stay(system, &servers);
    windows.since_changes(system, observed, &servers, FEWEST_WINDOWS);
    let used: Vec<&Window> = windows.used().collect();
    if used.len() < FEWEST_WINDOWS {
        return Err(AnalyzeError::TooFewWindows {
            used: used.len(),
            all: windows.all.len(),
            seconds: windows.length_s(system),
            why: reasons(&windows),
        });
    }
    let rates: Vec<f64> = used.iter().filter_map(|w| rate(system, w)).collect();
    let steady = &rates[rates.len() - rates.len().div_ceil(10)..];
    let rate_now_per_s = windows.rate_now(system);
    let mut tiers = Vec::with_capacity(system.tiers.len());
    let flows: Vec<Option<Flow>> = (0..system.tiers.len())
        .map(|index| flow(system, observed, index, windows.since_step()))
        .collect();
    for (index, flow) in flows.iter().enumerate() {
        let own_per_s = flow.as_ref().and_then(|flow| flow.own_per_s.clone());
        let of = (index, servers[index], counted[index].as_ref());
        tiers.push(tier((system, observed), &windows, of, own_per_s, rate_now_per_s));
    }
    let laws =
        [laws(system, &used), forced_flow(system, &flows), beyond_servers(system, &tiers, &used)]
            .concat();
    for (tier, found) in system.tiers.iter().zip(&mut tiers) {
        if let Some(law) = laws.iter().find(|law| law.tier == tier.name && law.is_unrelated()) {
            found.leave_out(Impossible { why: UNRELATED.to_owned(), beyond: law.difference });
        }
    }
    let (monitored, network) = network((system, observed), &tiers, &mut windows, &counted);
    let monitoring = Series { system, observed, windows: &windows };
    let carried_per_s = windows.carried_per_s(system);
    for (index, found) in tiers.iter_mut().enumerate() {
        let capacity = network.as_ref().ok().and_then(|it| it.capacity_of_held(index, SEED));
        let capacity = capacity.map(|one| at_least(one, carried_per_s));
        found.is_held_below(capacity, rate_now_per_s);
    }
    let class_network = network
        .as_ref()
        .ok()
        .and_then(|network| ClassNetwork::fit(&monitored, &monitoring, network))
        .map(|found| found.map(|classes| classes.scaled(rate_now_per_s / sample::mean(steady))));
    Ok(Analysis {
        class_network,
        laws,
        untold: untold(system, &flows),
        lacking: lacking(system, observed, &windows),
        maybe_twice: observed.tiers.iter().filter_map(|tier| tier.maybe_twice.clone()).collect(),
        bottleneck: bottleneck(&tiers),
        rates_seen_per_s: (
            rates.iter().copied().fold(f64::INFINITY, f64::min),
            rates.iter().copied().fold(0.0, f64::max),
        ),
        rate_now_per_s,
        monitored,
        network,
        growth: growth_of(system, observed),
        seen: observed.grid,
        tiers,
        windows,
    })
}

/// Queries that an analysis rests on and that give no figures, and figures that begin late.
fn lacking(system: &System, observed: &Observed, windows: &Windows) -> Vec<String> {
    use Quantity::{Arrivals, Busy, Number, ResponseTime, Servers, Throughput};
    let needed = [Servers, Arrivals, Throughput, ResponseTime, Busy, Number];
    let tiers = system.tiers.iter().zip(&observed.tiers);
    let queries = tiers.flat_map(|(tier, found)| {
        let all = found.missing.iter().filter(|(quantity, _)| needed.contains(quantity));
        all.map(|(quantity, what)| format!("{} {what}", asked(tier, *quantity)))
    });
    queries.chain(windows.doubts.clone()).chain(lost_scrapes(system, observed)).collect()
}

/// Tiers whose figures have gaps that those of the entry have not. Across a gap a rate is too low.
fn lost_scrapes(system: &System, observed: &Observed) -> Vec<String> {
    let gaps = |index: usize| {
        let values = observed.tiers[index].series.get(&Quantity::Throughput)?;
        let seen = &values[begins(values)?..=values.iter().rposition(|value| value.is_finite())?];
        let is_first = |pair: &&[f64]| pair[0].is_finite() && !pair[1].is_finite();
        Some((seen.windows(2).filter(is_first).count(), seen.len()))
    };
    let of_entry = gaps(system.entry).map_or(0, |(count, _)| count);
    let lost = |(index, tier): (usize, &Tier)| {
        let (count, all) = gaps(index)?;
        (count > FEW_GAPS + 2 * of_entry).then(|| {
            format!(
                "`{}` has no figures in {count} gaps of {all} moments in which `{}` has: scrapes of it are lost, and rates across \
                 them are too low, so that it may carry less than is said",
                tier.name, system.tiers[system.entry].name
            )
        })
    };
    system.tiers.iter().enumerate().filter_map(lost).collect()
}

/// The network, and what it is fitted to. Processors stand for the servers of a tier only where response times show what requests wait
/// for beside them: else nothing says how busy its servers are.
fn network(
    (system, observed): (&System, &Observed),
    tiers: &[TierAnalysis],
    windows: &mut Windows,
    counted: &[Option<Counted>],
) -> (Monitored, Result<Network, String>) {
    let fitted = |windows: &Windows| {
        let monitored = monitored((system, observed), tiers, windows, counted);
        let network = Network::fit(&monitored, &Series { system, observed, windows });
        (monitored, network)
    };
    let found = fitted(windows);
    let processors = |tier: usize| Counted::is_unknown(counted[tier].as_ref());
    if found.1.as_ref().is_ok_and(|network| network.hidden.is_some())
        || !(0..tiers.len()).any(processors)
    {
        return found;
    }
    windows.without_busy(processors);
    fitted(windows)
}

/// The windows that are used, and what all of them say of each tier.
fn monitored(
    (system, observed): (&System, &Observed),
    tiers: &[TierAnalysis],
    windows: &Windows,
    counted: &[Option<Counted>],
) -> Monitored {
    let has_classes = observed.tiers[system.entry].split.contains_key(&Quantity::Classes);
    let tier = |(index, found): (usize, &TierAnalysis)| {
        let (tier, series) = (&system.tiers[index], &observed.tiers[index]);
        let stays = match counted[index] {
            Some(Counted::ByStay { inside }) => Some(inside),
            _ => None,
        };
        MonitoredTier {
            name: tier.name.clone(),
            servers: found.servers,
            visits: found.visits.center,
            own_per_s: found.own_per_s.as_ref().map_or(0.0, |own| own.center),
            own_busy: if tier.held && !tier.calls.is_empty() {
                0.0
            } else {
                found.own_busy(has_classes)
            },
            calls: tier.calls.clone(),
            held: tier.held || stays.is_some(),
            queue_each: tier.queues == Queues::Each,
            shares: found.shares.clone(),
            utilization_seen: found.utilization_seen,
            impossible: found.impossible.as_ref().map(|found| found.why.clone()),
            missing: no_busy(tier, series, counted[index].as_ref()),
            lacks_servers: found.lacks_servers,
            inside: false,
            stays,
            uncounted: Counted::is_unknown(counted[index].as_ref()),
        }
    };
    let used = windows.all.iter().enumerate().filter(|(_, window)| window.left_out.is_none());
    Monitored {
        name: system.name.clone(),
        entry: system.entry,
        tiers: tiers.iter().enumerate().map(tier).collect(),
        windows: used
            .map(|(number, window)| open::Window { number, tiers: window.tiers.clone() })
            .collect(),
        window_s: exact_f64(windows.length_s(system)),
        load_spread: windows.load_spread(system),
    }
    .without_times_inside()
    .without_times_of_others()
}

/// The series that windows are means of.
struct Series<'a> {
    system: &'a System,
    observed: &'a Observed,
    windows: &'a Windows,
}

impl Monitoring for Series<'_> {
    fn gaps(&self, tier: usize, until: usize) -> Result<Estimate, String> {
        let series = &self.observed.tiers[tier].series;
        let rates = series.get(&Quantity::Arrivals).or_else(|| series.get(&Quantity::Throughput));
        let end = self.windows.steps_of(until).end;
        let rates = rates.and_then(|rates| rates.get(..end.min(rates.len())));
        let found = dispersion(self.system, rates.ok_or("no query gives its load")?)?;
        let shortest = found.into_iter().next();
        shortest.map(|one| one.index).ok_or_else(|| "too few requests".to_owned())
    }

    fn has_bins(&self, tier: usize) -> bool {
        !self.observed.tiers[tier].buckets.is_empty()
    }

    fn mean_square(&self, tier: usize, windows: &[usize], mean_s: f64) -> Option<(f64, f64)> {
        let steps = windows.iter().map(|number| self.windows.steps_of(*number));
        square_bounds(&counts(&self.observed.tiers[tier], steps), mean_s)
    }

    fn classes(&self, windows: &[usize]) -> Vec<(String, Vec<f64>)> {
        let entry = &self.observed.tiers[self.system.entry];
        let rate = |values: &[f64], number: usize| -> f64 {
            values.get(self.windows.steps_of(number)).and_then(present).unwrap_or(0.0)
        };
        let class = |(name, values): (&str, &[f64])| {
            (name.to_owned(), windows.iter().map(|number| rate(values, *number)).collect())
        };
        entry.parts(Quantity::Classes).map(class).collect()
    }

    fn class_response_s(&self, class: &str, windows: &[usize]) -> Option<f64> {
        let series = &self.observed.tiers[self.system.entry];
        let of = |quantity| series.split.get(&quantity).and_then(|all| all.get(class));
        let (rates, times) = (of(Quantity::Classes)?, of(Quantity::ClassTimes)?);
        let steps = || windows.iter().map(|number| self.windows.steps_of(*number));
        let of_steps = |values: &[f64]| -> Option<Vec<f64>> {
            let parts: Option<Vec<&[f64]>> = steps().map(|range| values.get(range)).collect();
            Some(parts?.concat())
        };
        weighted(&of_steps(times)?, &of_steps(rates)?)
    }
}

/// Growth of the load, from the series of the entry.
///
/// # Errors
/// In words, when there are too few whole days, or nothing says the load.
pub fn growth_of(system: &System, observed: &Observed) -> Result<Growth, String> {
    let series = &observed.tiers[system.entry].series;
    let rates = series.get(&Quantity::Throughput).or_else(|| series.get(&Quantity::Arrivals));
    growth(system, &observed.grid, rates.ok_or("no query gives the load of the entry")?)
}

/// Fails where the figures of the entry end before the time does: then its present load is unknown.
///
/// # Errors
/// In words, where nothing was served, or nothing says so, for longer than a window of the analysis and than the
/// five minutes for which a Prometheus itself takes a sample for that of now.
pub fn seen_to_the_end(system: &System, observed: &Observed) -> Result<(), String> {
    let entry = &system.tiers[system.entry].name;
    let of = |quantity| observed.tiers[system.entry].series.get(&quantity);
    let rates = of(Quantity::Throughput).or_else(|| of(Quantity::Arrivals)).map_or(&[][..], |r| r);
    let last = |is: &dyn Fn(f64) -> bool| rates.iter().rposition(|rate| is(*rate));
    let block_s = (system.step_s * system.block_steps as u64).max(LOOKBACK_S);
    let recent = |at: Option<usize>| {
        let ago_s = at.map(|at| (rates.len() - 1 - at) as u64 * observed.grid.step_s);
        ago_s.is_some_and(|ago_s| ago_s <= block_s)
    };
    let at = |place: usize| observed.grid.minute(observed.grid.offset_s(place));
    match (last(&f64::is_finite), last(&|rate| rate > 0.0)) {
        (Some(end), _) if !recent(Some(end)) => Err(format!(
            "nothing says the load of `{entry}` since {}: its headroom is not known",
            at(end)
        )),
        (_, Some(end)) if !recent(Some(end)) => Err(format!(
            "`{entry}` has served nothing since {}: nothing says its present load",
            at(end)
        )),
        _ => Ok(()),
    }
}

/// X of the entry in a window.
pub(crate) fn rate(system: &System, window: &Window) -> Option<f64> {
    window.tiers[system.entry].throughput_per_s
}

fn reasons(windows: &Windows) -> String {
    let counts = windows.reasons();
    if counts.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = counts.iter().map(|(why, count)| format!("{count}: {why}")).collect();
    format!("; the others: {}", parts.join("; "))
}

fn tier(
    (system, observed): (&System, &Observed),
    windows: &Windows,
    (index, told, counted): (usize, Option<u64>, Option<&Counted>),
    own_per_s: Option<Estimate>,
    rate_now_per_s: f64,
) -> TierAnalysis {
    let used: &[&Window] = &windows.used().collect::<Vec<_>>();
    let servers = told.unwrap_or(1);
    let own = own_per_s.as_ref().map_or(0.0, |own| own.center);
    let visits = visits(system, used, index, own);
    let m = exact_f64(servers);
    let busy: Vec<f64> = used.iter().filter_map(|window| window.tiers[index].busy).collect();
    let utilization_seen = busy.iter().copied().fold(0.0, f64::max) / m;
    let busier = (utilization_seen > MOST_BUSY).then(|| too_busy(utilization_seen, m));
    let is_unknown = Counted::is_unknown(counted);
    let mut impossible = busier.or_else(|| capped(system, used, index, m)).filter(|_| !is_unknown);
    let lacks_servers =
        told.is_none() && observed.tiers[index].series.contains_key(&Quantity::Busy);
    let mut demand = match &impossible {
        Some(found) => Err(found.why.clone()),
        None if lacks_servers => Err(NO_SERVERS.to_owned()),
        None if is_unknown => Err(no_busy(&system.tiers[index], &observed.tiers[index], counted)),
        None => demand(system, windows, index, m).map_err(|why| {
            why.unwrap_or_else(|| no_busy(&system.tiers[index], &observed.tiers[index], counted))
        }),
    };
    let shares = shares(system, observed, index, servers);
    // The busiest server is full first.
    let largest = shares.as_ref().and_then(|shares| shares.first().copied());
    let even = largest.map_or(1.0, |largest| 1.0 / (m * largest));
    let mut capacity = demand.as_ref().ok().and_then(|fit| capacity_per_s(fit, m, even));
    capacity = capacity.map(|capacity| windows.drifting(index, capacity));
    if let Some(Counted::ByStay { inside: false }) = counted {
        capacity = capacity.map(|capacity| or_without_wait(system, used, index, m, capacity));
    }
    let carried_per_s = windows.carried_per_s(system);
    if let Some(found) = capacity.take_if(|found| is_below(found, carried_per_s)) {
        let why = carries_more(found.center, carried_per_s);
        demand = Err(why.clone());
        impossible = Some(Impossible { why, beyond: carried_per_s / found.center - 1.0 });
    }
    let headroom = capacity.map(|capacity_per_s| {
        let capacity_per_s = at_least(capacity_per_s, carried_per_s);
        Headroom { ratio: capacity_per_s.map(|rate| rate / rate_now_per_s), capacity_per_s }
    });
    TierAnalysis {
        servers,
        servers_told: told.is_some(),
        lacks_servers,
        visits,
        own_per_s,
        demand,
        utilization_seen,
        shares,
        headroom,
        impossible,
        by_stay: matches!(counted, Some(Counted::ByStay { .. })),
    }
}

/// V: requests at a tier for one at the entry, without those of its own.
fn visits(system: &System, used: &[&Window], index: usize, own_per_s: f64) -> Estimate {
    let ratio = |window: &&Window| {
        Some((window.tiers[index].throughput_per_s? - own_per_s) / rate(system, window)?)
    };
    let ratios: Vec<f64> = used.iter().filter_map(ratio).collect();
    let known = ratios.len() > 1 && index != system.entry;
    let found = known.then(|| sample::mean_interval(&ratios, CONFIDENCE).ok()).flatten();
    found.unwrap_or_else(|| Estimate::exact(1.0))
}

/// Load at which m servers are full; `even` is below 1 where the busiest of them is full before.
fn capacity_per_s(fit: &DemandFit, m: f64, even: f64) -> Option<Estimate> {
    let estimate = &fit.demands.first()?.estimate;
    let background = fit.background.as_ref().map_or(0.0, |part| part.estimate.center);
    // A demand whose interval reaches 0 gives no capacity.
    let interval = estimate.interval.filter(|interval| interval.low > 0.0)?;
    let full = |demand: f64| even * (m - background) / demand;
    Some(Estimate::with_interval(full(estimate.center), interval.map(full)))
}

/// A capacity by response times that may have some wait in them, which is short where the load is low.
fn or_without_wait(
    system: &System,
    used: &[&Window],
    index: usize,
    m: f64,
    capacity_per_s: Estimate,
) -> Estimate {
    let of = |window: &&Window| {
        let rate = rate(system, window).filter(|rate| *rate > 0.0)?;
        Some((rate, window.tiers[index].busy? / rate))
    };
    let mut all: Vec<(f64, f64)> = used.iter().filter_map(of).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.truncate(all.len().div_ceil(3));
    let each: Vec<f64> = (all.into_iter())
        .map(|(rate, busy)| busy - open::waiting_s(rate, whole_u64(m), busy).unwrap_or(0.0))
        .collect();
    let least = sample::mean_interval(&each, CONFIDENCE).ok().and_then(|mean| mean.interval);
    let most = least.filter(|least| least.low > 0.0).map_or(0.0, |least| m / least.low);
    let interval = capacity_per_s.interval.map(|all| Interval { high: all.high.max(most), ..all });
    Estimate { interval, ..capacity_per_s }
}

/// Whether a capacity is surely below a load that was carried, or by half of what scrapes bring in where it is known that well.
fn is_below(capacity_per_s: &Estimate, carried_per_s: f64) -> bool {
    let high = capacity_per_s.interval.map_or(capacity_per_s.center, |all| all.high);
    let beside = capacity_per_s.center * (1.0 + TOLERANCE / 2.0) < carried_per_s;
    high < carried_per_s || beside && high < carried_per_s * (1.0 + TOLERANCE)
}

/// A capacity is no less than a load that was carried, and no better known for it.
fn at_least(capacity_per_s: Estimate, carried_per_s: f64) -> Estimate {
    let more = (carried_per_s - capacity_per_s.center).max(0.0);
    let interval = capacity_per_s.interval.map(|all| Interval {
        low: all.low.max(carried_per_s),
        high: all.high + more,
        ..all
    });
    Estimate { center: capacity_per_s.center + more, interval, ..capacity_per_s }
}

/// Why a capacity below a load that was carried is none.
fn carries_more(capacity_per_s: f64, carried_per_s: f64) -> String {
    format!(
        "its `busy` says that it is full at {}, and {} was served: look whether it is capped (a gauge at a number of workers, \
         processors at a limit) or of other requests, and whether `servers` is right",
        Rate::per_second(capacity_per_s),
        Rate::per_second(carried_per_s)
    )
}

/// Busy servers that stay where they are while the load grows.
fn capped(system: &System, used: &[&Window], index: usize, m: f64) -> Option<Impossible> {
    let point = |window: &&Window| Some((rate(system, window)?, window.tiers[index].busy?));
    let found = Capped::of(used.iter().filter_map(point).collect())?;
    Some(Impossible { why: found.why(m), beyond: found.carried_per_s / found.from_per_s - 1.0 })
}

/// How the requests of a tier divide over servers with a queue each, over all that was seen; `None` where there
/// are not as many series as servers.
fn shares(system: &System, observed: &Observed, index: usize, servers: u64) -> Option<Vec<f64>> {
    if system.tiers[index].queues != Queues::Each {
        return None;
    }
    let sum = |values: &[f64]| values.iter().filter(|value| value.is_finite()).sum::<f64>();
    let mut all: Vec<f64> =
        observed.tiers[index].parts(Quantity::Each).map(|(_, values)| sum(values)).collect();
    let total: f64 = all.iter().sum();
    if all.len() as u64 != servers || total <= 0.0 {
        return None;
    }
    all.sort_by(|a, b| b.total_cmp(a));
    Some(all.iter().map(|one| one / total).collect())
}

/// Refuses an entry of which nothing tells the load.
fn check_load(system: &System, observed: &Observed) -> Result<(), AnalyzeError> {
    let (entry, found) = (&system.tiers[system.entry], &observed.tiers[system.entry]);
    let loads = [Quantity::Throughput, Quantity::Arrivals];
    // A table has columns for which the file needs no query.
    let is_known = |quantity: &Quantity| {
        entry.queries.contains_key(quantity)
            || found.series.contains_key(quantity)
            || found.split.contains_key(quantity)
    };
    if !loads.iter().any(is_known) {
        return Err(AnalyzeError::NoLoad { tier: entry.name.clone() });
    }
    Ok(())
}

/// The servers of each tier; where nothing says how many they are, how busy they are is left out of the windows.
fn known_servers(
    system: &System,
    observed: &Observed,
    windows: &mut Windows,
) -> Result<Vec<Option<u64>>, AnalyzeError> {
    let told = (0..system.tiers.len()).map(|index| servers(system, observed, index));
    let told = told.collect::<Result<Vec<Option<u64>>, AnalyzeError>>()?;
    windows.without_busy(|tier| told[tier].is_none());
    Ok(told)
}

fn servers(
    system: &System,
    observed: &Observed,
    index: usize,
) -> Result<Option<u64>, AnalyzeError> {
    let tier = &system.tiers[index];
    if let Some(servers) = tier.servers {
        return Ok(Some(servers));
    }
    match crate::windows::servers_now(system, &observed.tiers[index]) {
        None => Ok(None),
        Some(m) if m.fract() != 0.0 || m > exact_f64(MOST_SERVERS) => {
            Err(AnalyzeError::ServersOfQuery { tier: tier.name.clone(), servers: m })
        }
        Some(servers) => Ok(Some(whole_u64(servers))),
    }
}

/// `by` as a percentage, with a sign; a query for something else altogether may be off by any factor.
pub(crate) fn off_by(by: f64) -> String {
    if by < MOST_PERCENT {
        format!("{:+.0} %", 100.0 * by)
    } else {
        format!("more than {:+.0} %", 100.0 * MOST_PERCENT)
    }
}

/// Why a tier whose query for `busy` gives more than its servers can be has neither demand nor capacity.
pub(crate) fn too_busy(utilization: f64, m: f64) -> Impossible {
    let share = if utilization < MOST_PERCENT {
        format!("{:.0} %", 100.0 * utilization)
    } else {
        format!("more than {:.0} %", 100.0 * MOST_PERCENT)
    };
    let why = format!(
        "it was up to {share} busy, which {} cannot be: correct `servers` or the query for \
         `busy`, or analyze the time since their number changed",
        counted(m, "server")
    );
    Impossible { why, beyond: utilization - 1.0 }
}

/// What is impossible, as a law that does not hold.
fn beyond_servers(system: &System, tiers: &[TierAnalysis], used: &[&Window]) -> Vec<LawCheck> {
    let all = system.tiers.iter().zip(tiers);
    let broken = all.filter_map(|(tier, found)| Some((tier, found.impossible.as_ref()?)));
    let check = |(tier, found): (&Tier, &Impossible)| LawCheck {
        law: "utilization law: servers are busy all of the time at most, and serve no more than that",
        tier: tier.name.clone(),
        difference: found.beyond,
        spread: 0.0,
        windows: used.len(),
        holds: false,
        explanation: "`servers` is wrong, or the query for `busy` is not of these servers or not a number of them",
        lag_s: None,
    };
    broken.map(check).collect()
}

/// Why nothing says how many servers of a tier are busy.
fn no_busy(tier: &Tier, found: &TierSeries, counted: Option<&Counted>) -> String {
    match (found.missing.get(&Quantity::Busy), counted) {
        (Some(what), _) => format!("{} {what}", asked(tier, Quantity::Busy)),
        (None, Some(Counted::Unknown(why))) => why.clone(),
        (None, _) => "no query gives how many of its servers are busy".to_owned(),
    }
}

/// Busy servers against the load of the system, with what is busy without load where that is
/// significantly above 0.
///
/// # Errors
/// In words; `None` where no window says how many are busy.
pub(crate) fn demand(
    system: &System,
    windows: &Windows,
    index: usize,
    m: f64,
) -> Result<DemandFit, Option<String>> {
    let points: Vec<LoadPoint> = windows
        .used()
        .filter_map(|window| {
            let busy = window.tiers[index].busy?;
            let utilization = (busy / m).clamp(0.0, 1.0);
            Some(LoadPoint { utilization, throughputs_per_s: vec![rate(system, window)?] })
        })
        .collect();
    if points.is_empty() {
        return Err(None);
    }
    let options = demands::Options { servers: m, background: true, confidence: CONFIDENCE };
    let with = demands::regress(&points, &options);
    let varies = windows.load_spread(system) >= ENOUGH_SPREAD;
    let told = |fit: &DemandFit| {
        let interval = fit.background.as_ref().and_then(|part| part.estimate.interval);
        interval.is_some_and(|interval| interval.low > 0.0)
    };
    match with {
        Ok(fit) if told(&fit) && fit.condition_number < HIGH_CONDITION && varies => Ok(fit),
        _ => demands::regress(&points, &demands::Options { background: false, ..options })
            .map_err(|error| Some(error.to_string())),
    }
}

/// The tier with the lowest capacity, if its interval lies below those of all others.
fn bottleneck(tiers: &[TierAnalysis]) -> Result<usize, Vec<usize>> {
    let mut ranked: Vec<(usize, f64, Interval)> = tiers
        .iter()
        .enumerate()
        .filter_map(|(index, tier)| {
            let capacity = &tier.headroom.as_ref()?.capacity_per_s;
            Some((index, capacity.center, capacity.interval?))
        })
        .collect();
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    let Some((first, _, least)) = ranked.first().copied() else { return Err(Vec::new()) };
    let rivals: Vec<usize> = ranked[1..]
        .iter()
        .filter(|(_, _, interval)| interval.low <= least.high)
        .map(|(index, ..)| *index)
        .collect();
    let unknown = tiers.iter().any(|tier| tier.headroom.is_none());
    if rivals.is_empty() && !unknown {
        Ok(first)
    } else {
        Err(std::iter::once(first).chain(rivals).collect())
    }
}

/// Forced flow of the tiers of which it tells something, as a law.
fn forced_flow(system: &System, flows: &[Option<Flow>]) -> Vec<LawCheck> {
    let check = |(tier, flow): (&Tier, &Option<Flow>)| {
        let flow = flow.as_ref()?;
        let (holds, explanation, lag_s) = match flow.verdict {
            Verdict::Unknown => return None,
            Verdict::Follows => (true, LATE, None),
            Verdict::Unrelated => (false, UNRELATED, None),
            Verdict::Late(lag_s) => (false, LATE, Some(lag_s)),
        };
        Some(LawCheck {
            law: FORCED_FLOW,
            tier: tier.name.clone(),
            difference: flow.difference,
            spread: flow.spread,
            windows: flow.blocks,
            holds,
            explanation,
            lag_s,
        })
    };
    system.tiers.iter().zip(flows).filter_map(check).collect()
}

/// Tiers of which nothing tells whether they serve the requests of the entry, and why.
fn untold(system: &System, flows: &[Option<Flow>]) -> Vec<(String, String)> {
    let all =
        system.tiers.iter().zip(flows).filter_map(|(tier, flow)| Some((tier, flow.as_ref()?)));
    let unknown = all.filter(|(_, flow)| flow.verdict == Verdict::Unknown);
    unknown.map(|(tier, flow)| (tier.name.clone(), flow.why_unknown())).collect()
}

/// Laws that any system obeys: where they do not hold, the monitoring is at fault.
fn laws(system: &System, used: &[&Window]) -> Vec<LawCheck> {
    let mut checks = Vec::new();
    for (index, tier) in system.tiers.iter().enumerate() {
        let mut add = |law, explanation, sides: &dyn Fn(&TierMeans) -> Option<(f64, f64)>| {
            let differences: Vec<f64> = used
                .iter()
                .filter_map(|window| sides(&window.tiers[index]))
                .filter(|(_, right)| *right > 0.0)
                .map(|(left, right)| (left - right) / right)
                .collect();
            if differences.len() < 2 {
                return;
            }
            let difference = sample::mean(&differences);
            let spread = sample::variance(&differences).unwrap_or(0.0).sqrt();
            let count = exact_f64(differences.len() as u64);
            let error = 2.0 * spread / count.sqrt();
            // A difference that is neither significant nor bounded tests nothing.
            if error > UNTOLD && difference.abs() <= error {
                return;
            }
            checks.push(LawCheck {
                law,
                tier: tier.name.clone(),
                difference,
                spread,
                windows: differences.len(),
                holds: difference.abs() <= TOLERANCE.max(error),
                explanation,
                lag_s: None,
            });
        };
        add(
            "Little's law: number in the tier = throughput × response time",
            "the number is sampled and not averaged, the response time is not that of all requests, or \
             part of the tier's queue is in neither",
            &|means| Some((means.number?, means.throughput_per_s? * means.response_time_s?)),
        );
        add(
            "flow balance: throughput = arrival rate",
            "requests are dropped or counted twice, or retries count as arrivals",
            &|means| Some((means.throughput_per_s?, means.arrival_rate_per_s?)),
        );
        if tier.alike(&[Quantity::Busy, Quantity::Stages, Quantity::Throughput]) {
            add(
                "utilization law: busy servers = throughput × service time",
                "servers are sampled and not counted, a counter was reset between two scrapes, or servers \
                 work on something that is no request",
                &|means| Some((means.busy?, means.throughput_per_s? * means.service_time_s?)),
            );
        }
        if tier.alike(&[Quantity::ResponseTime, Quantity::Buckets]) {
            add(
                "histogram: the mean response time is one that the bins allow",
                "the histogram and the mean are not of the same requests, or one of them was reset",
                &|means| {
                    let (least, most) = means.mean_of_bins_s?;
                    let mean = means.response_time_s?;
                    Some((mean, mean.clamp(least, most)))
                },
            );
        }
    }
    checks
}
