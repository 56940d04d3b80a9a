//! A number, how sure it is, and what makes it less sure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An interval that holds the true value with probability `confidence` in repeated experiments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// From 0 to 1; the level that was achieved, which may exceed the one that was asked for.
    pub confidence: f64,
}

impl Interval {
    /// The interval `center ± half_width`.
    ///
    /// # Example
    /// ```
    /// use kendall_stats::estimate::Interval;
    /// assert!(Interval::around(10.0, 2.0, 0.95).contains(11.5));
    /// ```
    #[must_use]
    pub fn around(center: f64, half_width: f64, confidence: f64) -> Self {
        Self { low: center - half_width, high: center + half_width, confidence }
    }

    /// Half of its width.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Whether `value` lies in it, ends included.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether an interval of what is positive is so wide that its ends have no sense.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        const FACTOR: f64 = 4.0;
        self.high > FACTOR * self.low.max(f64::MIN_POSITIVE)
    }

    /// Both ends through a monotone `map`, in the right order whichever way it runs.
    #[must_use]
    pub fn map(&self, map: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (map(self.low), map(self.high));
        Self { low: a.min(b), high: a.max(b), confidence: self.confidence }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", figures(self.low, 5), figures(self.high, 5))
    }
}

/// A number with its interval and what should be known before it is trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate.
    pub center: f64,
    /// `None` where the data do not carry one; a caveat says why.
    pub interval: Option<Interval>,
    /// Reasons to trust it less.
    pub caveats: Vec<Caveat>,
}

impl Estimate {
    /// A number without an interval and without a caveat, such as a count or a setting.
    #[must_use]
    pub fn exact(center: f64) -> Self {
        Self { center, interval: None, caveats: Vec::new() }
    }

    /// A number with its interval.
    #[must_use]
    pub fn with_interval(center: f64, interval: Interval) -> Self {
        Self { center, interval: Some(interval), caveats: Vec::new() }
    }

    /// The same number, with one more caveat; the same one twice is kept once.
    #[must_use]
    pub fn doubt(mut self, caveat: Caveat) -> Self {
        if !self.caveats.contains(&caveat) {
            self.caveats.push(caveat);
        }
        self
    }

    /// Half the interval's width over the center's magnitude; `None` without an interval or at 0.
    #[must_use]
    pub fn relative_half_width(&self) -> Option<f64> {
        let interval = self.interval?;
        (self.center != 0.0).then(|| interval.half_width() / self.center.abs())
    }

    /// The same estimate in another unit or on another scale; `map` is monotone.
    #[must_use]
    pub fn map(&self, map: impl Fn(f64) -> f64) -> Self {
        Self {
            center: map(self.center),
            interval: self.interval.map(|interval| interval.map(&map)),
            caveats: self.caveats.clone(),
        }
    }
}

impl fmt::Display for Estimate {
    /// `5221.8 [5126.2, 5317.5]`; a trailing `*` says that there are caveats.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", figures(self.center, 5))?;
        if let Some(interval) = self.interval {
            write!(f, " {interval}")?;
        }
        if self.caveats.is_empty() { Ok(()) } else { write!(f, " *") }
    }
}

/// `value` with so many significant figures, in plain decimals where that is readable.
///
/// # Example
/// ```
/// use kendall_stats::estimate::figures;
/// assert_eq!(figures(5221.834, 5), "5221.8");
/// assert_eq!(figures(0.000_012_345, 3), "1.23e-5");
/// ```
#[must_use]
pub fn figures(value: f64, significant: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let scientific = format!("{value:.*e}", significant.saturating_sub(1));
    let exponent: i32 =
        scientific.split_once('e').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(0);
    if !(-4..15).contains(&exponent) {
        return scientific;
    }
    let figures = i32::try_from(significant).unwrap_or(17);
    let decimals = usize::try_from((figures - 1 - exponent).max(0)).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// A law that every measurement obeys, so that breaking it accuses the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// N = X·R.
    Little,
    /// U = X·D.
    Utilization,
    /// Xₖ = X·Vₖ.
    ForcedFlow,
    /// X = N / (R + Z).
    InteractiveResponseTime,
    /// R at the clients = R at the tier + what lies between.
    ClientsAndTier,
}

