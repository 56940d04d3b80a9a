//! Answers about another load of what was run: the measurement where there is one, else what curves through the runs say.
//!
//! A service of which only the operating system tells something waits for what no counter shows: a lock, a pool, a
//! service elsewhere. What it does at another load follows from its own curve, not from an assumed structure.
//! The curve's family, scatter and outliers are those of [`kendall_stats::load_curve`].

use kendall_protocols::topology::Graph;
use kendall_queueing::scalability::{Options, fit};
use kendall_stats::distribution::t_two_sided;
use kendall_stats::load_curve::{CurveRun, Evidence, run_at};
use kendall_units::exact_f64;
use serde::Serialize;

use super::question::Question;
use super::runs::RunFacts;
use crate::hidden::{Family, station_at};
use crate::model::CONFIDENCE;
use crate::twin::{Interval, Why, Workload};

/// Spread of a run, as σ of the logarithm, worth one run, where few were repeated: throughput, then times.
const USUAL: [f64; 2] = [0.03, 0.06];
/// Spread of a percentile over the mean between loads, as σ of the logarithm, where nothing tells it.
const USUAL_RATIO: f64 = 0.15;

/// Share of what light load is in proportion below which a curve bends.
pub(super) const BENT: f64 = 0.8;
/// Mean response time over that of the fastest configuration from which a run tells how requests wait.
pub(super) const WAITS: f64 = 1.5;
/// Share of an offered rate from which it counts as served.
const SERVED: f64 = 0.97;
/// Standard deviations by which Poisson arrivals may lie below their rate.
const CHANCE: f64 = 3.0;

/// Which model gave an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "model", rename_all = "kebab-case")]
pub enum Model {
    /// The configuration was run.
    Measured { runs: usize },
    /// Straight lines between the loads that were run.
    Line,
    /// The Universal Scalability Law.
    ScalingLaw,
    /// A network of the known stations, with what a request costs held constant.
    Network,
    /// The same with what a request costs falling with load as it was measured.
    FallingNetwork,
    /// A station that no counter shows, beside a delay.
    HiddenStation,
    /// The curve of throughput over the load, through so many runs.
    Curve { runs: usize },
    /// The runs at the two levels of a parameter, named by its dotted key, around what is asked.
    Between { key: String, levels: [f64; 2], runs: usize },
    /// The structure, calibrated.
    Twin,
}

/// A run as its load sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadRun {
    pub(super) graph: Graph,
    pub(super) workload: Workload,
    /// Numeric levels of the factors.
    pub(super) levels: Vec<(String, f64)>,
    /// The levels that are words.
    pub(super) words: Vec<(String, String)>,
    pub(super) throughput_per_s: f64,
    pub(super) measured_s: f64,
    /// Beside that of an undisturbed run.
    pub(super) weight: f64,
    /// Mean, p50, p90 and p99 of the response time, in s.
    pub(super) times_s: Option<[f64; 4]>,
}

impl LoadRun {
    pub(super) fn of(facts: &RunFacts) -> Self {
        let levels = facts.run.levels.iter();
        Self {
            graph: facts.graph.clone(),
            workload: facts.workload,
            levels: levels
                .clone()
                .filter_map(|level| Some((level.factor.clone(), level.number?)))
                .collect(),
            words: levels
                .filter(|level| level.number.is_none())
                .map(|level| (level.factor.clone(), level.text.clone()))
                .collect(),
            throughput_per_s: facts.throughput_per_s,
            measured_s: facts.measured_s,
            weight: facts.weight,
            times_s: facts.percentiles_s.map(|[a, b, c]| [facts.response_mean_s, a, b, c]),
        }
    }

    /// Its levels as `KEY=VALUE`.
    pub(super) fn in_words(&self) -> String {
        let numbers = self.levels.iter().map(|(key, level)| format!("{key}={level}"));
        let words = self.words.iter().map(|(key, text)| format!("{key}={text}"));
        numbers.chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Those in which others took no more of the processors than may be.
    pub(super) fn undisturbed<'a>(
        runs: impl Iterator<Item = &'a RunFacts>,
        most_foreign: f64,
    ) -> Vec<Self> {
        runs.filter(|facts| facts.disturbed(most_foreign).is_none()).map(Self::of).collect()
    }

    /// Whether it served the rate that was offered, to within the chance of the arrivals; a closed load is always served.
    pub(super) fn serves(&self) -> bool {
        let Workload::Open { rate_per_s } = self.workload else { return true };
        let chance = CHANCE * (rate_per_s / self.measured_s).sqrt();
        self.throughput_per_s > SERVED * rate_per_s - chance
    }

