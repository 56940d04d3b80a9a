//! Forced flow, X of a tier = V · X of the entry, at every moment: a tier that follows the entry only when its series is
//! moved has another clock, or keeps requests for so long; one that does not follow it at all does not serve these
//! requests; and what it serves while the entry has no load are requests of its own.

use kendall_fit::model::{CONFIDENCE, NORMAL};
use kendall_stats::distribution::t_two_sided;
use kendall_stats::estimate::{Estimate, Interval};
use kendall_stats::sample;
use kendall_units::exact_f64;

use crate::fetch::Observed;
use crate::quantity::Quantity;
use crate::system::System;
use crate::windows::present;

/// Largest difference of clocks that is tried.
const LONGEST_LAG_S: u64 = 300;

/// A series is late where moving it halves what is left unexplained: chance alone, over hundreds of
/// moments and at lags that overlap, moves that by a few hundredths.
const CLEARLY_LATE: f64 = 2.0;

/// Moments that a correlation needs.
const FEWEST_MOMENTS: usize = 50;

/// Blocks of time over which the throughputs of two tiers are compared: a step has too few requests. At least so many
/// must have both.
const BLOCKS: usize = 24;
const FEWEST: usize = 5;

/// Spread of the entry's throughput over them, as a share, from which another must follow it.
const VARIES: f64 = 0.05;

/// Correlation and elasticity below which it does not follow, and correlation from which it does.
const FOLLOWS: f64 = 0.5;

/// Correlation from which a small elasticity is that of a tier with many requests of its own.
const CLOSELY: f64 = 0.8;

/// Share of a tier's requests from which those are told that do not come from the entry.
const NOTABLE: f64 = 0.02;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    Follows,
    /// Only when it is moved, by so many seconds.
    Late(f64),
    Unrelated,
    /// It follows neither clearly nor clearly not.
    Unknown,
}

/// Throughput of a tier beside that of the entry.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) verdict: Verdict,
    pub(crate) blocks: usize,
    /// Of (X/V − X₀)/X₀, mean and standard deviation.
    pub(crate) difference: f64,
    pub(crate) spread: f64,
    /// Standard deviation of the entry's, as a share.
    entry_spread: f64,
    /// Requests that do not come from the entry, 1/s, where there are notably many.
    pub(crate) own_per_s: Option<Estimate>,
}

impl Flow {
    pub(crate) fn why_unknown(&self) -> String {
        if self.blocks < FEWEST {
            return "too few moments have the throughput of both".to_owned();
        }
        if self.entry_spread <= VARIES {
            let (spread, needed) = (100.0 * self.entry_spread, 100.0 * VARIES);
            return format!(
                "the load of the entry varied by {spread:.1} %, {needed:.0} % are needed"
            );
        }
        "it follows the entry neither clearly nor clearly not; analyze a longer time".to_owned()
    }
}

/// Compares a tier with the entry since a step, its series moved by up to [`LONGEST_LAG_S`]. `None` for the entry itself, and
/// where one of them has no throughput.
pub(crate) fn flow(
    system: &System,
    observed: &Observed,
    index: usize,
    since: usize,
) -> Option<Flow> {
    let of = |index: usize| {
        let values = observed.tiers[index].series.get(&Quantity::Throughput)?;
        values.get(since..)
    };
    let (entry, other) = (of(system.entry)?, of(index).filter(|_| index != system.entry)?);
    let (lag, late) = lag(system, observed, entry, other).unwrap_or((0, true));
    let (ahead, behind) = if late { (entry, other) } else { (other, entry) };
    let (ahead, behind) = (ahead.get(..ahead.len() - lag)?, behind.get(lag..)?);
    let (entry, other) = if late { (ahead, behind) } else { (behind, ahead) };
    let both = Together::of(entry, other);
    let mut flow = Flow {
        verdict: Verdict::Unknown,
        blocks: both.entry.len(),
        difference: 0.0,
        spread: 0.0,
        entry_spread: spread(&both.entry) / sample::mean(&both.entry),
        own_per_s: None,
    };
    let Some((correlation, elasticity)) = both.correlation().zip(both.elasticity()) else {
        return Some(flow);
    };
    let varies = flow.entry_spread > VARIES;
    let apart = correlation.high < FOLLOWS && elasticity.high < 1.0;
    let hardly = elasticity.high < FOLLOWS && correlation.low < CLOSELY;
    flow.verdict = if varies && (apart || hardly) {
        Verdict::Unrelated
    } else if correlation.low < FOLLOWS {
        Verdict::Unknown
    } else if lag > 0 {
        Verdict::Late(exact_f64(lag as u64 * observed.grid.step_s) * if late { 1.0 } else { -1.0 })
    } else {
        Verdict::Follows
    };
    if varies && flow.verdict == Verdict::Follows {
        flow.own_per_s = both.own_per_s(&elasticity);
    }
    let differences = both.differences(flow.own_per_s.as_ref().map_or(0.0, |own| own.center));
    (flow.difference, flow.spread) = (sample::mean(&differences), spread(&differences));
    Some(flow)
}

