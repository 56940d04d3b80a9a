//! What if: another load, another mix, more servers, faster ones, another hit ratio.

use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample::{sorted_quantile, variance};
use kendall_units::{Seconds, counted, exact_f64};
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::mixes::ClassNetwork;
use super::monitored::{ENOUGH_SPREAD, Monitored, MonitoredTier, Window};
use super::network::{Center, Network};
use super::residence::{Residence, Waiting};
use crate::change::{Change, Counted};
use crate::model::{CONFIDENCE, NORMAL};
use crate::score::Errors;

/// Draws of the uncertain numbers.
const DRAWS: usize = 400;

/// Draws of the numbers that a capacity depends on.
const CAPACITIES: usize = 100;

/// A response time is refused beyond a utilization that was seen and this much of what was left.
const BEYOND: f64 = 0.5;

/// A network that errs by more than this in the median does not describe the system.
const WORST_SCORE: f64 = 0.5;

/// An interval whose ends are so many times apart answers nothing.
pub const WIDE: f64 = 3.0;

/// Windows from which the score's own chance is small beside it.
const FEW_SCORED: usize = 5;

/// Loads so far beyond those that were seen are theirs, as a share, where the load hardly changed.
const BESIDE: f64 = 0.1;
/// Share of a response time that no tier explains, from which on nothing else says how it grows.
pub const MOSTLY: f64 = 0.5;

/// A question that is not understood, or to which the monitoring has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("--what-if {text}: {reason}")]
pub struct ChangeError {
    pub text: String,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Answer {
    /// What was asked, in words.
    pub question: String,
    /// Load of the system, 1/s.
    pub arrival_rate_per_s: f64,
    /// R at the entry, s; the reason where there is no answer.
    pub response_time: Result<Estimate, String>,
    /// U of each tier, in the order of the system; `None` where no query gives how busy it is.
    pub utilizations: Vec<Option<Estimate>>,
    /// What must hold for it that nothing in the file shows.
    pub condition: Option<String>,
    /// What the answer rests on and where it is weak.
    pub caveats: Vec<String>,
}

/// A network as it was fitted, with what its answers rest on.
#[derive(Debug, Clone, Copy)]
pub struct Fitted<'a> {
    pub monitored: &'a Monitored,
    pub network: &'a Result<Network, String>,
    /// The same with classes; `None` where no query gives them.
    pub classes: Option<&'a Result<ClassNetwork, String>>,
    /// Load of now, 1/s.
    pub rate_now_per_s: f64,
    /// Lowest and highest load of a window.
    pub rates_seen_per_s: (f64, f64),
}