    /// Requests that were in the system at once, on average; none of an open load, of which nothing bounds them.
    pub(super) fn present(&self) -> Option<f64> {
        present(self.workload, self.throughput_per_s)
    }

    /// Whether it is a run of the same configuration.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        self.graph == other.graph
            && self.workload == other.workload
            && self.levels == other.levels
            && self.words == other.words
    }

    /// Whether it differs from another run in the load alone.
    pub(super) fn differs_in_load_from(&self, other: &Self) -> bool {
        self.is_at((&other.graph, other.workload), &other.levels) && self.words == other.words
    }

    /// Whether it differs in the load alone.
    fn is_at(&self, (graph, workload): (&Graph, Workload), levels: &[(String, f64)]) -> bool {
        let asked = |key: &String| levels.iter().find(|(known, _)| known == key);
        let same = |(key, level): &(String, f64)| {
            is_load(key) || asked(key).is_none_or(|(_, asked)| is_same(*asked, *level))
        };
        let thinks = |workload| match workload {
            Workload::Closed { think_time_s, .. } => Some(think_time_s),
            Workload::Open { .. } => None,
        };
        self.graph == *graph
            && thinks(self.workload) == thinks(workload)
            && self.levels.iter().all(same)
    }
}

/// Runs of one configuration together.
pub(super) fn configurations<'a>(runs: impl Iterator<Item = &'a LoadRun>) -> Vec<Vec<&'a LoadRun>> {
    let mut all: Vec<Vec<&LoadRun>> = Vec::new();
    for run in runs {
        match all.iter_mut().find(|known| known[0].repeats(run)) {
            Some(known) => known.push(run),
            None => all.push(vec![run]),
        }
    }
    all
}

/// Mean response time and its p99 by a model, of a run's configuration, or of what is asked.
pub(super) type Modelled<'a> = &'a dyn Fn(Option<&LoadRun>) -> Option<[f64; 2]>;

/// ln of the p99 over this mean response time: on the line between the configurations around it, or, beyond them, from the
/// fastest to the slowest. So what a request takes where none waits stays, and the p99 of the wait grows as its mean does,
/// but for what it does less, or more, in the model; none where too few wait to tell how.
pub(super) fn tail_by_wait<'a>(
    runs: impl Iterator<Item = &'a LoadRun>,
    mean_s: f64,
    modelled: Modelled<'_>,
) -> Option<f64> {
    let told = runs.filter(|run| run.times_s.is_some_and(|times| times[0] > 0.0 && times[3] > 0.0));
    let mean = |runs: &Vec<&'a LoadRun>| {
        let of = |at: usize| {
            let logs = runs.iter().filter_map(|run| Some((run.weight, run.times_s?[at].ln())));
            weighted(logs).0.exp()
        };
        (of(0), of(3), runs[0])
    };
    let mut points: Vec<(f64, f64, &LoadRun)> = configurations(told).iter().map(mean).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (points.first()?, points.last()?);
    let above = points.iter().find(|point| point.0 >= mean_s);
    let (from, to) = match (points.iter().rfind(|point| point.0 < mean_s), above) {
        (Some(below), Some(above)) => (below, above),
        (Some(_), None) if last.0 >= WAITS * first.0 => (first, last),
        (Some(_), None) => return None,
        (None, _) => return Some((first.1 / first.0).ln()),
    };
    let more = || {
        let [fast, p99_fast] = modelled(Some(from.2))?;
        let of_wait = |[mean, p99]: [f64; 2]| (p99 - p99_fast) / (mean - fast);
        let (known, asked) = (modelled(Some(to.2))?, modelled(None)?);
        let waits = known[0] >= WAITS * fast && asked[0] >= WAITS * fast;
        waits.then(|| of_wait(asked) / of_wait(known)).filter(|more| *more > 0.0)
    };
    let more = if above.is_none() { more().unwrap_or(1.0) } else { 1.0 };
    let p99 = from.1 + more * (to.1 - from.1) * (mean_s - from.0) / (to.0 - from.0);
    Some((p99 / mean_s).ln().max(0.0))
}

