//! What if: another load, more servers, faster ones, another hit ratio.

use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample::sorted_quantile;
use kendall_units::{exact_f64, parse_rate};
use rand::SeedableRng as _;
use rand_distr::{Distribution as _, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::analysis::{Analysis, CONFIDENCE, NORMAL};
use crate::network::{Center, Fitted, Network, another_way};
use crate::residence::{Residence, Waiting};
use crate::system::System;

/// Draws of the uncertain numbers.
const DRAWS: usize = 400;

/// A response time is refused beyond a utilization that was seen and this much of what was left.
const BEYOND: f64 = 0.5;

/// A network that errs by more than this in the median does not describe the system.
const WORST_SCORE: f64 = 0.5;

/// Error of a network that nobody could score.
const UNSCORED_LOG_ERROR: f64 = 0.2;
/// No question is about this many times as much: what is written so long is a slip.
const MOST_TIMES: f64 = 1e9;

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Load of the system, 1/s.
    Rate(f64),
    /// Load of the system over that of now.
    Load(f64),
    /// m of a tier.
    Servers {
        /// Which.
        tier: usize,
        /// How many.
        count: u64,
    },
    /// How many times as fast a tier works.
    Speed {
        /// Which.
        tier: usize,
        /// How many times.
        factor: f64,
    },
    /// How many times as many requests of a class of the entry there are.
    Class {
        /// Its name.
        class: String,
        /// How many times.
        times: f64,
    },
    /// Hits of hits and misses at a tier: what it calls is called for misses only.
    HitRatio {
        /// Which.
        tier: usize,
        /// From 0 to 1.
        share: f64,
    },
}

/// A question that is not understood, or to which the monitoring has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("--what-if {text}: {reason}")]
pub struct ChangeError {
    /// The question.
    pub text: String,
    /// Why.
    pub reason: String,
}