impl Fitted<'_> {
    /// Answers a question.
    ///
    /// # Errors
    /// [`ChangeError`] when there is no network, or the monitoring does not determine a change.
    pub fn answer(&self, changes: &[Change], text: &str, seed: u64) -> Result<Answer, ChangeError> {
        let fail = |reason: String| ChangeError { text: text.to_owned(), reason };
        let fitted = self.network.as_ref().map_err(|reason| fail(reason.clone()))?;
        let (mut network, now) = self.at_the_mix(fitted, changes).map_err(&fail)?;
        let mut rate = now;
        for change in changes {
            match change {
                Change::Rate(asked) => rate = *asked,
                Change::Load(times) => rate = now * times,
                change => self.apply(&mut network, change).map_err(&fail)?,
            }
        }
        for (center, tier) in network.centers.iter_mut().zip(&self.monitored.tiers) {
            center.rescale_waits(tier, rate);
        }
        let mut caveats = caveats(self, &network, rate);
        let draws = draw(&network, rate, seed);
        let utilizations = utilizations(self.monitored, &network, rate, &draws);
        let response_time = self
            .answers_at(changes, rate)
            .and_then(|()| response_time(self.monitored, &network, rate, &draws, &mut caveats));
        Ok(Answer {
            question: text.to_owned(),
            arrival_rate_per_s: rate,
            response_time,
            utilizations,
            condition: condition(self.monitored, &network),
            caveats,
        })
    }

    /// Refuses to say how response times grow where the load hardly changed.
    fn answers_at(&self, changes: &[Change], rate: f64) -> Result<(), String> {
        let (least, most) = self.rates_seen_per_s;
        let unexplained = self.network.iter().find_map(|network| network.unexplained(least));
        if let Some(share) = unexplained.filter(|share| *share > MOSTLY)
            && rate > most * (1.0 + BESIDE)
        {
            return Err(format!(
                "cannot tell: {:.0} % of the response time at low load is neither work nor waiting of a tier, and nothing says how \
                 that grows beyond {most:.4}/s, the highest load that was seen",
                share * 100.0
            ));
        }
        let beside = (least * (1.0 - BESIDE)..=most * (1.0 + BESIDE)).contains(&rate);
        let of_load = |change: &Change| matches!(change, Change::Rate(_) | Change::Load(_));
        if self.monitored.varies() || beside && changes.iter().all(of_load) {
            return Ok(());
        }
        Err(format!(
            "cannot tell: the load hardly changed ({least:.4} to {most:.4}/s), so nothing shows how requests wait at another, \
             or with other servers; watch it while the load changes by a factor of {ENOUGH_SPREAD} or more"
        ))
    }

    fn apply(&self, network: &mut Network, change: &Change) -> Result<(), String> {
        let index = |tier: &String| {
            let place = self.monitored.tiers.iter().position(|known| known.name == *tier);
            place.ok_or_else(|| format!("no tier `{tier}`"))
        };
        if let Change::Count { tier, .. } | Change::Speed { tier, .. } = change {
            let found = &self.monitored.tiers[index(tier)?];
            let center = network.centers.iter().find(|center| center.name == *tier);
            if found.uncounted || center.is_some_and(|center| center.unknown) {
                return Err(found.untold());
            }
        }
        match change {
            // What is asked of the load and the mix is in the network already.
            Change::Rate(_) | Change::Load(_) | Change::Class { .. } => {}
            Change::Count { tier, of: Counted::Servers, count } => {
                let center = &mut network.centers[index(tier)?];
                center.set_servers(u64::from(*count));
                center.can_be_modelled()?;
            }
            Change::Speed { tier, times } => {
                let center = &mut network.centers[index(tier)?];
                center.service_time_s.value /= times;
                center.service_time_s.standard_error /= times;
                center.own_busy /= times;
                center.can_be_modelled()?;
                center.residence = center.residence.at_speed(*times);
            }
            Change::HitRatio { tier, share } => {
                change_hits(self.monitored, network, index(tier)?, *share)?;
            }
            Change::Count { .. }
            | Change::Cores { .. }
            | Change::HostSpeed { .. }
            | Change::Placement { .. } => {
                return Err("monitoring tells nothing of it; load, rate, class.NAME, \
                            TIER.servers, TIER.speed and TIER.hit_ratio can be changed"
                    .to_owned());
            }
        }
        Ok(())
    }

    /// The network and the load of now at the mix that is asked: as it was seen, unless classes are asked
    /// about.
    fn at_the_mix(&self, fitted: &Network, changes: &[Change]) -> Result<(Network, f64), String> {
        let of_class = |change: &Change| match change {
            Change::Class { class, times } => Some((class.clone(), *times)),
            _ => None,
        };
        let asked: Vec<(String, f64)> = changes.iter().filter_map(of_class).collect();
        if asked.is_empty() {
            return Ok((fitted.clone(), self.rate_now_per_s));
        }
        let classes = match self.classes {
            Some(Ok(classes)) => classes,
            Some(Err(reason)) => return Err(format!("the classes cannot be separated: {reason}")),
            None => {
                return Err("no query gives the classes of the entry: give it `classes`".to_owned());
            }
        };
        let mut rates = classes.rates_now_per_s();
        for (name, times) in &asked {
            let place = classes.classes.iter().position(|class| class.name == *name);
            let place = place.ok_or_else(|| {
                let known: Vec<&str> =
                    classes.classes.iter().map(|class| class.name.as_str()).collect();
                format!("no class `{name}`; there are {}", known.join(", "))
            })?;
            rates[place] *= times;
        }
        let all: f64 = rates.iter().sum();
        if all <= 0.0 {
            return Err("no request is left".to_owned());
        }
        Ok((classes.network_at(fitted, &rates), all))
    }
}

