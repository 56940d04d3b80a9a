//! Windows of the time that is analyzed: means of what each tier did, and whether the window may be
//! used.

use std::collections::BTreeMap;
use std::ops::Range;

use kendall_fit::open::TierMeans;
use kendall_units::exact_f64;

use crate::fetch::{Observed, TierSeries, begins};
use crate::quantity::Quantity;
use crate::system::System;

/// Share of the steps of a window that must be there.
const PRESENT: f64 = 0.75;

/// A window whose halves differ by more than this, and by more than chance, is not stationary.
const LARGEST_CHANGE: f64 = 0.1;

/// Standard errors of the difference of two Poisson counts that chance does not exceed: one in 370.
const CHANCE: f64 = 3.0;

/// Windows in a row whose mean load is taken as carried.
const RUNS: [usize; 4] = [1, 2, 4, 8];

/// Standard deviations between the means of the highest and the lowest third of normal values.
const THIRDS: f64 = 2.2;

/// Arrivals above completions by more than this: a queue grows.
const LARGEST_GROWTH: f64 = 0.05;

/// Load of now is that of so much of the time at most.
const NOW_S: u64 = 3_600;

/// Of the windows that are complete, the share that is to be steady.
const MOSTLY: f64 = 0.5;

/// How the reason of a window that is not steady begins.
const CHANGES: &str = "the load changes";

/// Figures of a tier on which a network rests, where it has them.
const NEEDED: [Quantity; 3] = [Quantity::Throughput, Quantity::Busy, Quantity::ResponseTime];

/// The stage in which a worker serves a request.
const SERVICE_TIME: &str = "service_time";

#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Begin, in seconds since the first moment.
    pub from_s: f64,
    pub to_s: f64,
    pub tiers: Vec<TierMeans>,
    /// Why it is not used; `None` when it is.
    pub left_out: Option<String>,
}

impl Window {
    fn changes(&self) -> bool {
        self.left_out.as_ref().is_some_and(|why| why.starts_with(CHANGES))
    }
}

/// All windows of a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Windows {
    pub all: Vec<Window>,
    /// Steps of each.
    pub steps: usize,
    /// Steps before the first one, which are too few for a window.
    skipped: usize,
    /// The first window of the system as it is now.
    pub since: usize,
    /// What was left out since it is not of that system, or not of all tiers.
    pub remarks: Vec<String>,
    /// What would have been if enough were left.
    pub doubts: Vec<String>,
    /// A tier that a request keeps busy for another time all the time, and by how much the time of now exceeds that of the windows, as
    /// a logarithm.
    pub(crate) drift: Option<(usize, f64)>,
}

impl Windows {
    /// Cuts the time into windows and judges each. Where the file says no length, and the load changes within more than
    /// half of them or fewer than `fewest` can be used, they become shorter: two thirds, or a third, whichever leaves enough.
    ///
    /// Those before all tiers have figures are left out too, as long as `fewest` have these.
    pub fn of(system: &System, observed: &Observed, fewest: usize) -> Self {
        let late = Late::of(system, observed);
        let mut found = Self::as_they_fit(system, observed, fewest);
        let Some(late) = late else { return found };
        let is_before = |window: &Window| window.from_s < observed.grid.offset_s(late.since);
        let since = observed.grid.minute(observed.grid.offset_s(late.since));
        let Late { tier, quantity, .. } = late;
        let has = format!("`{tier}` has `{}` since {since} only", quantity.name());
        if found.used().filter(|window| !is_before(window)).count() < fewest {
            let few = format!("{has}, in fewer than {fewest} windows that can be used");
            found.doubts.push(few);
            return found;
        }
        for window in found.all.iter_mut().filter(|window| is_before(window)) {
            window.left_out = Some(format!("`{tier}` has no `{}` yet", quantity.name()));
        }
        found.since = found.all.iter().filter(|window| is_before(window)).count();
        found.remarks.push(format!("{has}: the time before is left out"));
        found
    }

