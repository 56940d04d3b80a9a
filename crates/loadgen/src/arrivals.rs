//! Arrival schedules of the open loop: the moments at which requests are due.
//!
//! A schedule is drawn once, from the seed alone, so it is the same whatever the server does and
//! however many threads send it: thread number t of T sends every T-th arrival from the t-th on.

use std::path::Path;

use kendall_tier::distribution::{Distribution, unit_interval};
use rand_distr::Distribution as _;

use crate::clock::SECOND_NS;
use crate::random::{Purpose, Random, stream};
use crate::stages::Stages;

/// Highest rate, in arrivals a second: far above what threads can send. Those that were not sent are
/// drawn and counted after the end, ten million of them in a tenth of a second.
const MOST_RATE: f64 = 1e7;

/// When requests are due, in words.
#[derive(Debug, Clone)]
pub enum ArrivalPlan {
    /// So many arrivals a second, evenly.
    Constant { rate: f64 },
    /// So many a second on average, with gaps from the exponential distribution: a Poisson process.
    Poisson { rate: f64 },
    /// Gaps from any distribution, in seconds.
    Gaps(Distribution),
    /// Bursts: a Poisson process whose rate changes between two, each for an exponential time (an MMPP of two
    /// states). On and off where the second rate is 0.
    Bursts([State; 2]),
    /// The moments of a file, in nanoseconds after the start, in order.
    Trace(Vec<u64>),
    /// A rate that grows by a step at a time.
    Steps(Steps),
    /// A rate that goes from level to level in straight lines, as a Poisson process of that rate or evenly.
    Stages { stages: Stages, poisson: bool },
}

/// A rate that lasts for an exponential time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    pub rate: f64,
    /// Mean time, in seconds.
    pub lasts: f64,
}

/// A rate that grows by a step at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// Arrivals a second at first.
    pub from: f64,
    pub to: f64,
    /// By how much it grows.
    pub by: f64,
    /// How long each rate lasts, in seconds.
    pub every: f64,
    /// Exponential gaps; else even ones.
    pub poisson: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    #[error(
        "`{text}` is not a kind of arrivals; write `poisson`, `constant`, `gaps:DISTRIBUTION`, \
         `on-off:ON,OFF` such as `on-off:100ms,400ms`, `mmpp:RATE,TIME,RATE,TIME` such as \
         `mmpp:900/s,100ms,50/s,400ms`, `steps:100/s..1000/s,100/s,5s`, \
         `poisson-steps:…` or `trace:PATH`"
    )]
    Form { text: String },
    #[error("`{kind}` arrivals need a rate above 0; write it like `--rate 250/s`")]
    NoRate { kind: String },
    #[error("`{kind}` arrivals bring their own rate; leave out `--rate`")]
    TwoRates { kind: String },
    #[error("`{kind}` arrivals cannot change in stages; `poisson` and `constant` can")]
    OwnRate { kind: String },
    #[error(
        "{rate:.0} arrivals a second are more than any machine sends; the most is {MOST_RATE:.0}/s"
    )]
    TooDense { rate: f64 },
    #[error("the distribution of the gaps")]
    Gaps(#[source] kendall_tier::distribution::DistributionError),
    #[error("cannot read the arrivals of `{path}`")]
    File { path: String, source: std::io::Error },
    #[error(
        "{path}, line {line}: `{text}` is not a moment at or after the one before; write seconds \
         since the start, like `0.125`, or a time, like `125ms`"
    )]
    Line { path: String, line: usize, text: String },
}

impl ArrivalPlan {
    /// Reads a kind of arrivals with the rate that goes with it.
    pub fn parse(text: &str, rate: Option<f64>) -> Result<Self, ArrivalError> {
        Self::parse_kind(text, rate)?.if_not_too_dense()
    }

    /// Arrivals at rates that change in stages, spaced as `kind` says: `poisson` or `constant`.
    pub fn in_stages(stages: Stages, kind: &str) -> Result<Self, ArrivalError> {
        let poisson = match kind {
            "poisson" => true,
            "constant" => false,
            other => return Err(ArrivalError::OwnRate { kind: other.to_owned() }),
        };
        Self::Stages { stages, poisson }.if_not_too_dense()
    }