/// Visits below a cache go with its misses.
fn change_hits(
    monitored: &Monitored,
    network: &mut Network,
    tier: usize,
    share: f64,
) -> Result<(), String> {
    let name = &monitored.tiers[tier].name;
    let ratios: Vec<f64> =
        monitored.windows.iter().filter_map(|window| window.tiers[tier].hit_ratio).collect();
    if ratios.is_empty() {
        return Err(format!("no query says how often `{name}` hits: give it `hits` and `misses`"));
    }
    let now = kendall_stats::sample::mean(&ratios);
    if now >= 1.0 {
        return Err(format!("`{name}` never missed: nothing says what a miss costs"));
    }
    let factor = (1.0 - share) / (1.0 - now);
    let below = network.centers[tier].below.clone();
    if let Some((other, caller)) = monitored.another_way(tier) {
        return Err(format!(
            "`{}` is called by `{}` too: nothing says how many of its requests are misses of `{name}`",
            monitored.tiers[other].name, monitored.tiers[caller].name
        ));
    }
    for other in below.into_iter().filter(|other| *other != tier) {
        network.centers[other].visits *= factor;
    }
    Ok(())
}

fn caveats(fitted: &Fitted<'_>, network: &Network, rate: f64) -> Vec<String> {
    let tiers = &fitted.monitored.tiers;
    let mut caveats = Vec::new();
    let (least, most) = fitted.rates_seen_per_s;
    if rate > most || rate < least {
        caveats.push(format!(
            "the load of {rate:.4}/s lies beyond those seen ({least:.4} to {most:.4}/s)"
        ));
    }
    if let Some((name, fitted)) = network.better {
        let own = network.score.map_or(0.0, |score| score.median);
        caveats.push(format!(
            "requests wait as in {name}, which errs by {:.1} % where it was scored; with waiting fitted to the windows it \
             is {:.1} %",
            own * 100.0,
            fitted * 100.0
        ));
    } else {
        for (tier, center) in tiers.iter().zip(&network.centers) {
            if !center.held && !center.unknown && tier.calls.is_empty() {
                caveats.extend(of_waiting(center));
            }
        }
    }
    for (center, tier) in network.centers.iter().zip(tiers) {
        if let Some(shares) = center.shares.as_ref().filter(|_| center.servers != tier.servers) {
            let largest = shares.first().copied().unwrap_or(1.0) * exact_f64(shares.len() as u64);
            caveats.push(format!(
                "requests are assumed to divide over the {} servers of `{}` as unevenly as over the {} that were \
                 observed: the busiest gets {:.0} % more than the mean",
                center.servers,
                center.name,
                tier.servers,
                (largest - 1.0) * 100.0
            ));
        }
        if center.queue_each && center.shares.is_none() {
            caveats.push(format!(
                "requests are assumed to divide evenly over the servers of `{}`: give it a query for `each`",
                center.name
            ));
        }
    }
    caveats.extend(network.hidden.iter().map(|hidden| {
        format!(
            "requests also wait for what no tier shows, taken as {} that each holds for {:.3} ms: assumed to stay so",
            counted(hidden.servers, "server"),
            hidden.hold_s() * 1e3
        )
    }));
    let of_tiers = network.centers.iter().zip(tiers);
    let unknown = of_tiers.filter(|(center, _)| center.unknown);
    caveats.extend(unknown.map(|(_, tier)| never_full(tier)));
    let known = network.centers.iter().filter(|center| !center.unknown);
    caveats.extend(known.filter_map(of_delay));
    for center in network.centers.iter().filter(|center| center.held && !center.only_way) {
        caveats.push(format!(
            "the servers of `{}` are taken as free while those behind them work, since others call these too",
            center.name
        ));
    }
    caveats
}

/// What a response time is that leaves out the wait for a worker, and where to take a whole one.
pub fn timed_inside(tier: &str) -> String {
    format!(
        "`{tier}`: response time × throughput is the number of its busy servers, also where requests must wait for one, so \
         this response time is measured inside the worker, or `busy` is computed from it: take `response_time` at the \
         proxy, the load balancer or the clients"
    )
}