impl Law {
    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InteractiveResponseTime => "interactive response time law",
            Self::Little => "Little's law, requests waiting",
            Self::Utilization => "utilization law, workers",
            Self::ForcedFlow => "forced flow law",
            Self::ClientsAndTier => "clients against tier",
        }
    }

    /// The equation as a measurement is checked by it, measured side first.
    #[must_use]
    pub fn equation(self) -> &'static str {
        match self {
            Self::InteractiveResponseTime => "X = N/(R + Z)",
            Self::Little => "queue length = X·W",
            Self::Utilization => "workers busy = X·V·S",
            Self::ForcedFlow => "X of the tier = X of the clients",
            Self::ClientsAndTier => "R of the clients = R of the tier + delay of the links",
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Little => "Little's law",
            Self::Utilization => "the utilization law",
            Self::ForcedFlow => "the forced flow law",
            Self::InteractiveResponseTime => "the interactive response-time law",
            Self::ClientsAndTier => "clients and tier: R of the clients = R of the tier + links",
        })
    }
}

/// What an analysis takes for granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assumption {
    /// Errors do not depend on one another or on the order of the runs.
    Independence,
    /// Errors are normally distributed.
    Normality,
    /// Errors are as large in every cell.
    EqualVariance,
    /// Effects add; they do not multiply.
    Additivity,
    /// The response is a straight line between the two levels.
    Linearity,
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Independence => "independent errors",
            Self::Normality => "normal errors",
            Self::EqualVariance => "equal variance",
            Self::Additivity => "additive effects",
            Self::Linearity => "a straight line between the levels",
        })
    }
}

/// A program outside the study, and how much of the machine it used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherProgram {
    /// Its command.
    pub command: String,
    /// Cores that all processes of it used together.
    pub cores: f64,
}

/// Of this share of a run, or of so many times a run, threads were ready and had no core.
fn waited(share: f64) -> String {
    if share < 1.0 {
        format!("{:.1} % spent waiting for a core", 100.0 * share)
    } else {
        format!("{share:.1} threads waiting for a core on average")
    }
}

impl OtherProgram {
    /// After a word that leads to them; empty where there are none.
    #[must_use]
    pub fn all_in_words(lead: &str, programs: &[Self]) -> String {
        if programs.is_empty() {
            return String::new();
        }
        let each = programs.iter().map(|one| format!("`{}` {:.2} cores", one.command, one.cores));
        format!("{lead}{}", each.collect::<Vec<_>>().join(", "))
    }
}