    fn as_they_fit(system: &System, observed: &Observed, fewest: usize) -> Self {
        let is_enough =
            |windows: &Self| windows.share_steady() >= MOSTLY && windows.used().count() >= fewest;
        let mut best = Self::cut(system, observed, system.block_steps);
        let shorter = [system.block_steps / 3 * 2, system.block_steps / 3];
        let shorter = shorter.into_iter().filter(|steps| (2..system.block_steps).contains(steps));
        for steps in shorter.filter(|_| system.block_s.is_none()) {
            if is_enough(&best) {
                break;
            }
            let found = Self::cut(system, observed, steps);
            let has_more =
                best.used().count() < fewest && found.used().count() > best.used().count();
            if has_more || found.share_steady() > best.share_steady() {
                best = found;
            }
        }
        best
    }

    /// Leaves out how busy some tiers are.
    pub(crate) fn without_busy(&mut self, is_left_out: impl Fn(usize) -> bool) {
        for window in &mut self.all {
            let tiers = window.tiers.iter_mut().enumerate();
            tiers.filter(|(tier, _)| is_left_out(*tier)).for_each(|(_, means)| means.busy = None);
        }
    }

    /// Of the windows that are used or would be if the load did not change within them, the share that is used.
    fn share_steady(&self) -> f64 {
        let changing = self.all.iter().filter(|window| window.changes()).count();
        let used = self.used().count();
        kendall_units::ratio(used as u64, (used + changing) as u64).unwrap_or(1.0)
    }

    /// Length of each, s.
    pub(crate) fn length_s(&self, system: &System) -> u64 {
        system.step_s * self.steps as u64
    }

    /// The first step of the system as it is now.
    pub(crate) fn since_step(&self) -> usize {
        if self.since == 0 { 0 } else { self.steps_of(self.since).start }
    }

    pub(crate) fn steps_of(&self, window: usize) -> Range<usize> {
        let from = self.skipped + window * self.steps;
        from..from + self.steps
    }

    fn cut(system: &System, observed: &Observed, steps: usize) -> Self {
        let (all, remarks, doubts) = (Vec::new(), Vec::new(), Vec::new());
        // What is latest is that of now.
        let skipped = observed.grid.len() % steps;
        let mut windows = Self { all, steps, skipped, since: 0, remarks, doubts, drift: None };
        windows.all = (0..observed.grid.len() / steps)
            .map(|index| {
                let range = windows.steps_of(index);
                let tiers: Vec<TierMeans> =
                    observed.tiers.iter().map(|tier| means(tier, range.clone())).collect();
                let left_out = judge(system, observed, &tiers, range.clone());
                let from_s = observed.grid.offset_s(range.start);
                let to_s = observed.grid.offset_s(range.end);
                Window { from_s, to_s, tiers, left_out }
            })
            .collect();
        windows
    }

    /// Reasons why windows are left out, with their counts.
    pub(crate) fn reasons(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for window in &self.all {
            if let Some(why) = &window.left_out {
                let why =
                    if window.changes() { "the load changes within them" } else { why.as_str() };
                *counts.entry(why).or_default() += 1;
            }
        }
        counts
    }

    /// Load of now, 1/s: over the last windows in which something was served, whether they are steady or not, and what
    /// is offered where that is more than is served. Steady windows alone would leave out a load that rises.
    pub(crate) fn rate_now(&self, system: &System) -> f64 {
        let block_s = self.length_s(system).max(1);
        let hour = usize::try_from(NOW_S / block_s).unwrap_or(usize::MAX).max(1);
        let recent = self.all.len().div_ceil(10).min(hour);
        let offered = |window: &Window| {
            let entry = &window.tiers[system.entry];
            let done = entry.throughput_per_s.filter(|rate| *rate > 0.0)?;
            let arrivals = entry.arrival_rate_per_s.unwrap_or(done);
            Some(if arrivals > done * (1.0 + LARGEST_GROWTH) { arrivals } else { done })
        };
        let last = &self.all[self.all.len().saturating_sub(recent)..];
        let mut rates: Vec<f64> = last.iter().filter_map(offered).collect();
        if rates.is_empty() {
            rates.extend(self.all.iter().rev().find_map(offered));
        }
        kendall_stats::sample::mean(&rates)
    }