/// Whether what is asked lies outside of these runs in what they vary beside the load: in one of its levels, or in a graph
/// that no level tells from theirs.
pub(super) fn is_beyond<'a>(
    (graph, levels): (&Graph, &[(String, f64)]),
    runs: impl Iterator<Item = &'a LoadRun> + Clone,
) -> bool {
    let asked = || levels.iter().filter(|(key, _)| !is_load(key));
    let is_outside = asked().any(|(key, asked)| {
        let known = || runs.clone().filter_map(|run| level_of(run, key));
        known().next().is_some()
            && (known().all(|level| level < *asked) || known().all(|level| level > *asked))
    });
    let is_alike = |run: &&LoadRun| {
        asked().all(|(key, asked)| level_of(run, key).is_none_or(|level| is_same(level, *asked)))
    };
    let mut alike = runs.clone().filter(is_alike).peekable();
    is_outside || alike.peek().is_some() && alike.all(|run| run.graph != *graph)
}

fn level_of(run: &LoadRun, key: &str) -> Option<f64> {
    run.levels.iter().find(|(known, _)| known == key).map(|(_, level)| *level)
}

/// Clients that do not think, by Little's law.
pub(super) fn present(workload: Workload, throughput_per_s: f64) -> Option<f64> {
    match workload {
        Workload::Closed { clients, think_time_s } => {
            Some(f64::from(clients) - throughput_per_s * think_time_s)
        }
        Workload::Open { .. } => None,
    }
}

pub(super) fn is_load(key: &str) -> bool {
    matches!(key, "workload.clients" | "workload.rate")
}

pub(super) fn is_same(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_eq()
}

/// Runs that differ from a question in the load alone, in the order of time.
pub(super) struct Along<'a> {
    runs: Vec<&'a LoadRun>,
    asked: Workload,
    /// What a station that no counter shows is taken to be.
    family: Family,
    /// Most that the processors carry, and at the end of its interval.
    most_per_s: [f64; 2],
}

/// X, then mean, p50, p90 and p99 of the response time in s.
pub(super) type Five = [Interval; 5];

/// Where a load lies among those that were run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Below,
    Inside,
    Above,
}

impl Place {
    /// Of a load among those that were run.
    pub(super) fn of(asked: f64, run: impl Iterator<Item = f64>) -> Self {
        let (low, high) = run.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), load| {
            (low.min(load), high.max(load))
        });
        match asked {
            _ if asked < low => Self::Below,
            _ if asked > high => Self::Above,
            _ => Self::Inside,
        }
    }
}

impl<'a> Along<'a> {
    /// None for a question that changes more than the load.
    pub(super) fn of(runs: &'a [LoadRun], question: &Question) -> Option<Self> {
        let asked = (&question.graph, question.workload);
        Self::around(runs.iter(), asked, &question.levels).filter(|_| question.changes.is_empty())
    }

    /// The same of a configuration that was run, in other runs.
    pub(super) fn without(runs: &[&'a LoadRun], left_out: &LoadRun) -> Option<Self> {
        let asked = (&left_out.graph, left_out.workload);
        Self::around(runs.iter().copied(), asked, &left_out.levels)
    }

    fn around(
        runs: impl Iterator<Item = &'a LoadRun>,
        asked: (&Graph, Workload),
        levels: &[(String, f64)],
    ) -> Option<Self> {
        let at: Vec<&LoadRun> = runs.filter(|run| run.is_at(asked, levels)).collect();
        let most_per_s = [f64::INFINITY; 2];
        let family = Family::Servers;
        (!at.is_empty()).then_some(Self { runs: at, asked: asked.1, family, most_per_s })
    }

    /// With processors that carry no more than this, but for what they did carry.
    pub(super) fn bounded(self, most_per_s: [f64; 2]) -> Self {
        let carried = self.runs.iter().map(|run| run.throughput_per_s).fold(0.0, f64::max);
        Self { most_per_s: most_per_s.map(|most| most.max(carried)), ..self }
    }

    /// As far as the processors carry it.
    fn within_processors(&self, x: Interval) -> Interval {
        let [center, high] = self.most_per_s;
        let center = x.center.min(center);
        Interval { center, low: x.low.min(center), high: x.high.min(high).max(center), why: x.why }
    }

    /// With stations of this family.
    pub(super) fn with(self, family: Family) -> Self {
        Self { family, ..self }
    }

    pub(super) fn place(&self) -> Place {
        Place::of(self.asked.load(), self.levels().into_iter())
    }

    /// What was measured at the highest load, where more is asked: one more run there.
    pub(super) fn at_highest(&self) -> Option<Interval> {
        let highest = self.levels().pop().filter(|highest| self.asked.load() > *highest)?;
        self.of_runs(&self.at(highest), USUAL[0], |run| Some(run.throughput_per_s))
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.asked, Workload::Closed { .. })
    }