    fn if_not_too_dense(self) -> Result<Self, ArrivalError> {
        let plan = self;
        let densest = match &plan {
            Self::Steps(steps) => Some(steps.to),
            Self::Stages { stages, .. } => Some(stages.highest()),
            Self::Bursts([one, other]) => Some(one.rate.max(other.rate)),
            _ => plan.rate(),
        };
        match densest.filter(|rate| *rate > MOST_RATE) {
            Some(rate) => Err(ArrivalError::TooDense { rate }),
            None => Ok(plan),
        }
    }

    fn parse_kind(text: &str, rate: Option<f64>) -> Result<Self, ArrivalError> {
        let form = || ArrivalError::Form { text: text.to_owned() };
        let (kind, rest) = text.split_once(':').map_or((text, None), |(k, r)| (k, Some(r)));
        let kind_text = || kind.to_owned();
        let with_rate = || {
            rate.filter(|rate| *rate > 0.0)
                .ok_or_else(|| ArrivalError::NoRate { kind: kind_text() })
        };
        let own = |plan: Self| match rate {
            Some(_) => Err(ArrivalError::TwoRates { kind: kind_text() }),
            None => Ok(plan),
        };
        match (kind, rest) {
            ("poisson", None) => Ok(Self::Poisson { rate: with_rate()? }),
            ("constant", None) => Ok(Self::Constant { rate: with_rate()? }),
            ("gaps", Some(gaps)) => {
                let gaps = Distribution::parse(gaps, kendall_tier::distribution::Unit::Time)
                    .map_err(ArrivalError::Gaps)?;
                match gaps.mean() {
                    Some(mean) if mean > 0.0 => own(Self::Gaps(gaps)),
                    _ => Err(form()),
                }
            }
            ("on-off", Some(times)) => {
                let (on, off) = times.split_once(',').ok_or_else(form)?;
                let (on, off) = above_0(on).zip(above_0(off)).ok_or_else(form)?;
                let on = State { rate: with_rate()? * (on + off) / on, lasts: on };
                Ok(Self::Bursts([on, State { rate: 0.0, lasts: off }]))
            }
            ("mmpp", Some(states)) => own(Self::Bursts(State::parse(states).ok_or_else(form)?)),
            ("steps", Some(steps)) => {
                own(Self::Steps(Steps::parse(steps, false).ok_or_else(form)?))
            }
            ("poisson-steps", Some(steps)) => {
                own(Self::Steps(Steps::parse(steps, true).ok_or_else(form)?))
            }
            ("trace", Some(path)) => own(Self::Trace(read_trace(Path::new(path))?)),
            _ => Err(form()),
        }
    }

    /// Whether gaps should be those of a Poisson process all through.
    pub fn is_poisson(&self) -> bool {
        matches!(self, Self::Poisson { .. } | Self::Gaps(Distribution::Exponential(_)))
    }

    /// The mean rate that was asked for; `None` where it follows from the file or the steps.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Constant { rate } | Self::Poisson { rate } => Some(*rate),
            Self::Bursts([one, other]) => {
                let arrivals = one.rate.mul_add(one.lasts, other.rate * other.lasts);
                Some(arrivals / (one.lasts + other.lasts))
            }
            Self::Gaps(gaps) => gaps.mean().map(|mean| 1.0 / mean),
            Self::Trace(_) | Self::Steps(_) | Self::Stages { .. } => None,
        }
    }

    /// The part of the schedule that thread number `thread` of `threads` sends.
    pub(crate) fn part(&self, seed: u64, thread: usize, threads: usize) -> Arrivals {
        let mut arrivals = Arrivals {
            plan: self.clone(),
            random: stream(seed, Purpose::Arrivals, 0),
            count: 0,
            at_s: 0.0,
            state: 0,
            state_ends_s: 0.0,
            threads,
            next_ns: None,
        };
        arrivals.next_ns = arrivals.draw();
        for _ in 0..thread {
            arrivals.next_ns = arrivals.draw();
        }
        arrivals
    }
}

/// A time that is not 0, in seconds.
fn above_0(text: &str) -> Option<f64> {
    kendall_units::parse_seconds(text).ok().map(|time| time.get()).filter(|time| *time > 0.0)
}