/// By how many steps a series is clearly late, and whether it is late or early; `None` where both have one clock.
fn lag(
    system: &System,
    observed: &Observed,
    entry: &[f64],
    other: &[f64],
) -> Option<(usize, bool)> {
    let step_s = observed.grid.step_s;
    let most = usize::try_from(LONGEST_LAG_S / step_s).unwrap_or(0);
    let at = |lag: usize, late: bool| {
        let (ahead, behind) = if late { (entry, other) } else { (other, entry) };
        correlation(ahead, behind.get(lag..)?)
    };
    let now = at(0, true)?;
    let moved = (1..=most).flat_map(|lag| [(lag, true), (lag, false)]);
    let (lag, late, best) = moved
        .filter_map(|(lag, late)| Some((lag, late, at(lag, late)?)))
        .max_by(|a, b| a.2.total_cmp(&b.2))?;
    // What is left unexplained where it is not moved, over what is left where it is.
    let (rest, least) = (1.0 - now * now, (1.0 - best * best).max(f64::MIN_POSITIVE));
    // Two targets are scraped up to one interval apart.
    let told = lag as u64 * step_s > system.scrape_s;
    (told && now > 0.0 && best > now && rest / least > CLEARLY_LATE).then_some((lag, late))
}

/// Throughputs of the entry and of a tier, over blocks of time in which both are there.
struct Together {
    entry: Vec<f64>,
    other: Vec<f64>,
}

impl Together {
    fn of(entry: &[f64], other: &[f64]) -> Self {
        // What began later, or ended, divides into as many.
        let there = |(a, b): (&f64, &f64)| a.is_finite() && b.is_finite();
        let mut both = entry.iter().zip(other).map(there);
        let first = both.clone().position(|there| there).unwrap_or(0);
        let last = both.rposition(|there| there).map_or(first, |last| last + 1);
        let (entry, other) = (&entry[first..last], &other[first..last]);
        let steps = entry.len().div_ceil(BLOCKS).max(1);
        let blocks = entry.chunks(steps).zip(other.chunks(steps));
        let (entry, other) =
            blocks.filter_map(|(entry, other)| Some((present(entry)?, present(other)?))).unzip();
        Self { entry, other }
    }

    /// 95 % interval, by Fisher's z; `None` for too few blocks, and where one of both does not vary at all.
    fn correlation(&self) -> Option<Interval> {
        if self.entry.len() < FEWEST {
            return None;
        }
        let z = sample::correlation(&self.entry, &self.other)?.atanh();
        let half = NORMAL / exact_f64(self.entry.len() as u64 - 3).sqrt();
        Some(Interval { low: (z - half).tanh(), high: (z + half).tanh(), confidence: CONFIDENCE })
    }

    /// By how much the one changes, as a share, where the other does: 1 where each request visits the tier alike. By least
    /// squares, with its interval.
    fn elasticity(&self) -> Option<Interval> {
        let (mean_entry, mean_other) = (sample::mean(&self.entry), sample::mean(&self.other));
        let scale = mean_entry / mean_other;
        let correlation = sample::correlation(&self.entry, &self.other)?;
        let ratio = scale * spread(&self.other) / spread(&self.entry);
        let degrees = exact_f64((self.entry.len() as u64).checked_sub(2).filter(|left| *left > 0)?);
        let error = ratio * ((1.0 - correlation * correlation).max(0.0) / degrees).sqrt();
        let found = Interval::around(
            correlation * ratio,
            t_two_sided(CONFIDENCE, degrees) * error,
            CONFIDENCE,
        );
        found.low.is_finite().then_some(found)
    }

    /// What is served without load. Chance in the entry's figures makes a tier look as if it followed less: the elasticity
    /// is up to 1/r² as large as least squares say.
    fn own_per_s(&self, elasticity: &Interval) -> Option<Estimate> {
        let mean = sample::mean(&self.other);
        let correlation = sample::correlation(&self.entry, &self.other)?;
        let share = 1.0 - f64::midpoint(elasticity.low, elasticity.high);
        let interval = Interval {
            low: mean * (1.0 - elasticity.high / (correlation * correlation)),
            high: mean * (1.0 - elasticity.low),
            confidence: CONFIDENCE,
        };
        (share >= NOTABLE && interval.low > 0.0)
            .then(|| Estimate::with_interval(mean * share, interval))
    }

    /// (X/V − X₀)/X₀ of each block, of the requests that come from the entry.
    fn differences(&self, own_per_s: f64) -> Vec<f64> {
        let visits = (sample::mean(&self.other) - own_per_s) / sample::mean(&self.entry);
        let both = self.entry.iter().zip(&self.other);
        let of = both.map(|(entry, other)| ((other - own_per_s) / visits - entry) / entry);
        of.filter(|difference| difference.is_finite()).collect()
    }
}

fn spread(values: &[f64]) -> f64 {
    sample::variance(values).unwrap_or(0.0).sqrt()
}

/// Of the moments at which both are there; `None` where one of them does not vary.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let pairs = a.iter().copied().zip(b.iter().copied());
    let there: Vec<(f64, f64)> = pairs.filter(|(a, b)| a.is_finite() && b.is_finite()).collect();
    if there.len() < FEWEST_MOMENTS {
        return None;
    }
    let (a, b): (Vec<f64>, Vec<f64>) = there.into_iter().unzip();
    sample::correlation(&a, &b)
}
