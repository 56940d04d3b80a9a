//! Whether `busy` is the number of busy servers. A gauge may be capped, so that it stays where it is while the load grows; and
//! where it counts processors, or is not there, a server is a worker that each request holds for all of its response time,
//! which an application measures without the wait for one.

use kendall_fit::model::{CONFIDENCE, NORMAL, mean_of};
use kendall_fit::open::{ENOUGH_SPREAD, TOLERANCE, waiting_s};
use kendall_fit::trend::line;
use kendall_stats::distribution::t_two_sided;
use kendall_stats::sample::mean;
use kendall_units::{Rate, Seconds, exact_f64, whole_u64};

use crate::quantity::Quantity;
use crate::system::{CORES, Queues, System, Tier};
use crate::windows::{Window, Windows};

/// Servers are busy all of the time at most. A window may show a little more, since its ends are scrapes that
/// come late; a tenth is more than that.
pub(crate) const MOST_BUSY: f64 = 1.1;

/// Windows that a line, or a part of the loads, needs.
const FEWEST: usize = 4;

/// Loads up to which busy servers may grow that are tried, and how clear the best must be.
const TRIED: usize = 48;
const CLEAR: f64 = 1.0 - 1e-5;

/// Busy servers that grow by less than this share of what they did before grow no more: where requests cost less the more there are,
/// as the square root of their number, they grow by three quarters.
const FLATTER: f64 = 0.5;

/// Growth of a response time with the load, at most, in which there is no wait for a worker.
const FLAT: f64 = 0.2;

/// A wait above this share of a response time cannot be missed in it.
const PLAIN: f64 = 0.25;

/// Requests that are there come near the number of servers from this share of it on.
const NEAR: f64 = 0.7;

/// How near `busy` times the servers comes to those that requests hold where it is a share of them.
const SHARE: f64 = 0.15;

/// Busy servers are another thing than those that requests hold where they are less than this share of them.
const FAR_BELOW: f64 = 0.5;

/// Where a number of busy servers stays while the load grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Capped {
    pub(crate) busy: f64,
    /// Load at which it comes there, and the highest that was carried, 1/s.
    pub(crate) from_per_s: f64,
    pub(crate) carried_per_s: f64,
}

impl Capped {
    /// Of loads and busy servers: where a line that ends at a load explains them clearly better than one that does not, loads go on,
    /// and busy servers do not.
    pub(crate) fn of(mut points: Vec<(f64, f64)>) -> Option<Self> {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let last = points.len().checked_sub(FEWEST).filter(|last| *last >= FEWEST)?;
        // The line up to a load, and what it leaves.
        let up_to = |from: f64| {
            let bent: Vec<_> = points.iter().map(|(rate, busy)| (rate.min(from), *busy)).collect();
            let line = line(&bent, CONFIDENCE)?;
            let rest: f64 = bent.iter().map(|(rate, busy)| (busy - line.at(*rate)).powi(2)).sum();
            Some((from, line, rest))
        };
        let tried = (FEWEST..=last).step_by((last / TRIED).max(1));
        let all = tried.filter_map(|at| up_to(points[at].0));
        let (from_per_s, found, rest) = all.min_by(|a, b| a.2.total_cmp(&b.2))?;
        let straight = up_to(f64::INFINITY)?.2;
        let degrees = exact_f64(points.len() - 3);
        let clear = (straight - rest) * degrees > t_two_sided(CLEAR, degrees).powi(2) * rest;
        let above = &points[points.partition_point(|(rate, _)| *rate < from_per_s)..];
        let highest: Vec<f64> = above[above.len() / 2..].iter().map(|one| one.0).collect();
        let (busy, carried_per_s) = (found.at(from_per_s), mean(&highest));
        let slope = line(above, CONFIDENCE)?.slope.center;
        let is_flat = slope < FLATTER * found.slope.center;
        let is_more = found.at(carried_per_s) > busy * (1.0 + TOLERANCE);
        (clear && is_more && is_flat).then_some(Self { busy, from_per_s, carried_per_s })
    }

    pub(crate) fn why(&self, servers: f64) -> String {
        let Self { busy, from_per_s, carried_per_s } = *self;
        let (from, carried) = (Rate::per_second(from_per_s), Rate::per_second(carried_per_s));
        let full = if busy >= servers * (1.0 - TOLERANCE) { ", which is full," } else { "" };
        format!(
            "its `busy` stays at {busy:.3} of {servers} servers{full} from {from} on, and {carried} was served: look whether it is \
             capped (a gauge at a number of workers, processors at a limit), and whether `servers` is right"
        )
    }
}