impl State {
    /// `900/s,100ms,50/s,400ms`: two of them, of which one has arrivals.
    fn parse(text: &str) -> Option<[Self; 2]> {
        let parts: Vec<&str> = text.split(',').collect();
        let [one, of_one, other, of_other] = parts[..] else { return None };
        let state = |rate: &str, lasts: &str| {
            let rate = kendall_units::parse_rate(rate).ok()?.get();
            Some(Self { rate, lasts: above_0(lasts)? }).filter(|_| rate >= 0.0)
        };
        let both = [state(one, of_one)?, state(other, of_other)?];
        (both[0].rate + both[1].rate > 0.0).then_some(both)
    }
}

impl Steps {
    /// `100/s..1000/s,100/s,5s`.
    fn parse(text: &str, poisson: bool) -> Option<Self> {
        let mut parts = text.split(',');
        let (from, to) = parts.next()?.split_once("..")?;
        let rate = |text: &str| kendall_units::parse_rate(text).ok().map(|rate| rate.get());
        let (from, to, by) = (rate(from)?, rate(to)?, rate(parts.next()?)?);
        let every = kendall_units::parse_seconds(parts.next()?).ok()?.get();
        let fits = from > 0.0 && to >= from && by > 0.0 && every > 0.0 && parts.next().is_none();
        fits.then_some(Self { from, to, by, every, poisson })
    }

    fn rate(self, at_s: f64) -> f64 {
        (at_s / self.every).floor().mul_add(self.by, self.from).min(self.to)
    }
}

fn read_trace(path: &Path) -> Result<Vec<u64>, ArrivalError> {
    let name = path.display().to_string();
    let text = kendall_tier::read_text(path, kendall_tier::LARGEST_FILE)
        .map_err(|source| ArrivalError::File { path: name.clone(), source })?;
    let mut moments = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bare = line.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
        let moment = bare
            .map(kendall_units::Seconds::new)
            .or_else(|| kendall_units::parse_seconds(line).ok())
            .map(kendall_units::Seconds::as_nanos)
            .filter(|moment| moments.last().is_none_or(|last| last <= moment));
        moments.push(moment.ok_or_else(|| ArrivalError::Line {
            path: name.clone(),
            line: index + 1,
            text: line.chars().take(40).collect(),
        })?);
    }
    Ok(moments)
}

/// The part of a schedule that one thread sends.
#[derive(Debug)]
pub(crate) struct Arrivals {
    plan: ArrivalPlan,
    random: Random,
    /// Arrivals drawn, of all threads.
    count: u64,
    at_s: f64,
    /// Of two, the one that lasts, and until when.
    state: usize,
    state_ends_s: f64,
    threads: usize,
    next_ns: Option<u64>,
}

impl Arrivals {
    /// When the next request is due, after the start of the load.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Goes on to the next request of this thread.
    pub(crate) fn advance(&mut self) {
        for _ in 0..self.threads {
            self.next_ns = self.draw();
        }
    }

    /// The next arrival of all threads.
    fn draw(&mut self) -> Option<u64> {
        let count = self.count;
        self.count += 1;
        match &self.plan {
            // From the count and not from the moment before, so that no rounding adds up.
            ArrivalPlan::Constant { rate } => {
                return Some(seconds_to_ns(kendall_units::exact_f64(count) / rate));
            }
            ArrivalPlan::Trace(moments) => {
                return usize::try_from(count).ok().and_then(|at| moments.get(at)).copied();
            }
            ArrivalPlan::Poisson { rate } => self.at_s += exponential(&mut self.random) / rate,
            ArrivalPlan::Gaps(gaps) => self.at_s += gaps.sample(&mut self.random),
            ArrivalPlan::Bursts(states) => {
                // As of a rate of 1, each state taking the share that its rate and its time are. Exponential gaps
                // have no memory, so that is exact.
                let mut gap = exponential(&mut self.random);
                // It begins as at a random moment, or the first arrivals would be too few.
                let all = states[0].lasts + states[1].lasts;
                if count == 0 && unit_interval(&mut self.random) * all < states[0].lasts {
                    self.state_ends_s = exponential(&mut self.random) * states[0].lasts;
                }
                let mut share = (self.state_ends_s - self.at_s) * states[self.state].rate;
                while gap >= share {
                    gap -= share;
                    self.at_s = self.state_ends_s;
                    self.state = 1 - self.state;
                    let State { rate, lasts } = states[self.state];
                    let lasts = exponential(&mut self.random) * lasts;
                    self.state_ends_s += lasts;
                    share = lasts * rate;
                }
                self.at_s += gap / states[self.state].rate;
            }
            ArrivalPlan::Stages { stages, poisson } => {
                // As arrivals of a rate of 1, each at the moment by which the stages have so many.
                self.at_s = if *poisson {
                    self.at_s + exponential(&mut self.random)
                } else {
                    kendall_units::exact_f64(count)
                };
                return stages.moment_s(self.at_s).map(seconds_to_ns);
            }
            ArrivalPlan::Steps(steps) => {
                let rate = steps.rate(self.at_s);
                let gap = if steps.poisson { exponential(&mut self.random) } else { 1.0 };
                self.at_s += gap / rate;
            }
        }
        Some(seconds_to_ns(self.at_s))
    }
}