    /// Load that was surely carried in steady windows, 1/s: the highest of some in a row, less what chance may have added to it.
    pub(crate) fn carried_per_s(&self, system: &System) -> f64 {
        let rates = self.all.iter().map(|window| {
            let rate = window.tiers[system.entry].throughput_per_s;
            rate.filter(|_| window.left_out.is_none())
        });
        let rates: Vec<Option<f64>> = rates.collect();
        let surely = |run: &[Option<f64>]| {
            let rate =
                kendall_stats::sample::mean(&run.iter().copied().collect::<Option<Vec<_>>>()?);
            let seconds = exact_f64(self.length_s(system) * run.len() as u64);
            Some(rate - CHANCE * (rate / seconds).sqrt())
        };
        let runs = RUNS.into_iter().flat_map(|length| rates.windows(length));
        runs.filter_map(surely).fold(0.0, f64::max)
    }

    /// By what factor the load changed, beyond chance: the mean of the highest third of the windows over that of the lowest.
    pub(crate) fn load_spread(&self, system: &System) -> f64 {
        let count = |window: &Window| {
            Some(window.tiers[system.entry].throughput_per_s? * (window.to_s - window.from_s))
        };
        let mut counts: Vec<f64> = self.used().filter_map(count).collect();
        counts.sort_by(f64::total_cmp);
        let third = counts.len().div_ceil(3);
        let mean = kendall_stats::sample::mean;
        let (low, high) = (mean(&counts[..third]), mean(&counts[counts.len() - third..]));
        high / low / (1.0 + THIRDS / mean(&counts).sqrt())
    }

    pub fn used(&self) -> impl Iterator<Item = &Window> + Clone {
        self.all.iter().filter(|window| window.left_out.is_none())
    }
}

/// What begins last of the figures that an analysis needs.
struct Late<'a> {
    tier: &'a str,
    quantity: Quantity,
    /// Step of its first figure.
    since: usize,
}

impl<'a> Late<'a> {
    /// `None` where all begin within the first window.
    fn of(system: &'a System, observed: &Observed) -> Option<Self> {
        let all = system.tiers.iter().zip(&observed.tiers);
        let each = all.flat_map(|(tier, found)| {
            let since = |quantity| {
                let values = found.series.get(&quantity)?;
                let since = match found.series.get(&Quantity::Throughput) {
                    // Without requests there is no mean of their times.
                    Some(rates) if quantity == Quantity::ResponseTime => {
                        let mut both = values.iter().zip(rates);
                        both.position(|(time, rate)| time.is_finite() || *rate <= 0.0)?
                    }
                    _ => begins(values)?,
                };
                Some(Self { tier: &tier.name, quantity, since })
            };
            NEEDED.into_iter().rev().filter_map(since)
        });
        let last = each.max_by_key(|one| one.since)?;
        (last.since >= system.block_steps).then_some(last)
    }
}

fn finite(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|value| value.is_finite()).collect()
}

/// Mean of the steps that are there, if enough are.
pub(crate) fn present(values: &[f64]) -> Option<f64> {
    let there = finite(values);
    let enough = exact_f64(there.len() as u64) >= PRESENT * exact_f64(values.len() as u64);
    (enough && !there.is_empty()).then(|| kendall_stats::sample::mean(&there))
}

/// Mean time over requests: steps count as their throughput does.
pub(crate) fn weighted_mean(times: &[f64], rates: &[f64]) -> Option<f64> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for (time, rate) in times.iter().zip(rates) {
        if time.is_finite() && rate.is_finite() && *rate > 0.0 {
            sum += time * rate;
            weight += rate;
        }
    }
    (weight > 0.0).then(|| sum / weight)
}

/// A mean over requests: each step counts as its completions do.
fn weighted(tier: &TierSeries, times: &[f64], range: &Range<usize>) -> Option<f64> {
    let times = times.get(range.clone())?;
    let even = vec![1.0; times.len()];
    let rates = tier.series.get(&Quantity::Throughput).and_then(|r| r.get(range.clone()));
    let rates = rates.unwrap_or(&even);
    let counts = |(time, rate): &(&f64, &f64)| time.is_finite() && rate.is_finite() && **rate > 0.0;
    let count = times.iter().zip(rates).filter(counts).count();
    let enough = exact_f64(count) >= PRESENT * exact_f64(times.len() as u64);
    weighted_mean(times, rates).filter(|_| enough)
}