/// How the busy servers of a tier are counted where its query for `busy` does not count them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Counted {
    /// As response time × throughput, and whether the windows show that the response time has no wait for a worker.
    ByStay { inside: bool },
    /// They cannot be, and why. What windows say of `busy` are processors then.
    Unknown(String),
}

impl Counted {
    /// Whether the servers of a tier are told by nothing, and what its `busy` counts is something else.
    pub(crate) fn is_unknown(of: Option<&Self>) -> bool {
        matches!(of, Some(Self::Unknown(_)))
    }
}

/// What response times tell of the workers of a tier.
struct Stays {
    /// Mean response time and busy servers per request at the lowest loads, s.
    low_s: f64,
    busy_s: f64,
    /// Most busy servers.
    busiest: f64,
    /// Windows in which a wait for a worker that is held for so long would be plain, and the longest wait as its share.
    plain: usize,
    longest: f64,
    /// By how much the response time grows from the lowest to the highest loads, as a share: at least, and at most.
    growth: [f64; 2],
    /// By how much the load does, as a factor.
    spread: f64,
    /// Most requests that were there at a time.
    most: f64,
}

impl Stays {
    /// Of windows with a load, a response time and how many were busy.
    fn of(mut all: Vec<(f64, f64, f64)>, servers: u64) -> Option<Self> {
        let third = all.len() / 3;
        if third < 2 {
            return None;
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let of = |windows: &[(f64, f64, f64)], pick: fn(&(f64, f64, f64)) -> f64| {
            mean_of(&windows.iter().map(pick).collect::<Vec<f64>>())
        };
        let (low, high) = (&all[..third], &all[all.len() - third..]);
        let (low_s, high_s) = (of(low, |one| one.1), of(high, |one| one.1));
        let error = low_s.standard_error.hypot(high_s.standard_error) / low_s.value;
        let waits = all.iter().map(|one| wait(one.0, servers, low_s.value) / low_s.value);
        Some(Self {
            low_s: low_s.value,
            busy_s: of(low, |one| one.2 / one.0).value,
            busiest: all.iter().map(|one| one.2).fold(0.0, f64::max),
            plain: waits.clone().filter(|wait| *wait > PLAIN).count(),
            longest: waits.fold(0.0, f64::max),
            growth: [-NORMAL, NORMAL].map(|by| high_s.value / low_s.value - 1.0 + by * error),
            spread: of(high, |one| one.0).value / of(low, |one| one.0).value,
            most: all.iter().map(|one| one.0 * one.1).fold(0.0, f64::max),
        })
    }

    fn is_flat(&self) -> bool {
        self.growth[1] <= FLAT && self.spread >= ENOUGH_SPREAD
    }

    /// Whether R·X are servers that requests hold: never more than there are, without a wait in R. Where requests would not wait
    /// for these and yet R grows, they wait for something else.
    fn count_workers(&self, servers: u64) -> bool {
        let fit = self.most <= MOST_BUSY * exact_f64(servers);
        fit && (self.is_flat() || self.longest < TOLERANCE && self.growth[0] <= FLAT)
    }

    /// Whether `busy` looks like a share of the servers of a tier that calls no other.
    fn is_share(&self, tier: &Tier, servers: u64) -> bool {
        let of_all = exact_f64(servers) * self.busy_s / self.low_s;
        let fits = servers > 1 && self.busiest <= 1.0 && (of_all - 1.0).abs() < SHARE;
        fits && tier.calls.is_empty() && !tier.of_preset.contains(&Quantity::Busy)
    }

    fn is_far_above_busy(&self, rate_per_s: f64, servers: u64) -> bool {
        let stay = self.busy_s + wait(rate_per_s, servers, self.busy_s);
        stay < FAR_BELOW * self.low_s
    }

    fn why(&self, servers: u64) -> String {
        if self.most > MOST_BUSY * exact_f64(servers) {
            return format!(
                "up to {:.3} requests are there at a time, and {servers} servers",
                self.most
            );
        }
        if self.spread < ENOUGH_SPREAD {
            return format!(
                "it may have a wait for a server in it, which shows while the load changes by a factor of {ENOUGH_SPREAD} or more"
            );
        }
        let growth = whole_u64((100.0 * self.growth[1]).clamp(0.0, 1e6));
        format!("it grows by up to {growth} % with the load, which may be a wait for a server")
    }
}

/// As [`waiting_s`], and without end where there is no steady state.
fn wait(rate_per_s: f64, servers: u64, service_s: f64) -> f64 {
    waiting_s(rate_per_s, servers, service_s).unwrap_or(f64::INFINITY)
}

impl Windows {
    /// Counts busy servers by how long requests stay, where `busy` counts processors or is not there. Where they cannot be counted,
    /// `busy` stays what it is: what requests need of processors tells, with response times, what else they wait for.
    pub(crate) fn count_by_stay(
        &mut self,
        system: &System,
        servers: &[Option<u64>],
    ) -> Vec<Option<Counted>> {
        let counted: Vec<Option<Counted>> =
            (0..servers.len()).map(|tier| self.counted(system, tier, servers[tier]?)).collect();
        for (tier, counted) in counted.iter().enumerate() {
            let Some(Counted::ByStay { .. }) = counted else { continue };
            for window in &mut self.all {
                let means = &mut window.tiers[tier];
                means.busy = means.throughput_per_s.zip(means.response_time_s).map(|(x, r)| x * r);
            }
        }
        counted
    }