/// What must hold for an answer, and whether it may be longer.
fn condition(monitored: &Monitored, network: &Network) -> Option<String> {
    let least =
        network.outgrown.map(|_| "or longer, since something fills that no tier shows".to_owned());
    let all: Vec<String> = least.into_iter().chain(room_for_more(monitored, network)).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// What more servers of a tier need, unless a tier below it that counts no requests, such as a host, has their processors.
fn room_for_more(monitored: &Monitored, network: &Network) -> Option<String> {
    let is_machine = |index: &usize| {
        let mut windows = monitored.windows.iter();
        windows.all(|window| window.tiers[*index].throughput_per_s.is_none())
    };
    let mut more = network.centers.iter().zip(&monitored.tiers).filter(|(center, tier)| {
        center.servers > tier.servers && !tier.calls.iter().any(&is_machine)
    });
    more.next().map(|(center, _)| {
        format!(
            "if what the {} servers of `{}` share has the capacity for them (a host: give it a tier below)",
            center.servers, center.name
        )
    })
}

/// How a tier is taken of which nothing tells how busy its servers are.
pub fn never_full(tier: &MonitoredTier) -> String {
    format!("{}; it is taken as never full", tier.untold())
}

/// How requests at a center are held up for another time than they keep it busy.
fn of_delay(center: &Center) -> Option<String> {
    let (name, share) = (&center.name, center.residence.held_up.value);
    if share <= 0.0 {
        Some(format!(
            "the work of `{name}` is in the times of those that it calls: assumed to stay so"
        ))
    } else if share < 1.0 {
        Some(format!(
            "requests at `{name}` are held up for {:.0} % of the time for which they keep it busy: assumed to \
             stay so",
            share * 100.0
        ))
    } else {
        let delay_ms = (share - 1.0) * center.service_time_s.value * 1e3;
        let said = format!(
            "a visit to `{name}` takes {delay_ms:.3} ms in which it is not busy: assumed to stay so"
        );
        (delay_ms > 0.0).then_some(said)
    }
}

/// What is not fitted about the waiting at a center.
fn of_waiting(center: &Center) -> Option<String> {
    let idle = format!("`{}` was too idle to show how requests wait there", center.name);
    match center.residence.waiting {
        Waiting::Fitted => None,
        Waiting::Measured => Some(format!(
            "{idle}: taken as G/G/{} with the measured variabilities, a waiting factor of {:.3}",
            center.servers, center.residence.waiting_factor.value
        )),
        Waiting::Assumed => {
            Some(format!("{idle}: taken as M/M/{}, give or take a factor of 2", center.servers))
        }
    }
}

/// Networks and what they say, with all uncertain numbers drawn. `None`: no steady state.
fn draw(network: &Network, rate: f64, seed: u64) -> Vec<Option<(f64, Vec<f64>)>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let said = |network: Network| {
        network.at(rate).ok().map(|point| (point.response_time_s, point.utilizations))
    };
    (0..DRAWS).map(|_| said(drawn(network, &mut random))).collect()
}

/// A network with all uncertain numbers drawn.
fn drawn(network: &Network, random: &mut Xoshiro256PlusPlus) -> Network {
    let mut drawn = network.clone();
    for center in &mut drawn.centers {
        center.service_time_s.value = center.service_time_s.off_by(StandardNormal.sample(random));
        draw_residence(&mut center.residence, random);
    }
    drawn.keep_sums(network);
    drawn.elsewhere_s.value = drawn.elsewhere_s.off_by(StandardNormal.sample(random));
    if let Some(hidden) = &network.hidden {
        let hidden = hidden.draw(random.random());
        drawn.elsewhere_s.value = hidden.elsewhere_s;
        drawn.hidden = Some(hidden);
    }
    drawn
}