    /// Throughput on the line between the means at the loads around; beyond the ends as at them.
    pub(super) fn line(&self) -> Option<f64> {
        let (levels, asked) = (self.levels(), self.asked.load());
        if levels.len() < 2 {
            return None;
        }
        let mean = |level: f64| {
            weighted(self.at(level).iter().map(|run| (run.weight, run.throughput_per_s))).0
        };
        let below = levels.iter().copied().rfind(|level| *level <= asked);
        let above = levels.iter().copied().find(|level| *level >= asked);
        let (below, above) = (below.or(above)?, above.or(below)?);
        let share = if above > below { (asked - below) / (above - below) } else { 0.0 };
        self.is_closed().then(|| mean(below) + share * (mean(above) - mean(below)))
    }

    /// Throughput by the Universal Scalability Law.
    pub(super) fn scaling_law(&self) -> Option<f64> {
        let runs = self.runs.iter().map(|run| (run.workload.load(), run.throughput_per_s));
        let runs: Vec<(f64, f64)> = runs.filter(|_| self.is_closed()).collect();
        let law = fit(&runs, &Options::default()).ok()?.usl;
        let x = Some(law.throughput(self.asked.load())).filter(|x| x.is_finite() && *x > 0.0);
        x.map(|x| x.min(self.most_per_s[0]))
    }

    /// Throughput of a station that no counter shows.
    pub(super) fn hidden_station(&self) -> Option<Interval> {
        let runs = Evidence::of(&self.curve_runs()).filter(|_| self.is_closed())?;
        let found = station_at(&runs, self.family, self.asked.load(), CONFIDENCE)?;
        let within = found.interval?;
        let (center, low, high) = (found.center, within.low, within.high);
        Some(self.within_processors(Interval { center, low, high, why: Why::Fit }))
    }

    /// Throughput, and the mean response time that goes with it.
    pub(super) fn with_response(&self, x: Interval) -> Option<[Interval; 2]> {
        let response = |x: f64| self.response_at(x);
        let (center, low, high) = (response(x.center)?, response(x.high)?, response(x.low)?);
        Some([x, Interval { center, low, high, why: x.why }])
    }

    /// Throughput and mean response time by the curve.
    pub(super) fn curve_center(&self) -> Option<[f64; 2]> {
        match self.asked {
            Workload::Closed { clients, .. } => {
                let x = run_at(&self.curve_runs(), f64::from(clients), CONFIDENCE)?.center;
                let x = x.min(self.most_per_s[0]);
                Some([x, self.response_at(x)?])
            }
            Workload::Open { .. } => self.curve().map(|[x, mean, ..]| [x.center, mean.center]),
        }
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// What was measured at the load that is asked.
    pub(super) fn measured(&self) -> Option<(Model, Five)> {
        let there: Vec<&LoadRun> =
            self.runs.iter().copied().filter(|run| run.workload == self.asked).collect();
        if there.is_empty() {
            return None;
        }
        let at = |at: usize| {
            let (usual, of) = measure(at);
            self.of_runs(&there, usual, of)
        };
        let model = Model::Measured { runs: there.len() };
        Some((model, [at(0)?, at(1)?, at(2)?, at(3)?, at(4)?]))
    }

    fn of_runs(
        &self,
        there: &[&LoadRun],
        usual: f64,
        of: impl Fn(&LoadRun) -> Option<f64>,
    ) -> Option<Interval> {
        let groups: Vec<Vec<&LoadRun>> =
            self.levels().into_iter().map(|level| self.at(level)).collect();
        one_more(&groups, there, (usual, &of))
    }

    fn levels(&self) -> Vec<f64> {
        let mut levels: Vec<f64> = self.runs.iter().map(|run| run.workload.load()).collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        levels
    }

    fn at(&self, level: f64) -> Vec<&'a LoadRun> {
        let here = |run: &&LoadRun| is_same(run.workload.load(), level);
        self.runs.iter().copied().filter(here).collect()
    }

    /// Whether throughput bends away from the line of light load at what is asked.
    pub(super) fn bends(&self, throughput_per_s: f64) -> bool {
        let light = self.levels()[0];
        let at = self.at(light);
        let mean = at.iter().map(|run| run.throughput_per_s).sum::<f64>() / exact_f64(at.len());
        throughput_per_s < BENT * mean * self.asked.load() / light
    }