fn means(tier: &TierSeries, range: Range<usize>) -> TierMeans {
    let of = |quantity| present(tier.series.get(&quantity)?.get(range.clone())?);
    let times = |quantity| tier.series.get(&quantity).map(Vec::as_slice);
    let service = tier.parts(Quantity::Stages).find(|(name, _)| *name == SERVICE_TIME);
    let hit_ratio = of(Quantity::Hits).zip(of(Quantity::Misses)).and_then(|(hits, misses)| {
        let all = hits + misses;
        (all > 0.0).then(|| hits / all)
    });
    TierMeans {
        arrival_rate_per_s: of(Quantity::Arrivals),
        throughput_per_s: of(Quantity::Throughput).or_else(|| of(Quantity::Arrivals)),
        response_time_s: times(Quantity::ResponseTime).and_then(|t| weighted(tier, t, &range)),
        busy: of(Quantity::Busy),
        number: of(Quantity::Number),
        hit_ratio,
        service_time_s: service.and_then(|(_, t)| weighted(tier, t, &range)),
        mean_of_bins_s: crate::bins::mean_bounds(tier, range),
    }
}

/// m by its query, in some steps: the middle one, so that a scrape that one server missed does not count.
fn servers_in(tier: &TierSeries, range: Range<usize>) -> Option<f64> {
    let values = tier.series.get(&Quantity::Servers)?.get(range)?;
    let mut there: Vec<f64> = finite(values).into_iter().filter(|value| *value >= 1.0).collect();
    there.sort_by(f64::total_cmp);
    there.get(there.len() / 2).copied()
}

/// m by its query, at the end: over the steps of a window that ends with the last one that says it.
pub(crate) fn servers_now(system: &System, tier: &TierSeries) -> Option<f64> {
    let values = tier.series.get(&Quantity::Servers)?;
    let last = values.iter().rposition(|value| value.is_finite() && *value >= 1.0)?;
    servers_in(tier, (last + 1).saturating_sub(system.block_steps)..last + 1)
}

/// Whether a tier had another number of servers than it has now: what was observed then is of another system.
fn other_servers(system: &System, observed: &Observed, range: &Range<usize>) -> Option<String> {
    let mut asked =
        system.tiers.iter().zip(&observed.tiers).filter(|(tier, _)| tier.servers.is_none());
    asked.find_map(|(tier, series)| {
        let (then, now) = (servers_in(series, range.clone())?, servers_now(system, series)?);
        let change = (then - now).abs() / now;
        let name = &tier.name;
        (change > LARGEST_CHANGE)
            .then(|| format!("`{name}` had another number of servers ({then}, now {now})"))
    })
}