fn exponential(random: &mut Random) -> f64 {
    rand_distr::Exp1.sample(random)
}

fn seconds_to_ns(seconds: f64) -> u64 {
    // Beyond 104 days nanoseconds are not exact; no load lasts that long, and it ends there.
    kendall_units::whole_u64((seconds * 1e9).round()).min(SECOND_NS << 23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{coefficient_of_variation, exponential_distance, gaps};

    fn moments(text: &str, rate: Option<f64>, count: usize) -> Vec<u64> {
        let mut arrivals = ArrivalPlan::parse(text, rate).unwrap().part(42, 0, 1);
        let mut moments = Vec::new();
        while let Some(next) = arrivals.next_ns().filter(|_| moments.len() < count) {
            moments.push(next);
            arrivals.advance();
        }
        moments
    }

    #[test]
    fn the_threads_together_send_the_whole_schedule() {
        let plan = ArrivalPlan::Poisson { rate: 1_000.0 };
        let whole = moments("poisson", Some(1_000.0), 900);
        let mut together = Vec::new();
        for thread in 0..3 {
            let mut part = plan.part(42, thread, 3);
            for _ in 0..300 {
                together.extend(part.next_ns());
                part.advance();
            }
        }
        together.sort_unstable();
        assert_eq!(together, whole);
    }

    #[test]
    fn even_gaps_do_not_drift() {
        let moments = moments("constant", Some(3.0), 3_000_001);
        assert_eq!(moments.last(), Some(&1_000_000_000_000_000));
    }

    /// CV of an exponential sample of n: standard error about 1/√n = 0.0032; Kolmogorov's distance
    /// exceeds 1.95/√n = 0.0062 once in a thousand.
    #[test]
    fn poisson_gaps_are_exponential() {
        let gaps = gaps(&moments("poisson", Some(5_000.0), 100_001));
        assert!((coefficient_of_variation(&gaps).unwrap() - 1.0).abs() < 0.013);
        assert!(exponential_distance(&gaps).unwrap() < 0.0062);
    }

    /// Over 2,000 bursts of mean 100 ms: the count of a burst period has a relative deviation near
    /// √2, so four standard errors of the mean rate are 4·√2/√2000 = 13 %.
    #[test]
    fn bursts_keep_the_mean_rate_and_are_no_poisson_process() {
        let count = 1_000_000;
        let moments = moments("on-off:100ms,400ms", Some(1_000.0), count);
        let rate = 1e9 * 1e6 / kendall_units::exact_f64(*moments.last().unwrap());
        assert!((rate / 1_000.0 - 1.0).abs() < 0.13, "{rate}");
        assert!(coefficient_of_variation(&gaps(&moments)).unwrap() > 3.0);
    }

    /// 900/s and 100/s, each for 1 s on average. The share of 200 s that is in the first has the variance
    /// 2·¼·½/200, of a correlation that lasts half a second: four deviations of the rate are 4·800·0.035 = 113. In
    /// one of six seconds the first rate lasts all through, in another the second.
    #[test]
    fn two_rates_alternate() {
        let plan = ArrivalPlan::parse("mmpp:900/s,1s,100/s,1s", None).unwrap();
        assert_eq!(plan.rate(), Some(500.0));
        let moments = moments("mmpp:900/s,1s,100/s,1s", None, 100_000);
        let rate = 1e9 * 1e5 / kendall_units::exact_f64(*moments.last().unwrap());
        assert!((rate - 500.0).abs() < 113.0, "{rate}");
        let mut counts = vec![0_u32; 100];
        for moment in moments {
            let second = usize::try_from(moment / SECOND_NS).unwrap();
            counts.get_mut(second).into_iter().for_each(|count| *count += 1);
        }
        let most = counts.iter().max().unwrap();
        assert!(*most > 700 && *counts.iter().min().unwrap() < 300, "{counts:?}");
    }

    #[test]
    fn steps_grow_up_to_their_limit() {
        let moments = moments("steps:100/s..300/s,100/s,1s", None, 10_000);
        let in_second =
            |second: u64| moments.iter().filter(|moment| **moment / SECOND_NS == second).count();
        for (second, expected) in [(0, 100), (1, 200), (2, 300), (3, 300)] {
            assert!(in_second(second).abs_diff(expected) <= 1, "second {second}");
        }
    }

    /// 5,000 arrivals in a ramp to 1,000/s within 10 s: 50 in the first second, 950 in the last. A count of a
    /// Poisson process of mean m strays by more than five times √m in one of a million.
    #[test]
    fn stages_have_their_rates_evenly_and_at_random() {
        for (kind, slack) in [("constant", 1.0), ("poisson", 5.0 * 950_f64.sqrt())] {
            let stages = Stages::parse("10s:1000/s").unwrap();
            let mut arrivals = ArrivalPlan::in_stages(stages, kind).unwrap().part(42, 0, 1);
            let mut counts = [0_u32; 10];
            while let Some(due) = arrivals.next_ns() {
                counts[usize::try_from(due / SECOND_NS).unwrap()] += 1;
                arrivals.advance();
            }
            for (count, expected) in [(counts[0], 50.0), (counts[4], 450.0), (counts[9], 950.0)] {
                assert!((f64::from(count) - expected).abs() <= slack, "{kind}: {counts:?}");
            }
        }
        let stages = || Stages::parse("1s:5/s").unwrap();
        assert!(ArrivalPlan::in_stages(stages(), "on-off:1s,1s").is_err());
        assert!(
            ArrivalPlan::in_stages(Stages::parse("1s:100000000/s").unwrap(), "poisson").is_err()
        );
    }

    #[test]
    fn a_trace_is_replayed_and_a_step_back_in_time_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, "# moments\n0\n0.5\n\n750ms\n").unwrap();
        let text = format!("trace:{}", path.display());
        assert_eq!(moments(&text, None, 9), [0, 500_000_000, 750_000_000]);
        std::fs::write(&path, "1\n0.5\n").unwrap();
        let error = ArrivalPlan::parse(&text, None).unwrap_err().to_string();
        assert!(error.contains("line 2: `0.5`"), "{error}");
    }

    /// Bursts that always began with a time off had 8 of 50 arrivals too few in the first five seconds.
    /// The time on in 5 s has a standard deviation of about 1 s, so a count has about 53, and the mean of
    /// 4,000 schedules 0.84: the tolerance is five of these.
    #[test]
    fn bursts_have_their_rate_from_the_start() {
        let plan = ArrivalPlan::parse("on-off:1s,4s", Some(10.0)).unwrap();
        let count = |seed: u64| {
            let mut arrivals = plan.part(seed, 0, 1);
            let mut count = 0_u32;
            while arrivals.next_ns().is_some_and(|due| due < 5 * SECOND_NS) {
                arrivals.advance();
                count += 1;
            }
            f64::from(count)
        };
        let mean = (0..4_000).map(count).sum::<f64>() / 4_000.0;
        assert!((mean - 50.0).abs() < 4.2, "{mean}");
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for (text, rate) in [
            ("poisson", None),
            ("constant", Some(0.0)),
            ("steps:100/s..50/s,10/s,1s", None),
            ("on-off:100ms", Some(1.0)),
            ("mmpp:1/s,1s,2/s", None),
            ("mmpp:0/s,1s,0/s,1s", None),
            ("mmpp:1/s,0s,2/s,1s", None),
            ("mmpp:1/s,1s,2/s,1s", Some(1.0)),
            ("gaps:0ms", None),
            ("trace:/nonexistent", None),
            ("trace:/nonexistent", Some(1.0)),
            ("uniform", Some(1.0)),
            ("poisson", Some(1e9)),
            ("gaps:exponential:1ns", None),
            ("steps:1/s..1000000000/s,1/s,1s", None),
        ] {
            assert!(ArrivalPlan::parse(text, rate).is_err(), "{text}");
        }
    }
}