    /// The curve through all runs, at the load that is asked; none where the runs do not say how they scatter.
    pub(super) fn curve(&self) -> Option<Five> {
        match self.asked {
            Workload::Closed { clients, .. } => self.closed(clients),
            Workload::Open { rate_per_s } => self.open(rate_per_s),
        }
    }

    /// Between two rates that were served: throughput is the rate, and times lie between theirs.
    fn open(&self, rate_per_s: f64) -> Option<Five> {
        let served = self.runs.iter().copied().filter(|run| run.serves());
        let rates = Along { runs: served.collect(), ..*self };
        let levels = rates.levels();
        let time = |at| rates.time_between(&levels, rate_per_s, at);
        let [mean, p50, p90, p99] = [time(1)?, time(2)?, time(3)?, time(4)?];
        let share = rates.of_runs(&rates.runs, USUAL[0], |run| {
            Some(run.throughput_per_s / run.workload.load())
        })?;
        let end = |end: f64| rate_per_s * end / share.center;
        let (low, high) = (end(share.low), end(share.high));
        let x = Interval { center: rate_per_s, low, high, why: Why::Chance };
        Some([x, mean, p50, p90, p99])
    }

    /// A time at a rate, between those at the nearest of these levels below and above.
    fn time_between(&self, levels: &[f64], rate: f64, at: usize) -> Option<Interval> {
        let below = *levels.iter().rfind(|level| **level <= rate)?;
        let above = *levels.iter().find(|level| **level >= rate)?;
        let share = if above > below { (rate - below) / (above - below) } else { 0.0 };
        let groups: Vec<Vec<&LoadRun>> = levels.iter().map(|level| self.at(*level)).collect();
        let (usual, of) = measure(at);
        lies_between(&groups, &[self.at(below), self.at(above)], share, (usual, &of))
    }

    fn closed(&self, clients: u32) -> Option<Five> {
        let asked = f64::from(clients);
        let found = run_at(&self.curve_runs(), asked, CONFIDENCE)?;
        let within = found.interval?;
        let x = Interval {
            center: found.center,
            // A pool that is not full leaves no trace: the plateau may lie right behind the last load.
            low: within.low.min(self.at_highest().map_or(f64::INFINITY, |at| at.low)),
            high: within.high,
            why: Why::Fit,
        };
        let [x, mean] = self.with_response(self.within_processors(x))?;
        let quantile = |at: usize| self.quantile(&mean, at);
        Some([x, mean, quantile(1), quantile(2), quantile(3)])
    }

    /// N = X·(R + Z); where clients think most of the time, not below what a request takes by itself.
    pub(super) fn response_at(&self, x: f64) -> Option<f64> {
        let Workload::Closed { clients, think_time_s } = self.asked else { return None };
        let fastest = self.runs.iter().filter_map(|run| Some(run.times_s?[0]));
        let fastest = fastest.fold(f64::INFINITY, f64::min);
        let least = if fastest.is_finite() { 0.9 * fastest } else { 0.0 };
        Some((f64::from(clients) / x - think_time_s).max(least))
    }

    fn curve_runs(&self) -> Vec<CurveRun> {
        let run = |run: &&LoadRun| CurveRun {
            load: run.workload.load(),
            throughput_per_s: run.throughput_per_s,
            weight: run.weight,
        };
        self.runs.iter().map(run).collect()
    }

    /// A percentile: the mean, times their ratio at the loads around.
    fn quantile(&self, mean: &Interval, at: usize) -> Interval {
        let (center, spread) = self.over_mean(at);
        let end = |end: f64, sign: f64| {
            let of_mean = (end / mean.center).ln();
            mean.center * (center + sign * of_mean.hypot(2.0 * spread)).exp()
        };
        Interval {
            center: mean.center * center.exp(),
            low: end(mean.low, -1.0),
            high: end(mean.high, 1.0),
            why: Why::Fit,
        }
    }