/// A reason to trust a number less. Stored and printed beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "caveat", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the error texts say it")]
pub enum Caveat {
    #[error("{}, an interval needs {need}", kendall_units::counted(*have, "replication"))]
    TooFewReplications { have: u64, need: u64 },
    #[error(
        "no interval: {runs} runs put it anywhere within a factor of {factor:.0}; more repetitions \
         or a quieter machine would tell"
    )]
    IntervalTooWide {
        runs: u64,
        /// High end over low end of the interval that was refused.
        factor: f64,
    },
    #[error(
        "no interval: {runs} runs gave the same value, so how far another would differ is not known"
    )]
    EqualRuns { runs: u64 },
    #[error(
        "too few samples for p{p}: {effective:.0} effectively independent ones, it needs {need:.0}; \
         run longer",
        p = percent(*quantile)
    )]
    TooFewSamples {
        /// The percentile, 0 to 1.
        quantile: f64,
        effective: f64,
        need: f64,
    },
    #[error(
        "{}, an interval needs {need}: the observations depend on one another over too long a time; \
         run longer",
        kendall_units::counted(*batches, "independent batch")
    )]
    TooCorrelated { batches: u64, need: u64 },
    #[error("too few windows for an interval: {windows}, it needs {need}; run longer")]
    TooFewWindows { windows: u64, need: u64 },
    #[error(
        "the largest {values} values fall off like a power of {index:.1}: below 2 the variance is \
         infinite, and the interval of the mean holds less often than it says; use percentiles"
    )]
    HeavyTail {
        /// Tail index by Hill's estimator.
        index: f64,
        values: u64,
    },
    #[error(
        "{count} observations carry the information of {effective:.0} independent ones ({share:.1} %)",
        share = 100.0 * effective / kendall_units::exact_f64(*count).max(1.0)
    )]
    Autocorrelated { count: u64, effective: f64 },
    #[error(
        "not stationary: it changes by {} % from the first to the second half",
        signed(100.0 * relative_change)
    )]
    NonStationary {
        /// Second half over first half, minus one.
        relative_change: f64,
        /// Probability of so large a change in a stationary run.
        p_value: f64,
    },
    #[error(
        "the machine was {percent:.0} % {way} than in {runs} runs of the same block at a like load, by \
         the speed probe",
        percent = 100.0 * relative_change.abs(),
        way = if *relative_change > 0.0 { "slower" } else { "faster" }
    )]
    SpeedDiffers {
        /// Time of the probe over its mean in those runs, minus one.
        relative_change: f64,
        runs: u64,
    },
    #[error("no end of the warm-up found in the first half of {windows} windows; run longer")]
    WarmUpNotFound { windows: u64 },
    #[error(
        "too few windows to find a warm-up or a cool-down: {windows}, {need} are needed; nothing \
         was cut beyond what the study states"
    )]
    SeriesTooShort { windows: u64, need: u64 },
    #[error(
        "generator late: 1 % of the requests were sent more than {late:.3} ms after they were due",
        late = 1e3 * lateness_p99_s
    )]
    GeneratorLate {
        /// 99th percentile of planned to sent.
        lateness_p99_s: f64,
    },
    #[error("clock unstable: off by {offset:.3} ms", offset = 1e3 * offset_s)]
    ClockUnstable {
        /// Largest disagreement between clocks that should agree.
        offset_s: f64,
    },
    #[error(
        "noisy neighbor: {stolen:.1} % of the time stolen, {waited}{named}",
        stolen = 100.0 * steal_share,
        waited = waited(*run_queue_wait_share),
        named = OtherProgram::all_in_words("; of other programs used most ", programs)
    )]
    NoisyNeighbor {
        /// Share of the machine's time that the hypervisor gave to others.
        steal_share: f64,
        /// Share of the run that our threads were ready and had no core.
        run_queue_wait_share: f64,
        #[serde(default)]
        programs: Vec<OtherProgram>,
    },
    #[error("other programs ran beside it{}", OtherProgram::all_in_words(": ", programs))]
    OthersBeside { programs: Vec<OtherProgram> },
    #[error(
        "the machine was full: the study's own processes waited for a core for {wait:.1} % of the \
         cores' time, so tiers and generator slowed one another down",
        wait = 100.0 * run_queue_wait_share
    )]
    MachineFull {
        /// Share of the cores' time that our threads were ready and had no core.
        run_queue_wait_share: f64,
    },
    #[error("the clock of host {host} is known to ±{:.3} ms only", 1e3 * bound_s)]
    ClockUncertain {
        host: String,
        /// The most that its moments can be wrong by.
        bound_s: f64,
    },
    #[error(
        "host {host} sent nothing for {silent_s:.1} s: the network to it failed, or it was suspended"
    )]
    HostSilent { host: String, silent_s: f64 },
    #[error(
        "cores were limited by processors, as no control group may be made: {which}; unlike with a limit of \
         time, the tier waits where the load or another program is on its processor"
    )]
    CoresByProcessors { which: String },
    #[error("{}{text}", generator.map(|number| format!("generator {number}: ")).unwrap_or_default())]
    Remarked {
        generator: Option<u32>,
        /// What it is about, by the generator's own word for it.
        kind: String,
        text: String,
    },
    #[error("too short for windows that all generators cover: they started {:.1} ms apart", 1e3 * apart_s)]
    GeneratorsApart {
        /// Between the first start and the last.
        apart_s: f64,
    },
    #[error("{tier} {instance}: {what}")]
    TierContradicts { tier: String, instance: u32, what: String },
    #[error("{name} had to be killed at the end")]
    Killed { name: String },
    #[error(
        "the end of the run ({}) differs from the rest and is left out: throughput by \
         {throughput:+.1} %, mean response time by {response:+.1} %",
        kendall_units::counted(*windows, "window"),
        throughput = 100.0 * throughput_change,
        response = 100.0 * response_time_change
    )]
    LateWindowsCut {
        windows: u64,
        /// Their throughput over that of the rest, minus one.
        throughput_change: f64,
        /// Their mean response time over that of the rest, minus one.
        response_time_change: f64,
    },
    #[error("{what} ({of})")]
    OfSeries { what: Box<Caveat>, of: String },
    #[error(
        "{what} (in {runs} of {}{whose})",
        kendall_units::counted(*of, "run"),
        whose = set.as_ref().map(|set| format!(" of {set}")).unwrap_or_default()
    )]
    InRuns {
        /// The first of its kind, with its figures.
        what: Box<Caveat>,
        /// Runs that carry one of its kind.
        runs: u64,
        of: u64,
        /// The result set, where several are compared.
        set: Option<String>,
    },
    #[error(
        "{who} serves `{tier}`: {}; as a tier of the study its part would be seen",
        if *seen { "its processor time counts as that of a tier" } else { "what it uses is not seen" }
    )]
    Serves {
        /// Its command, process and address; its address alone where it is not seen.
        who: String,
        tier: String,
        seen: bool,
    },
    #[error("generator and tiers share {cores} cores: they disturb each other")]
    SharedMachine { cores: u64 },
    #[error("{errors} of {requests} requests failed")]
    Errors { errors: u64, requests: u64 },
    #[error("{misses} of {reads} reads missed")]
    Misses { misses: u64, reads: u64 },
    #[error(
        "{law} violated: measured {measured}, the law gives {expected} ({off:+.1} %, limit {limit:.1} %)",
        measured = figures(*measured, 5),
        expected = figures(*expected, 5),
        off = 100.0 * (measured / expected - 1.0),
        limit = 100.0 * tolerance
    )]
    LawViolated {
        law: Law,
        measured: f64,
        /// What the law makes of the other measurements.
        expected: f64,
        /// Relative deviation that is still accepted.
        tolerance: f64,
    },
    #[error("unbalanced: {fewest} to {most} replications a cell")]
    Unbalanced { fewest: u64, most: u64 },
    #[error("{missing} of {cells} cells have no measurement")]
    MissingCells { missing: u64, cells: u64 },
    #[error("no replications: the error is judged from the small effects (Lenth's method)")]
    Unreplicated,
    #[error("doubtful: {assumption} ({detail})")]
    AssumptionDoubtful { assumption: Assumption, detail: String },
    #[error(
        "stopped at {repetitions} repetitions with ±{reached:.1} %, wanted ±{wanted:.1} %",
        reached = 100.0 * reached_share,
        wanted = 100.0 * wanted_share
    )]
    CapReached {
        repetitions: u64,
        /// Relative half-width reached.
        reached_share: f64,
        /// Relative half-width wanted.
        wanted_share: f64,
    },
    #[error("{failed} of {runs} runs failed and are left out")]
    RunsFailed { failed: u64, runs: u64 },
    #[error("not paired: {reason}")]
    NotPaired { reason: String },
    #[error("measured under different conditions: {what} was {first} and {second}")]
    ConditionsDiffer { what: String, first: String, second: String },
    #[error("the search ended at its limit of {limit}: the maximum may lie beyond")]
    SearchLimit { limit: f64 },
    /// Something seen that has no variant of its own.
    #[error("{text}")]
    Note { text: String },
}