/// Why a window is not used.
fn judge(
    system: &System,
    observed: &Observed,
    tiers: &[TierMeans],
    range: Range<usize>,
) -> Option<String> {
    let entry = &tiers[system.entry];
    let Some(rate) = entry.throughput_per_s else {
        return Some("more than a quarter of the scrapes of the entry are missing".to_owned());
    };
    if rate <= 0.0 {
        return Some("nothing was served".to_owned());
    }
    if let Some(why) = other_servers(system, observed, &range) {
        return Some(why);
    }
    let series = observed.tiers[system.entry].series.get(&Quantity::Throughput)?;
    let middle = range.start + (range.end - range.start) / 2;
    let (first, second) =
        (finite(&series[range.start..middle]), finite(&series[middle..range.end]));
    if !first.is_empty() && !second.is_empty() {
        let (a, b) = (kendall_stats::sample::mean(&first), kendall_stats::sample::mean(&second));
        let half_s = exact_f64((range.end - range.start) as u64 * observed.grid.step_s) / 2.0;
        let chance = CHANCE * (2.0 / (rate * half_s)).sqrt();
        let change = (b - a).abs() / rate;
        if change > LARGEST_CHANGE.max(chance) {
            return Some(format!("{CHANGES} by {:.0} % within it", change * 100.0));
        }
    }
    for (tier, means) in system.tiers.iter().zip(tiers) {
        let Some((arrivals, done)) = means.arrival_rate_per_s.zip(means.throughput_per_s) else {
            continue;
        };
        let seconds = exact_f64((range.end - range.start) as u64 * observed.grid.step_s);
        let chance = CHANCE / (arrivals * seconds).sqrt();
        if arrivals > 0.0 && (arrivals - done) / arrivals > LARGEST_GROWTH.max(chance) {
            return Some(format!("`{}` is overloaded: more arrives than is served", tier.name));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Grid;

    fn observed(values: Vec<f64>) -> (System, Observed) {
        let system = System::parse(
            "name = 'x'\nentry = 'a'\nstep = '1s'\nblock = '10s'\n[tiers.a]\nservers = 1\n\
             queries.throughput = 'x'",
        )
        .unwrap();
        let grid = Grid::new(0, values.len() as u64 - 1, 1).unwrap();
        let tier =
            TierSeries { series: [(Quantity::Throughput, values)].into(), ..TierSeries::default() };
        (system, Observed { grid, tiers: vec![tier] })
    }

    #[test]
    fn steps_of_load_and_gaps_are_left_out_and_said() {
        let mut values = vec![100.0; 10];
        values.extend([100.0, 100.0, 100.0, 100.0, 100.0, 200.0, 200.0, 200.0, 200.0, 200.0]);
        values.extend([
            200.0,
            f64::NAN,
            f64::NAN,
            f64::NAN,
            200.0,
            200.0,
            200.0,
            200.0,
            200.0,
            200.0,
        ]);
        values.extend([0.0; 10]);
        let (system, observed) = observed(values);
        let windows = Windows::of(&system, &observed, 1);
        let why: Vec<&str> =
            windows.all.iter().map(|w| w.left_out.as_deref().unwrap_or("used")).collect();
        assert_eq!(why[0], "used");
        assert!(why[1].contains("changes by 67 %"), "{why:?}");
        assert!(why[2].contains("scrapes"), "{why:?}");
        assert!(why[3].contains("nothing"), "{why:?}");
    }

    /// Windows of 60 s beside steps of load of 60 s, half a step apart: two thirds of a window, or a third, fit into the steps.
    #[test]
    fn windows_shrink_where_the_load_changes_within_most_of_them() {
        let levels = [80.0, 140.0, 200.0, 260.0, 320.0, 450.0];
        let of = |block: &str, every: usize| {
            let text = format!(
                "name = 'x'\nentry = 'a'\nstep = '5s'\n{block}[tiers.a]\nservers = 9\nqueries.throughput = 'x'"
            );
            let values: Vec<f64> =
                (0..180).map(|at| levels[(at + every / 2) / every % levels.len()]).collect();
            let grid = Grid::new(0, 895, 5).unwrap();
            let series = [(Quantity::Throughput, values)].into();
            let tiers = vec![TierSeries { series, ..TierSeries::default() }];
            Windows::of(&System::parse(&text).unwrap(), &Observed { grid, tiers }, 1)
        };
        let found = of("", 12);
        assert!(found.steps < 12, "{}", found.steps);
        assert!(found.used().count() * 2 >= found.all.len(), "{:?}", found.reasons());
        assert!((found.all[1].from_s - 5.0 * exact_f64(found.steps as u64)).abs() < 1e-9);
        // What the file says stays, and the reasons are one.
        let given = of("block = '60s'\n", 12);
        assert_eq!(given.steps, 12);
        assert_eq!(given.reasons(), [("the load changes within them", 15)].into());
        // Where they fit, nothing shrinks.
        assert_eq!(of("", 60).steps, 12);
    }

    /// 5 requests in a half: a change of a third is chance.
    #[test]
    fn few_requests_make_no_trend() {
        let (system, observed) = observed([vec![1.0; 5], vec![1.4; 5]].concat());
        assert_eq!(Windows::of(&system, &observed, 1).used().count(), 1);
    }
}