    /// ln of a percentile over the mean, by the loads around, and its standard deviation.
    pub(super) fn over_mean(&self, at: usize) -> (f64, f64) {
        let asked = self.asked.load();
        let ratios: Vec<(f64, f64)> = self
            .runs
            .iter()
            .filter_map(|run| Some((run.workload.load(), run.times_s?)))
            .filter(|(_, times)| times[0] > 0.0 && times[at] > 0.0)
            .map(|(load, times)| (load, (times[at] / times[0]).ln()))
            .collect();
        let levels = self.levels();
        let at_level = |level: f64| {
            let here: Vec<f64> = ratios
                .iter()
                .filter(|(load, _)| is_same(*load, level))
                .map(|(_, ratio)| *ratio)
                .collect();
            (!here.is_empty()).then(|| here.iter().sum::<f64>() / exact_f64(here.len()))
        };
        let below = levels.iter().rev().find(|level| **level <= asked).copied();
        let above = levels.iter().find(|level| **level >= asked).copied();
        let (below, above) = (below.or(above).unwrap_or(asked), above.or(below).unwrap_or(asked));
        let (low, high) = (at_level(below).unwrap_or(0.0), at_level(above).unwrap_or(0.0));
        let share = if above > below { (asked / below).ln() / (above / below).ln() } else { 0.0 };
        // Between two loads the ratio may be that of either; within a load it scatters.
        let scatter =
            ratios.iter().filter_map(|(load, ratio)| Some((ratio - at_level(*load)?).powi(2)));
        let scatter = (scatter.sum::<f64>() + USUAL_RATIO.powi(2)) / exact_f64(ratios.len() + 1);
        let spread = (scatter + (0.5 * (high - low)).powi(2)).sqrt();
        (low + share * (high - low), spread)
    }
}

/// A number of a run: its usual spread, and how to read it.
pub(super) type Measure<'a> = (f64, &'a dyn Fn(&LoadRun) -> Option<f64>);

/// Throughput, then mean, p50, p90 and p99 of the response time.
pub(super) fn measure(at: usize) -> (f64, impl Fn(&LoadRun) -> Option<f64>) {
    let of = move |run: &LoadRun| match at.checked_sub(1) {
        None => Some(run.throughput_per_s),
        Some(time) => Some(run.times_s?[time]),
    };
    (USUAL[at.min(1)], of)
}

/// Mean of values by their weights, and the sum of these.
pub(super) fn weighted(values: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (sum, all) =
        values.fold((0.0, 0.0), |(sum, all), (weight, value)| (sum + weight * value, all + weight));
    (sum / all, all)
}

/// A run's weight, and the logarithm of a number of it.
fn log(run: &LoadRun, of: &dyn Fn(&LoadRun) -> Option<f64>) -> Option<(f64, f64)> {
    Some((run.weight, of(run).filter(|value| *value > 0.0)?.ln()))
}

/// Variance of the logarithm of a run within groups of equal runs, with what is usual as one more, and its degrees of freedom.
pub(super) fn scatter(groups: &[Vec<&LoadRun>], (usual, of): Measure<'_>) -> (f64, f64) {
    let (mut squares, mut freedom) = (usual * usual, 1.0);
    for same in groups {
        let logs = || same.iter().filter_map(|run| log(run, of));
        let (center, all) = weighted(logs());
        if all > 0.0 {
            squares += logs().map(|(weight, log)| weight * (log - center).powi(2)).sum::<f64>();
            freedom += exact_f64(same.len()) - 1.0;
        }
    }
    (squares / freedom, freedom)
}

/// One more run where `there` were made: their mean, with the spread within all groups of equal runs.
pub(super) fn one_more(
    groups: &[Vec<&LoadRun>],
    there: &[&LoadRun],
    (usual, of): Measure<'_>,
) -> Option<Interval> {
    let (variance, freedom) = scatter(groups, (usual, of));
    let (center, all) = weighted(there.iter().filter_map(|run| log(run, of)));
    if all <= 0.0 {
        return None;
    }
    let half = t_two_sided(CONFIDENCE, freedom) * (variance * (1.0 + 1.0 / all)).sqrt();
    let center = center.exp();
    let (low, high) = (center * (-half).exp(), center * half.exp());
    Some(Interval { center, low, high, why: Why::Drift })
}

/// A run between two ends: on the line of the logarithms at this share of the way, and in the interval of either end.
pub(super) fn lies_between(
    groups: &[Vec<&LoadRun>],
    ends: &[Vec<&LoadRun>; 2],
    share: f64,
    measure: Measure<'_>,
) -> Option<Interval> {
    let [below, above] = ends.each_ref().map(|end| one_more(groups, end, measure));
    let (below, above) = (below?, above?);
    Some(Interval {
        center: below.center * (above.center / below.center).powf(share),
        low: below.low.min(above.low),
        high: below.high.max(above.high),
        why: Why::Fit,
    })
}

#[cfg(test)]
mod tests {
    use kendall_protocols::topology::{TierId, TierNode};

    use super::*;
    use crate::study::Signature;