impl Caveat {
    /// Who serves a tier and is none itself, and that tier.
    pub fn serves(&self) -> Option<(&str, &str)> {
        match self {
            Self::Serves { who, tier, .. } => Some((who, tier)),
            _ => None,
        }
    }

    /// Whether it says what was there, and makes no number less certain.
    #[must_use]
    pub fn is_remark(&self) -> bool {
        match self {
            Self::Serves { .. } | Self::OthersBeside { .. } => true,
            Self::InRuns { what, .. } | Self::OfSeries { what, .. } => what.is_remark(),
            _ => false,
        }
    }

    /// Whether both say the same thing, whatever the figures: what is counted as one kind.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Note { text: one }, Self::Note { text: two })
            | (Self::Serves { who: one, .. }, Self::Serves { who: two, .. }) => one == two,
            (
                Self::Remarked { kind: one, text: a, .. },
                Self::Remarked { kind: two, text: b, .. },
            ) => {
                // Remarks without a kind of their own are of one kind only where their texts agree.
                one == two && (one != OTHER_KIND || a == b)
            }
            (Self::LawViolated { law: one, .. }, Self::LawViolated { law: two, .. }) => one == two,
            (
                Self::AssumptionDoubtful { assumption: one, .. },
                Self::AssumptionDoubtful { assumption: two, .. },
            ) => one == two,
            (
                Self::TooFewSamples { quantile: one, .. },
                Self::TooFewSamples { quantile: two, .. },
            ) => one.total_cmp(two).is_eq(),
            (Self::ClockUncertain { host: one, .. }, Self::ClockUncertain { host: two, .. })
            | (Self::HostSilent { host: one, .. }, Self::HostSilent { host: two, .. }) => {
                one == two
            }
            (Self::OfSeries { what: one, of: a }, Self::OfSeries { what: two, of: b }) => {
                a == b && one.is_like(two)
            }
            (Self::InRuns { what: one, set: a, .. }, Self::InRuns { what: two, set: b, .. }) => {
                a == b && one.is_like(two)
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Those of some runs of one result, as it carries them: each kind once, with how many of the runs have
    /// it; `set` names the result where there are several.
    pub fn in_runs<'a>(
        lists: impl IntoIterator<Item = &'a [Self]>,
        set: Option<&str>,
    ) -> Vec<Self> {
        let mut of = 0;
        let kinds = Self::by_kind(lists.into_iter().inspect(|_| of += 1));
        let in_runs = |(what, runs): (&Self, u64)| {
            let (what, set) = (Box::new(what.clone()), set.map(str::to_owned));
            Self::InRuns { what, runs, of, set }
        };
        kinds.into_iter().map(in_runs).collect()
    }