    fn counted(&mut self, system: &System, index: usize, servers: u64) -> Option<Counted> {
        let tier = &system.tiers[index];
        // What a query says may be threads that no request holds.
        if tier.queues == Queues::Each || tier.servers.is_none() {
            return None;
        }
        let has_busy = self.used().any(|window| window.tiers[index].busy.is_some());
        let window = |window: &Window| {
            let means = &window.tiers[index];
            let rate = means.throughput_per_s.filter(|rate| *rate > 0.0)?;
            Some((rate, means.response_time_s?, means.busy.or_else(|| (!has_busy).then_some(0.0))?))
        };
        let all: Vec<(f64, f64, f64)> = self.used().filter_map(window).collect();
        let Some(stays) = Stays::of(all.clone(), servers) else {
            return too_few(tier, &all);
        };
        let inside = stays.plain >= FEWEST && stays.is_flat();
        let by_stay = || Some(Counted::ByStay { inside });
        if !has_busy {
            if stays.count_workers(servers) {
                self.doubts.push(remark(&tier.name, "no query gives how many are busy"));
                return by_stay();
            }
            return Some(Counted::Unknown(format!(
                "no query gives how many of its servers are busy, and its response time does not either: {}",
                stays.why(servers)
            )));
        }
        if stays.is_share(tier, servers) {
            return Some(Counted::Unknown(format!(
                "its `busy` is {:.3} at most, and a request stays {servers} times as long as it says: where it is a share of its \
                 {servers} servers, multiply the query by {servers}; where it counts processors, `servers` is their number",
                stays.busiest
            )));
        }
        let low = self.used().filter_map(|window| window.tiers[index].throughput_per_s);
        let low = low.fold(f64::INFINITY, f64::min);
        if !stays.is_far_above_busy(low, servers) {
            return None;
        }
        let processors = counts_processors(tier);
        let what = format!(
            "`busy` says {} of the {} for which a request is there",
            Seconds::new(stays.busy_s),
            Seconds::new(stays.low_s)
        );
        if stays.count_workers(servers) && processors {
            self.doubts.push(remark(&tier.name, &what));
            return by_stay();
        }
        if stays.count_workers(servers) && inside && stays.most > NEAR * exact_f64(servers) {
            self.doubts.push(format!(
                "{what} at `{}`, which does not grow with the load although up to {:.3} requests are there at a time: if each \
                 holds one of the {servers} servers for all of it, these are full at {}, and `busy` is not their number",
                tier.name,
                stays.most,
                Rate::per_second(exact_f64(servers) / stays.low_s)
            ));
        }
        // More requests than servers, and yet none waits for one: they are held by none.
        if !processors || stays.is_flat() {
            return None;
        }
        Some(Counted::Unknown(format!(
            "{what}, since it counts processors; how long one holds a worker is not known: {}",
            stays.why(servers)
        )))
    }
}

/// Why windows that are too few for [`Stays`] do not count the workers of a tier, of which a preset counts processors.
fn too_few(tier: &Tier, windows: &[(f64, f64, f64)]) -> Option<Counted> {
    let far = |(rate, stay_s, busy): &(f64, f64, f64)| busy / rate < FAR_BELOW * stay_s;
    let is_far = counts_processors(tier) && windows.iter().any(far);
    is_far.then(|| {
        Counted::Unknown(
            "its `busy` counts processors, a request stays far longer than it needs one, and too few windows tell how long one holds \
             a worker"
                .to_owned(),
        )
    })
}

fn remark(tier: &str, why: &str) -> String {
    format!(
        "a request is taken to hold a server of `{tier}` for all of its response time ({why}): if its servers are processors, \
         give it `queries.busy`"
    )
}

/// Whether a preset gives the time that processors work for a tier as busy servers.
pub(crate) fn counts_processors(tier: &Tier) -> bool {
    tier.of_preset.contains(&Quantity::Busy) && tier.servers_are() == CORES
}