    fn closed(clients: u32) -> Workload {
        Workload::Closed { clients, think_time_s: 0.0 }
    }

    /// Runs of a pool of four that is held for 20 ms, two a load that differ by 2 %.
    fn pool_of_four(loads: &[u32]) -> Vec<LoadRun> {
        let run = |(&clients, off): (&u32, f64)| {
            let throughput_per_s = f64::from(clients.min(4)) / 0.02 * (1.0 + off);
            let mean = f64::from(clients) / throughput_per_s;
            LoadRun {
                graph: Graph::default(),
                workload: closed(clients),
                levels: vec![("workload.clients".to_owned(), f64::from(clients))],
                words: Vec::new(),
                throughput_per_s,
                measured_s: 10.0,
                weight: 1.0,
                times_s: Some([mean, 0.95 * mean, 1.3 * mean, 2.0 * mean]),
            }
        };
        let all = [-0.01, 0.01].map(|off| loads.iter().map(move |load| run((load, off))));
        all.into_iter().flatten().collect()
    }

    /// What is measured there, and what the curve says.
    fn asked(runs: &[LoadRun], clients: u32) -> (Option<(Model, Five)>, Option<Five>) {
        let question = Question {
            graph: Graph::default(),
            workload: closed(clients),
            generator_threads: 1,
            batch: None,
            signature: Signature::default(),
            changes: Vec::new(),
            levels: vec![("workload.clients".to_owned(), f64::from(clients))],
        };
        let along = Along::of(runs, &question).unwrap();
        (along.measured(), along.curve())
    }

    #[test]
    fn what_was_run_is_answered_by_its_measurement() {
        let (measured, _) = asked(&pool_of_four(&[1, 4, 8]), 8);
        let (model, [x, mean, _, _, p99]) = measured.unwrap();
        assert_eq!(model, Model::Measured { runs: 2 });
        assert!((x.center / 200.0 - 1.0).abs() < 1e-3 && x.high / x.low < 1.3, "{x:?}");
        assert!((mean.center / 0.04 - 1.0).abs() < 1e-3, "{mean:?}");
        assert!((p99.center / 0.08 - 1.0).abs() < 1e-3, "{p99:?}");
        assert!(asked(&pool_of_four(&[1, 4, 8]), 16).0.is_none());
    }

    /// Between and beyond the loads of a pool that is full: within 10 %, and the interval holds the truth.
    #[test]
    fn a_full_pool_carries_no_more_at_a_higher_load() {
        let runs = pool_of_four(&[1, 2, 4, 16, 32]);
        for (clients, truth) in [(3, 150.0), (8, 200.0), (64, 200.0)] {
            let (_, curve) = asked(&runs, clients);
            let [x, mean, ..] = curve.unwrap();
            assert!((x.center / truth - 1.0).abs() < 0.1 && x.holds(truth), "{clients}: {x:?}");
            assert!(mean.holds(f64::from(clients) / truth), "{clients}: {mean:?}");
        }
    }

    /// A pool that is not yet full leaves no trace: the plateau may lie right behind the last load.
    #[test]
    fn a_pool_that_is_not_full_may_be_so_right_behind_the_last_load() {
        let (_, curve) = asked(&pool_of_four(&[1, 2, 4]), 32);
        let [x, ..] = curve.unwrap();
        assert!(x.holds(200.0) && x.holds(800.0), "{x:?}");
    }