impl Network {
    /// Load at which the servers of a tier are full that are held while those below it work: the more wait there, the longer
    /// they are held. `None` for other tiers, and where the network says nothing.
    pub fn capacity_of_held(&self, index: usize, seed: u64) -> Option<Estimate> {
        let found = self.full_of_held(index)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let draws = (0..CAPACITIES).map(|_| drawn(self, &mut random).full_of_held(index));
        let mut draws = draws.collect::<Option<Vec<f64>>>()?;
        draws.sort_by(f64::total_cmp);
        let tail = (1.0 - CONFIDENCE) / 2.0;
        let [low, high] = [tail, 1.0 - tail].map(|share| sorted_quantile(&draws, share));
        Some(Estimate::with_interval(found, Interval { low, high, confidence: CONFIDENCE }))
    }
}

/// Both parts of a stay, which err together.
fn draw_residence(residence: &mut Residence, random: &mut Xoshiro256PlusPlus) {
    let z: f64 = StandardNormal.sample(random);
    residence.waiting_factor.value = residence.waiting_factor.off_by(z);
    if residence.held_up.standard_error > 0.0 {
        let own: f64 = StandardNormal.sample(random);
        let together = residence.correlation;
        let z = together * z + (1.0 - together * together).max(0.0).sqrt() * own;
        residence.held_up.value = residence.held_up.off_by(z);
    }
}

fn between(mut values: Vec<f64>) -> Option<Interval> {
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    (values.len() >= DRAWS / 2).then(|| Interval {
        low: sorted_quantile(&values, tail),
        high: sorted_quantile(&values, 1.0 - tail),
        confidence: CONFIDENCE,
    })
}

/// (λ·V·S + own)/m, whether there is a steady state or not; held servers as the network says.
fn utilizations(
    monitored: &Monitored,
    network: &Network,
    rate: f64,
    draws: &[Option<(f64, Vec<f64>)>],
) -> Vec<Option<Estimate>> {
    let point = network.at(rate).ok();
    (0..network.centers.len())
        .map(|index| {
            let center = &network.centers[index];
            let work = rate * center.visits * center.service_time_s.value;
            let offered = (work + center.own_busy) / exact_f64(center.servers);
            let value = point.as_ref().map_or(offered, |point| point.utilizations[index]);
            let drawn: Vec<f64> =
                draws.iter().flatten().map(|(_, utilizations)| utilizations[index]).collect();
            let found = Estimate { center: value, interval: between(drawn), caveats: Vec::new() };
            (!center.unknown && !monitored.tiers[index].uncounted).then_some(found)
        })
        .collect()
}

fn response_time(
    monitored: &Monitored,
    network: &Network,
    rate: f64,
    draws: &[Option<(f64, Vec<f64>)>],
    caveats: &mut Vec<String>,
) -> Result<Estimate, String> {
    if let Some(score) = network.score.as_ref().filter(|score| score.median > WORST_SCORE) {
        return Err(format!(
            "cannot tell: the network errs by {:.0} % in response time where it was scored, so \
             something that matters is not in the system file, or `busy` counts other work too",
            score.median * 100.0
        ));
    }
    if monitored.tiers[monitored.entry].inside {
        return Err(format!(
            "cannot tell: {}",
            timed_inside(&monitored.tiers[monitored.entry].name)
        ));
    }
    let point = network.at(rate).map_err(|reason| no_steady_state(network, rate, reason))?;
    let known = network.centers.iter().zip(&monitored.tiers).zip(&point.utilizations);
    let known = known.filter(|((center, _), _)| !center.unknown);
    let known = known
        .map(|((center, tier), used)| (format!("`{}`", center.name), *used, tier.utilization_seen));
    let hidden = network.hidden.iter().map(|hidden| {
        let [used, seen] = [rate, hidden.carried_per_s].map(|rate| rate / hidden.capacity_per_s);
        ("what no tier shows".to_owned(), used, seen)
    });
    for (name, used, seen) in known.chain(hidden) {
        if used > seen + BEYOND * (1.0 - seen) {
            return Err(format!(
                "{name} would be {:.0} % busy and was never seen above {:.0} %: nothing that was \
                 observed says how requests wait there; look at a time with more load, or load a copy \
                 of the system with `kendall run`",
                used * 100.0,
                seen * 100.0
            ));
        }
    }
    let unstable = draws.iter().filter(|draw| draw.is_none()).count();
    if exact_f64(unstable as u64) > (1.0 - CONFIDENCE) / 2.0 * exact_f64(DRAWS as u64) {
        return Err(format!(
            "cannot tell: within its uncertainty the system has no steady state at {rate:.4}/s ({} % \
             of the draws)",
            unstable * 100 / DRAWS
        ));
    }
    let Some(score) = &network.score else {
        return Err(format!("cannot tell how far the network is off: {}", unscored(monitored)));
    };
    let center = point.response_time_s;
    let found = interval((network, score), center, draws, caveats);
    if found.high > WIDE * found.low {
        let more = if score.points < FEW_SCORED {
            "analyze a longer time, with more windows to score the network on"
        } else {
            "analyze a time with more different loads, or give a tier to what is missing in the file"
        };
        return Err(format!(
            "cannot tell: it lies anywhere between {} and {}: {more}",
            Seconds::new(found.low),
            Seconds::new(found.high)
        ));
    }
    Ok(Estimate::with_interval(center, found))
}