impl Change {
    /// Reads `load=2`, `rate=500/s`, `class.NAME=2`, `TIER.servers=6`, `TIER.speed=1.5` or
    /// `TIER.hit_ratio=0.9`.
    ///
    /// # Errors
    /// [`ChangeError`] says what is accepted.
    pub fn parse(text: &str, system: &System) -> Result<Self, ChangeError> {
        let fail = |reason: String| ChangeError { text: text.to_owned(), reason };
        let (key, value) = text.split_once('=').ok_or_else(|| {
            fail("write it like `load=2`, `rate=500/s` or `TIER.servers=6`".to_owned())
        })?;
        let number = |expected: &str, accept: &dyn Fn(f64) -> bool| {
            let parsed: Option<f64> = value.parse().ok();
            parsed
                .filter(|number| number.is_finite() && accept(*number))
                .ok_or_else(|| fail(format!("`{value}` is refused; expected {expected}")))
        };
        let positive = |number: f64| number > 0.0 && number < MOST_TIMES;
        let is_tier = |name: &str| system.tiers.iter().any(|tier| tier.name == name);
        if let Some(class) = key.strip_prefix("class.").filter(|_| !is_tier("class")) {
            let times = number("a number from 0, such as 2: twice as many requests", &|n| {
                (0.0..MOST_TIMES).contains(&n)
            })?;
            return Ok(Self::Class { class: class.to_owned(), times });
        }
        match key.rsplit_once('.') {
            None if key == "load" => Ok(Self::Load(number(
                "a number above 0, such as 2: twice the present load",
                &positive,
            )?)),
            None if key == "rate" => parse_rate(value)
                .map(|rate| Self::Rate(rate.get()))
                .map_err(|error| fail(error.to_string())),
            Some((name, what)) => {
                let name = name.strip_prefix("tiers.").unwrap_or(name);
                let tier = system.tiers.iter().position(|tier| tier.name == name);
                let tier = tier.ok_or_else(|| {
                    let known: Vec<&str> = system.tiers.iter().map(|t| t.name.as_str()).collect();
                    fail(format!("no tier `{name}`; there are {}", known.join(", ")))
                })?;
                match what {
                    "servers" => {
                        let whole = |n: f64| n >= 1.0 && n.fract() == 0.0 && n < 1e9;
                        let count = kendall_units::whole_u64(number("1 or more", &whole)?);
                        Ok(Self::Servers { tier, count })
                    }
                    "speed" => {
                        let factor =
                            number("a number above 0, such as 2: twice as fast", &positive)?;
                        Ok(Self::Speed { tier, factor })
                    }
                    "hit_ratio" => {
                        let share = number("a share from 0 to 1", &|n| (0.0..=1.0).contains(&n))?;
                        Ok(Self::HitRatio { tier, share })
                    }
                    _ => Err(fail(format!(
                        "`{what}` cannot be changed; `servers`, `speed` and `hit_ratio` can"
                    ))),
                }
            }
            None => Err(fail(format!(
                "`{key}` is none of `load`, `rate`, `class.NAME`, `TIER.servers`, …"
            ))),
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Answer {
    /// What was asked, in words.
    pub question: String,
    /// Load of the system, 1/s.
    pub arrival_rate_per_s: f64,
    /// R at the entry, s; the reason where there is no answer.
    pub response_time: Result<Estimate, String>,
    /// U of each tier, in the order of the system.
    pub utilizations: Vec<Estimate>,
    /// What the answer rests on and where it is weak.
    pub caveats: Vec<String>,
}

/// Answers a question from the fitted network.
///
/// # Errors
/// [`ChangeError`] when there is no network, or the monitoring says nothing about a change.
pub fn answer(
    system: &System,
    analysis: &Analysis,
    changes: &[Change],
    text: &str,
    seed: u64,
) -> Result<Answer, ChangeError> {
    let fail = |reason: String| ChangeError { text: text.to_owned(), reason };
    let fitted = analysis.network.as_ref().map_err(|reason| fail(reason.clone()))?;
    let (mut network, now) = at_the_mix(analysis, fitted, changes).map_err(&fail)?;
    let mut rate = now;
    for change in changes {
        match change {
            Change::Rate(asked) => rate = *asked,
            Change::Load(times) => rate = now * times,
            // What is asked of the mix is in the network already.
            Change::Class { .. } => {}
            Change::Servers { tier, count } => {
                network.centers[*tier].set_servers(*count);
                network.centers[*tier].few_enough().map_err(&fail)?;
            }
            Change::Speed { tier, factor } => {
                let center = &mut network.centers[*tier];
                center.service_time_s.value /= factor;
                center.service_time_s.standard_error /= factor;
                center.residence = center.residence.at_speed(*factor);
            }
            Change::HitRatio { tier, share } => {
                change_hits(system, analysis, &mut network, *tier, *share).map_err(&fail)?;
            }
        }
    }
    let mut caveats = caveats(system, analysis, &network, rate);
    let draws = draw(&network, rate, seed);
    let utilizations = utilizations(&network, rate, &draws);
    let response_time = response_time(analysis, &network, rate, &draws, &mut caveats);
    Ok(Answer {
        question: text.to_owned(),
        arrival_rate_per_s: rate,
        response_time,
        utilizations,
        caveats,
    })
}

/// The network and the load of now at the mix that is asked: as it was seen, unless classes are asked
/// about.
fn at_the_mix(
    analysis: &Analysis,
    fitted: &Network,
    changes: &[Change],
) -> Result<(Network, f64), String> {
    let of_class = |change: &Change| match change {
        Change::Class { class, times } => Some((class.clone(), *times)),
        _ => None,
    };
    let asked: Vec<(String, f64)> = changes.iter().filter_map(of_class).collect();
    if asked.is_empty() {
        return Ok((fitted.clone(), analysis.rate_now_per_s));
    }
    let classes = match &analysis.class_network {
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

/// Visits below a cache go with its misses.
fn change_hits(
    system: &System,
    analysis: &Analysis,
    network: &mut Network,
    tier: usize,
    share: f64,
) -> Result<(), String> {
    let name = &system.tiers[tier].name;
    let ratios: Vec<f64> =
        analysis.windows.used().filter_map(|window| window.tiers[tier].hit_ratio).collect();
    if ratios.is_empty() {
        return Err(format!("no query says how often `{name}` hits: give it `hits` and `misses`"));
    }
    let now = kendall_stats::sample::mean(&ratios);
    if now >= 1.0 {
        return Err(format!("`{name}` never missed: nothing says what a miss costs"));
    }
    let factor = (1.0 - share) / (1.0 - now);
    let below = network.centers[tier].below.clone();
    if let Some((other, caller)) = another_way(system, tier) {
        return Err(format!(
            "`{}` is called by `{}` too: nothing says how many of its requests are misses of `{name}`",
            system.tiers[other].name, system.tiers[caller].name
        ));
    }
    for other in below.into_iter().filter(|other| *other != tier) {
        network.centers[other].visits *= factor;
    }
    Ok(())
}

fn caveats(system: &System, analysis: &Analysis, network: &Network, rate: f64) -> Vec<String> {
    let mut caveats = Vec::new();
    let (least, most) = analysis.rates_seen_per_s;
    if rate > most || rate < least {
        caveats.push(format!(
            "the load of {rate:.4}/s lies beyond those seen ({least:.4} to {most:.4}/s)"
        ));
    }
    for (tier, center) in system.tiers.iter().zip(&network.centers) {
        if !center.held && tier.calls.is_empty() {
            caveats.extend(of_waiting(center));
        }
    }
    for (center, tier) in network.centers.iter().zip(&analysis.tiers) {
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
    caveats.extend(network.centers.iter().filter_map(of_delay));
    for center in network.centers.iter().filter(|center| center.held && !center.only_way) {
        caveats.push(format!(
            "the servers of `{}` are taken as free while those behind them work, since others call these too",
            center.name
        ));
    }
    if network.score.is_none() {
        caveats.push("no windows were left to score the network on".to_owned());
    }
    caveats
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
    (0..DRAWS)
        .map(|_| {
            let mut drawn = network.clone();
            for center in &mut drawn.centers {
                center.service_time_s.value = positive(center.service_time_s, &mut random);
                draw_residence(&mut center.residence, &mut random);
            }
            drawn.elsewhere_s.value = positive(drawn.elsewhere_s, &mut random);
            drawn.at(rate).ok().map(|point| (point.response_time_s, point.utilizations))
        })
        .collect()
}

/// Both parts of a stay, which err together.
fn draw_residence(residence: &mut Residence, random: &mut Xoshiro256PlusPlus) {
    let z: f64 = StandardNormal.sample(random);
    residence.waiting_factor.value = off_by(residence.waiting_factor, z);
    if residence.held_up.standard_error > 0.0 {
        let own: f64 = StandardNormal.sample(random);
        let together = residence.correlation;
        let z = together * z + (1.0 - together * together).max(0.0).sqrt() * own;
        residence.held_up.value = off_by(residence.held_up, z);
    }
}

/// Normal on the logarithm.
fn positive(number: Fitted, random: &mut Xoshiro256PlusPlus) -> f64 {
    off_by(number, StandardNormal.sample(random))
}

/// So many standard errors off; kept above 0 by taking them on the logarithm.
fn off_by(number: Fitted, errors: f64) -> f64 {
    if number.value <= 0.0 {
        return number.value;
    }
    number.value * (number.standard_error / number.value * errors).exp()
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

/// λ·V·S/m, whether there is a steady state or not; held servers as the network says.
fn utilizations(network: &Network, rate: f64, draws: &[Option<(f64, Vec<f64>)>]) -> Vec<Estimate> {
    let point = network.at(rate).ok();
    (0..network.centers.len())
        .map(|index| {
            let center = &network.centers[index];
            let offered =
                rate * center.visits * center.service_time_s.value / exact_f64(center.servers);
            let value = point.as_ref().map_or(offered, |point| point.utilizations[index]);
            let drawn: Vec<f64> =
                draws.iter().flatten().map(|(_, utilizations)| utilizations[index]).collect();
            Estimate { center: value, interval: between(drawn), caveats: Vec::new() }
        })
        .collect()
}

fn response_time(
    analysis: &Analysis,
    network: &Network,
    rate: f64,
    draws: &[Option<(f64, Vec<f64>)>],
    caveats: &mut Vec<String>,
) -> Result<Estimate, String> {
    if let Some(score) = network.score.as_ref().filter(|score| score.median_error > WORST_SCORE) {
        return Err(format!(
            "cannot tell: the network errs by {:.0} % in response time where it was scored, so \
             something that matters is not in the system file, or `busy` counts other work too",
            score.median_error * 100.0
        ));
    }
    let point = network.at(rate).map_err(|reason| {
        format!("at {rate:.4}/s there is no steady state: {reason}; the queue grows without end")
    })?;
    for ((center, tier), used) in
        network.centers.iter().zip(&analysis.tiers).zip(&point.utilizations)
    {
        let seen = tier.utilization_seen;
        if *used > seen + BEYOND * (1.0 - seen) {
            return Err(format!(
                "`{}` would be {:.0} % busy and was never seen above {:.0} %: nothing that was \
                 observed says how requests wait there; look at a time with more load, or load a copy \
                 of the system with `kendall run`",
                center.name,
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
    // The spread of the draws and the network's own error, both on the logarithm.
    let logs: Vec<f64> = draws.iter().flatten().map(|(time, _)| time.ln()).collect();
    let variance = kendall_stats::sample::variance(&logs).unwrap_or(0.0);
    let own = network.score.as_ref().map_or(UNSCORED_LOG_ERROR, |score| score.log_error);
    let degrees = network.score.as_ref().map_or(1, |score| score.windows.max(2) - 1);
    let t = kendall_stats::distribution::t_two_sided(CONFIDENCE, exact_f64(degrees as u64));
    let half = (NORMAL.powi(2) * variance + (t * own).powi(2)).sqrt();
    caveats.push(if own * own > variance {
        "the interval is mostly the network's own error where it was scored".to_owned()
    } else {
        "the interval is mostly the uncertainty of the fitted demands".to_owned()
    });
    let center = point.response_time_s;
    let interval =
        Interval { low: center * (-half).exp(), high: center * half.exp(), confidence: CONFIDENCE };
    Ok(Estimate::with_interval(center, interval))
}