    /// What takes 10 ms at least and is waited for: the p99 of a request is 12 ms and three times the mean wait.
    #[test]
    fn the_tail_of_what_waits_grows_with_the_wait() {
        let run = |(clients, mean): (u32, f64)| LoadRun {
            times_s: Some([mean, mean, mean, 12e-3 + 3.0 * (mean - 10e-3)]),
            ..pool_of_four(&[clients])[0].clone()
        };
        let runs = [(1, 10e-3), (8, 20e-3), (16, 40e-3)].map(run);
        let by = |runs: &[LoadRun], mean_s, modelled: Modelled<'_>| {
            tail_by_wait(runs.iter(), mean_s, modelled).map(f64::exp)
        };
        let tail = |runs: &[LoadRun], mean_s| by(runs, mean_s, &|_| None);
        for mean_s in [15e-3, 30e-3, 80e-3] {
            let truth = (12e-3 + 3.0 * (mean_s - 10e-3)) / mean_s;
            assert!((tail(&runs, mean_s).unwrap() / truth - 1.0).abs() < 1e-9, "{mean_s}");
            assert!((tail(&runs[..2], mean_s).unwrap() / truth - 1.0).abs() < 1e-9, "{mean_s}");
        }
        // Where hardly anything waits, nothing tells how; below all, a request takes what it takes.
        let idle = [(1, 10e-3), (2, 11e-3)].map(run);
        assert_eq!(tail(&idle, 20e-3), None);
        assert!((tail(&idle, 5e-3).unwrap() - 1.2).abs() < 1e-9);
        // In the model the p99 of a wait is four times its mean at what was run, and twice at what is asked.
        let halved = |run: Option<&LoadRun>| match run.map(|run| run.workload.load()) {
            Some(load) if load < 2.0 => Some([10e-3, 10e-3]),
            Some(_) => Some([20e-3, 50e-3]),
            None => Some([80e-3, 150e-3]),
        };
        let truth = (12e-3 + 1.5 * 70e-3) / 80e-3;
        assert!((by(&runs[..2], 80e-3, &halved).unwrap() / truth - 1.0).abs() < 1e-9);
    }

    /// M/M/1 of 100/s at three rates: between them throughput is the rate, and the response time lies between theirs.
    #[test]
    fn an_open_load_between_two_that_were_served_lies_between_them() {
        let run = |rate_per_s: f64| {
            let mean = 1.0 / (100.0 - rate_per_s);
            LoadRun {
                workload: Workload::Open { rate_per_s },
                levels: vec![("workload.rate".to_owned(), rate_per_s)],
                throughput_per_s: rate_per_s,
                times_s: Some([mean, 0.7 * mean, 2.3 * mean, 4.6 * mean]),
                ..pool_of_four(&[1])[0].clone()
            }
        };
        let runs = [20.0, 20.0, 40.0, 40.0, 60.0, 60.0].map(run);
        let at = |rate_per_s: f64| {
            let question = Question {
                graph: Graph::default(),
                workload: Workload::Open { rate_per_s },
                generator_threads: 1,
                batch: None,
                signature: Signature::default(),
                changes: Vec::new(),
                levels: vec![("workload.rate".to_owned(), rate_per_s)],
            };
            Along::of(&runs, &question).unwrap().curve()
        };
        let [x, mean, ..] = at(50.0).unwrap();
        assert!((x.center - 50.0).abs() < 1e-9 && x.high < 55.0, "{x:?}");
        // 1/50 s; by the logarithm between 1/60 and 1/40 s it is 1/49 s.
        assert!((mean.center * 50.0 - 1.0).abs() < 0.03 && mean.holds(0.02), "{mean:?}");
        assert!(at(70.0).is_none() && at(10.0).is_none());
        // Of 400 arrivals in 10 s, 360 are chance; 200 are not.
        let of = |served_per_s: f64| LoadRun { throughput_per_s: served_per_s, ..runs[2].clone() };
        assert!(of(36.0).serves() && !of(20.0).serves());
    }

    /// Sixteen workers lie between four and 64; 256, and a graph of another kind at the same levels, do not.
    #[test]
    fn a_level_between_those_that_were_run_is_not_beyond_them() {
        let with = |workers: f64, instances: u32| {
            let mut run = pool_of_four(&[4])[0].clone();
            run.levels.push(("system.workers".to_owned(), workers));
            run.graph.tiers.push(TierNode {
                tier: TierId::fixed("web"),
                kind: workers.to_string(),
                instances,
                pools: Vec::new(),
            });
            run
        };
        let runs = [with(4.0, 1), with(64.0, 1)];
        let beyond = |asked: LoadRun| is_beyond((&asked.graph, &asked.levels), runs.iter());
        assert!(!beyond(with(4.0, 1)) && !beyond(with(16.0, 1)));
        assert!(beyond(with(256.0, 1)) && beyond(with(2.0, 1)) && beyond(with(4.0, 2)));
    }

    #[test]
    fn another_graph_is_no_other_load() {
        let mut runs = pool_of_four(&[1, 4]);
        for run in &mut runs {
            run.levels.push(("system.workers".to_owned(), 2.0));
        }
        let question = |workers: f64| Question {
            graph: Graph::default(),
            workload: closed(8),
            generator_threads: 1,
            batch: None,
            signature: Signature::default(),
            changes: Vec::new(),
            levels: vec![("system.workers".to_owned(), workers)],
        };
        assert!(Along::of(&runs, &question(2.0)).is_some());
        assert!(Along::of(&runs, &question(4.0)).is_none());
    }
}