/// Why a network says nothing at a load.
fn no_steady_state(network: &Network, rate: f64, reason: String) -> String {
    let known = network.centers.iter().filter(|center| !center.unknown);
    let first = known.min_by(|a, b| a.capacity_per_s().total_cmp(&b.capacity_per_s()));
    let why = match (first.filter(|center| rate >= center.capacity_per_s()), &network.hidden) {
        (None, Some(hidden)) => {
            return format!(
                "cannot tell: as response times grow, what no tier shows is full at about {:.4}/s, and nothing was observed beyond \
                 {:.4}/s",
                hidden.capacity_per_s, hidden.carried_per_s
            );
        }
        (Some(center), _) => format!("it is more than `{}` can carry", center.name),
        (None, None) => reason,
    };
    format!("at {rate:.4}/s there is no steady state: {why}; the queue grows without end")
}

/// Why it is not known how far a network is off.
pub fn unscored(monitored: &Monitored) -> String {
    let timed = |window: &Window| window.tiers[monitored.entry].response_time_s.is_some();
    let entry = &monitored.tiers[monitored.entry];
    if monitored.windows.iter().any(timed) {
        "no windows were left to score the network on: analyze a longer time".to_owned()
    } else if entry.inside {
        format!("the response time of `{}` is measured inside the worker", entry.name)
    } else {
        let name = &entry.name;
        format!(
            "nothing gives the response time of `{name}`: give `{name}` a query for `response_time`"
        )
    }
}

/// The spread of the draws and the network's own error, both on the logarithm, around a response time.
fn interval(
    (network, score): (&Network, &Errors),
    center: f64,
    draws: &[Option<(f64, Vec<f64>)>],
    caveats: &mut Vec<String>,
) -> Interval {
    let logs: Vec<f64> = draws.iter().flatten().map(|(time, _)| time.ln()).collect();
    let variance = variance(&logs).unwrap_or(0.0);
    let (own, median) = (score.log, score.median);
    let degrees = score.points.max(2) - 1;
    let t = kendall_stats::distribution::t_two_sided(CONFIDENCE, exact_f64(degrees as u64));
    // No tighter than what is said of the network.
    let half = (NORMAL.powi(2) * variance + (t * own).powi(2)).sqrt().max(-(1.0 - median).ln());
    caveats.push(if own * own > variance {
        "the interval is mostly the network's own error where it was scored".to_owned()
    } else {
        "the interval is mostly the uncertainty of the fitted demands".to_owned()
    });
    // Nothing is quicker than its work without any waiting, as far as later windows do not say otherwise.
    let quickest = network.quickest_s();
    let mut least = (quickest.value - NORMAL * quickest.standard_error).min(center);
    if network.undercut {
        least *= 1.0 - median;
        caveats.push(format!(
            "response times became shorter than the first {} windows say: look at the time since",
            network.fitted_windows
        ));
    }
    let low = (center * (-half).exp()).max(least);
    Interval { low, high: center * half.exp(), confidence: CONFIDENCE }
}