    /// The first of each kind with how many lists have one of it: `lists` has one entry a run.
    pub fn by_kind<'a>(lists: impl IntoIterator<Item = &'a [Self]>) -> Vec<(&'a Self, u64)> {
        let mut kinds: Vec<(&Self, u64)> = Vec::new();
        for list in lists {
            for (place, caveat) in list.iter().enumerate() {
                if list[..place].iter().any(|before| before.is_like(caveat)) {
                    continue;
                }
                match kinds.iter_mut().find(|(kind, _)| kind.is_like(caveat)) {
                    Some((_, count)) => *count += 1,
                    None => kinds.push((caveat, 1)),
                }
            }
        }
        kinds
    }
}

/// A change in percent with its sign, which is a minus and no hyphen.
fn signed(percent: f64) -> String {
    format!("{percent:+.1}").replacen('-', "−", 1)
}

/// Kind of a remark that has none of its own.
const OTHER_KIND: &str = "other";

/// A quantile as it is printed: 0.99 is `99`, 0.999 is `99.9`.
#[must_use]
pub fn percent(quantile: f64) -> String {
    let text = format!("{:.6}", 100.0 * quantile);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caveats_of_one_kind_are_counted_by_run_and_not_by_spelling() {
        let beside = Caveat::OthersBeside { programs: Vec::new() };
        let lists = [std::slice::from_ref(&beside)];
        assert!(Caveat::in_runs(lists, None)[0].is_remark());
        let serves =
            |who: &str| Caveat::Serves { who: who.to_owned(), tier: String::new(), seen: true };
        assert!(serves("a").is_like(&serves("a")) && !serves("a").is_like(&serves("b")));
        let few = |quantile, effective| Caveat::TooFewSamples { quantile, effective, need: 500.0 };
        let said = |kind: &str, text: &str| Caveat::Remarked {
            generator: None,
            kind: kind.to_owned(),
            text: text.to_owned(),
        };
        let runs = [
            vec![few(0.99, 400.0), few(0.99, 10.0), said("other", "HTTP/1 only")],
            vec![few(0.99, 300.0), few(0.999, 300.0), said("other", "HTTP/2 only")],
            vec![said("failed", "3 requests failed"), said("failed", "4 requests failed")],
        ];
        let kinds = Caveat::by_kind(runs.iter().map(Vec::as_slice));
        let counts: Vec<u64> = kinds.iter().map(|(_, count)| *count).collect();
        // Digits do not make two remarks one, nor two figures one remark two.
        assert_eq!(counts, [2, 1, 1, 1, 1]);
        assert_eq!(kinds[0].0, &few(0.99, 400.0));
        let what = Box::new(kinds[0].0.clone());
        let carried = Caveat::InRuns { what, runs: 2, of: 3, set: None };
        assert_eq!(Caveat::in_runs(runs.iter().map(Vec::as_slice), None)[0], carried);
        let json = serde_json::to_string(&carried).unwrap();
        assert_eq!(serde_json::from_str::<Caveat>(&json).unwrap(), carried);
        assert!(carried.to_string().ends_with("(in 2 of 3 runs)"), "{carried}");
    }

    #[test]
    fn a_caveat_survives_json_and_reads_as_a_sentence() {
        let caveat = Caveat::TooFewSamples { quantile: 0.999, effective: 812.0, need: 4_000.0 };
        let json =
            r#"{"caveat":"too-few-samples","quantile":0.999,"effective":812.0,"need":4000.0}"#;
        assert_eq!(serde_json::to_string(&caveat).unwrap(), json);
        assert_eq!(serde_json::from_str::<Caveat>(json).unwrap(), caveat);
        assert_eq!(
            caveat.to_string(),
            "too few samples for p99.9: 812 effectively independent ones, it needs 4000; run longer"
        );
    }

    #[test]
    fn a_falling_map_keeps_the_ends_in_order() {
        let interval = Interval { low: 2.0, high: 4.0, confidence: 0.95 };
        let reciprocal = interval.map(|x| 1.0 / x);
        assert!(reciprocal.low < reciprocal.high);
    }

    #[test]
    fn the_same_doubt_is_kept_once() {
        let estimate = Estimate::exact(1.0).doubt(Caveat::Unreplicated).doubt(Caveat::Unreplicated);
        assert_eq!(estimate.caveats.len(), 1);
        assert_eq!(estimate.to_string(), "1.0000 *");
    }

    #[test]
    fn figures_are_significant_ones() {
        let printed: Vec<String> =
            [9.9999996, 123_456.7, -0.05, 0.0, 1e20].into_iter().map(|v| figures(v, 4)).collect();
        assert_eq!(printed, ["10.00", "123457", "-0.05000", "0", "1.000e20"]);
    }
}
