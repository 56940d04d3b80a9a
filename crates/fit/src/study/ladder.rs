//! The ladder: every model that has an answer to a question, from straight lines to the twin, judged by its predictions
//! of configurations that it was not fitted to; and the mean of them by that judgement.
//!
//! A model weighs s^−(n+3)/(s² + v), with s² = (Σe² + (3 + k)·σ²)/(n + 3) and the variance v of its own interval: e are the
//! errors of the logarithm of its mean response time at the configurations that were left out, one after another; n is
//! their number, k that of those at which it had no answer, σ what such a model usually errs by. A configuration whose runs
//! were disturbed counts by their weight.
//!
//! Intervals reach t·s + the differences, as √(Σw·(t·s)² + Σw·(1.96·(f − f̄))²): what each model errs by, here with σ = 3 %
//! for all and with what one run scatters by beside the mean of those that were left out, by Student's t of n + 3 degrees
//! of freedom; and what those that have a part in the answer differ by. In simulated systems such intervals hold what they
//! say (`tests/ladder`). Beyond
//! the loads that were run, of an open load, and where more than the load is changed, a model's own interval is the least;
//! an error counts there without what all runs left open at its configuration, and by how much less its model leaves open
//! at what is asked.
//! Where nothing could be left out the model that usually errs least answers, within the intervals of all that weigh more
//! than such an interval leaves out: their own, and no less than what they usually err by.
//!
//! # Source
//! Weights of the likelihood where each is left out in turn: Yao et al., Bayesian Analysis 13 (2018), §2.3 (pseudo-BMA).

use kendall_stats::distribution::t_two_sided;
use kendall_units::exact_f64;
use serde::{Deserialize, Serialize};

use super::by_load::{
    Along, LoadRun, Model, Place, configurations, is_beyond, is_load, measure, scatter, weighted,
};
use crate::hidden::Family;
use crate::model::{CONFIDENCE, NORMAL};
use crate::twin::{Interval, System, Twin, Why, Workload};

/// A model of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Straight lines between the loads that were run, as at the last beyond them.
    Line,
    /// The Universal Scalability Law.
    ScalingLaw,
    /// A network of the known stations, with constant demands.
    Network,
    /// The same with demands that fall with load as they were measured.
    FallingNetwork,
    /// A station that no counter shows, beside a delay.
    HiddenStation,
    /// The curve through all runs.
    Curve,
    /// The structure simulated.
    Twin,
}

/// So many left-out configurations what a model usually errs by is worth.
const WORTH: f64 = 3.0;
/// A weight below which a model has no part in an answer.
const NO_PART: f64 = 0.01;
/// Least error of a model, whatever its errors where left out, as σ of the logarithm.
const LEAST_KNOWN: f64 = 0.03;
/// What a p99 over the mean usually errs by, as σ of its logarithm; where processors are full, whose scheduler makes it; and
/// where nothing could be left out to judge it.
const USUAL_TAIL: f64 = 0.1;
const TAIL_OF_FULL: f64 = 0.15;
const UNJUDGED_TAIL: f64 = 0.3;
/// Place of the p99 among throughput and times, and, without throughput, among the times of a run.
const P99: usize = 4;
/// What a model that sees nothing of what a request waits for is taken to err by.
const BLIND: f64 = 0.5;

impl Rung {
    /// Simplest first.
    pub const ALL: [Self; 7] = [
        Self::Line,
        Self::ScalingLaw,
        Self::Network,
        Self::FallingNetwork,
        Self::HiddenStation,
        Self::Curve,
        Self::Twin,
    ];

    /// As JSON and tables call it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::ScalingLaw => "scaling-law",
            Self::Network => "network",
            Self::FallingNetwork => "falling-network",
            Self::HiddenStation => "hidden-station",
            Self::Curve => "curve",
            Self::Twin => "twin",
        }
    }

    /// σ of what it usually errs by: medians of the errors of throughput over the systems of the benchmark, where a
    /// median is 0.67 σ.
    fn usual(self) -> f64 {
        match self {
            Self::Line | Self::ScalingLaw => 0.25,
            Self::Network | Self::FallingNetwork => 0.2,
            Self::HiddenStation => 0.15,
            Self::Curve | Self::Twin => 0.1,
        }
    }

    /// As an answer names it; the curve is named with its runs.
    pub(super) fn model(self) -> Model {
        match self {
            Self::Line => Model::Line,
            Self::ScalingLaw => Model::ScalingLaw,
            Self::Network => Model::Network,
            Self::FallingNetwork => Model::FallingNetwork,
            Self::HiddenStation => Model::HiddenStation,
            Self::Curve => Model::Curve { runs: 0 },
            Self::Twin => Model::Twin,
        }
    }

    /// Whether it knows the structure, and nothing of the curve.
    pub(super) fn is_of_the_structure(self) -> bool {
        matches!(self, Self::Network | Self::FallingNetwork | Self::Twin)
    }
}

impl std::fmt::Display for Rung {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Line => "straight lines between the loads that were run",
            Self::ScalingLaw => "the Universal Scalability Law",
            Self::Network => "network of the known stations, constant demands",
            Self::FallingNetwork => "network of the known stations, demands that fall with load",
            Self::HiddenStation => "a station that no counter shows, and a delay",
            Self::Curve => "the curve of throughput over the load",
            Self::Twin => "the structure of the system, calibrated",
        })
    }
}

/// What a model says of a question, and how it was judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub name: Rung,
    /// X, 1/s; of an open load its rate.
    pub throughput_per_s: f64,
    /// Mean response time, in s.
    pub response_mean_s: f64,
    /// Root mean square of ln(predicted/measured) of the mean response time where a configuration is left out; none where
    /// none could be.
    pub left_out_error: Option<f64>,
    /// Of so many configurations.
    pub left_out: usize,
    /// Its share of the answer.
    pub weight: f64,
}

/// A configuration that was left out: what was measured there, and what the models of the others predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// Its levels in words.
    pub levels: String,
    /// X as it was measured, 1/s.
    pub throughput_per_s: f64,
    /// That of its least disturbed run.
    weight: f64,
    /// What one of its runs scatters by beside their mean, as σ of the logarithms.
    of_run: Pair,
    /// Among the runs that differ from it in the load alone; none without them.
    place: Option<Place>,
    /// Whether it lies outside of all other runs in what is varied beside the load.
    is_beyond: bool,
    /// ln(predicted/measured), by rung.
    errors: [Option<Pair>; Rung::ALL.len()],
    /// What all other runs leave open there, as σ of the logarithms: by the stations that no counter shows.
    open: Pair,
    /// The same of the p99 over the mean: by the twin, as at the loads around, and by how requests wait.
    tails: [Option<f64>; 3],
}

/// Throughput and mean response time.
type Pair = [f64; 2];

impl LeftOut {
    /// ln(predicted/measured) of throughput and mean response time by a model of all other runs; none where it gave no answer.
    pub fn error(&self, rung: Rung) -> Option<Pair> {
        let place = Rung::ALL.iter().position(|known| *known == rung)?;
        self.errors[place]
    }

    /// `runs` of the configuration, judged by a model of all `others`, and its structure in that model.
    pub(super) fn of(
        runs: &[&LoadRun],
        others: &[&LoadRun],
        twin: Option<(&Twin, &System)>,
        (family, tail_by_wait): (Family, &dyn Fn(f64) -> Option<f64>),
    ) -> Option<Self> {
        let first = runs.first()?;
        // The response time of one that falls behind is a matter of how long one looks.
        if runs.iter().any(|run| !run.serves()) {
            return None;
        }
        let mean = |of: &dyn Fn(&LoadRun) -> Option<f64>| {
            let logs = runs.iter().filter_map(|run| Some((run.weight, of(run)?.ln())));
            let (mean, all) = weighted(logs);
            (all > 0.0).then_some(mean)
        };
        let measured =
            [mean(&|run| Some(run.throughput_per_s))?, mean(&|run| Some(run.times_s?[0]))?];
        let p99 = mean(&|run| Some(run.times_s?[P99 - 1]));
        let most = twin.map(|(twin, system)| twin.most_of_processors(system));
        let along = Along::without(others, first).map(|along| along.with(family));
        let along = along.map(|along| most.into_iter().fold(along, Along::bounded));
        let by_twin = twin.and_then(|(twin, system)| twin.center(system, None));
        let station = along.as_ref().and_then(Along::hidden_station);
        let open = along.as_ref().zip(station).and_then(|(along, x)| along.with_response(x));
        let open =
            open.map_or([0.0; 2], |told| told.map(|of| (of.high / of.low).ln() / (2.0 * NORMAL)));
        let said = Said { along: along.as_ref(), station, twin, by_twin };
        let error = |rung| {
            let pair = said.by(rung)?;
            let errors = [pair[0].ln() - measured[0], pair[1].ln() - measured[1]];
            errors.iter().all(|error| error.is_finite()).then_some(errors)
        };
        let errors = Rung::ALL.map(error);
        let tails = [
            by_twin.map(|logs| logs[P99] - logs[1]),
            along.as_ref().map(|along| along.over_mean(P99 - 1).0),
            tail_by_wait(measured[1].exp()),
        ];
        let tails = tails.map(|said| Some(said? - (p99? - measured[1])));
        let all = configurations(runs.iter().chain(others).copied());
        let weight: f64 = runs.iter().map(|run| run.weight).sum();
        let of_run = [0, 1].map(|at| {
            let (usual, of) = measure(at);
            (scatter(&all, (usual, &of)).0 * (1.0 - 1.0 / weight).max(0.0)).sqrt()
        });
        let place = along.as_ref().map(Along::place);
        errors.iter().any(Option::is_some).then_some(Self {
            levels: first.in_words(),
            throughput_per_s: measured[0].exp(),
            weight: runs.iter().map(|run| run.weight).fold(0.0, f64::max),
            of_run,
            place,
            is_beyond: is_beyond((&first.graph, &first.levels), others.iter().copied()),
            errors,
            open,
            tails,
        })
    }
}

/// Models that are asked.
struct Said<'a> {
    along: Option<&'a Along<'a>>,
    station: Option<Interval>,
    twin: Option<(&'a Twin, &'a System)>,
    /// Logarithms of what the twin says.
    by_twin: Option<[f64; 5]>,
}

impl Said<'_> {
    fn by(&self, rung: Rung) -> Option<Pair> {
        let x = match rung {
            Rung::Line => self.along?.line()?,
            Rung::ScalingLaw => self.along?.scaling_law()?,
            Rung::HiddenStation => self.station?.center,
            Rung::Curve => return self.along?.curve_center(),
            Rung::Twin => return self.by_twin.map(|[x, mean, ..]| [x.exp(), mean.exp()]),
            Rung::Network | Rung::FallingNetwork => {
                let (twin, system) = self.twin?;
                let solved = match rung {
                    Rung::Network => twin.solve_constant(system)?,
                    _ => twin.solve(system)?,
                };
                return Some([solved.throughput_per_s, solved.response_mean_s]);
            }
        };
        Some([x, self.along?.response_at(x)?])
    }
}

/// How far an interval reaches downwards and upwards, and why.
type Reach = ([f64; 2], Why);

/// A model's answer by itself.
#[derive(Debug, Clone, Copy)]
struct Own {
    /// Logarithms.
    center: Pair,
    /// Of its own intervals; none where it has none.
    reach: Option<[Reach; 2]>,
    /// What it errs by, for its weight.
    errs: Pair,
    /// The same, for the interval.
    off: Pair,
}

impl Own {
    /// Variance of the mean response time: what it errs by, and that of its own interval.
    fn variance(&self) -> f64 {
        let own = self.reach.map_or(0.0, |[_, (ends, _)]| sigma(ends));
        self.errs[1].powi(2) + own * own
    }
}

/// All models' answers to one question.
#[derive(Debug, Clone)]
pub(super) struct Ladder {
    rungs: Vec<(Own, Judged)>,
    /// ln of the p99 over the mean, and what it errs by where so many configurations were left out.
    tails: Vec<(f64, f64)>,
    tails_left_out: f64,
    /// Configurations that were left out and lie as the question does, by their weights.
    left_out: f64,
    /// Whether a model's own interval is the least, and that of a station that no counter shows.
    own_is_least: bool,
    open: Option<[Reach; 2]>,
}

/// What is asked, and what of the ladder is known already.
pub(super) struct Asked<'a> {
    pub(super) along: Option<&'a Along<'a>>,
    /// Where it lies among the loads that were run, whatever else it changes.
    pub(super) among: Option<Place>,
    /// Whether it lies outside of the runs in what is varied beside the load.
    pub(super) is_beyond: bool,
    /// Whether the twin's own interval holds what the runs leave open of an inferred station.
    pub(super) has_station: bool,
    pub(super) twin: (&'a Twin, &'a System),
    /// Throughput and mean response time of the twin, of the curve, and of a station that no counter shows.
    pub(super) by_twin: Option<[Interval; 2]>,
    pub(super) by_curve: Option<[Interval; 2]>,
    pub(super) by_station: Option<[Interval; 2]>,
    /// By what the machine's speed, where it is known, moves the logarithms of the answers made without it, by the twin.
    pub(super) speed: Pair,
    /// p99 over the mean by the twin.
    pub(super) tail_by_twin: Option<f64>,
    /// Its logarithm by how requests wait, at a mean response time.
    pub(super) tail_by_wait: &'a dyn Fn(f64) -> Option<f64>,
    /// Nothing but the operating system tells what a request waits for; and neither do the runs.
    pub(super) tells_nothing: bool,
    pub(super) is_blind: bool,
    /// In some run the processors were full.
    pub(super) is_full: bool,
}

impl Asked<'_> {
    /// What a model says, judged by its `errors`, by their weights, at those of `left_out` configurations where it had an
    /// answer.
    fn judged(
        &self,
        rung: Rung,
        errors: &[(&LeftOut, Pair, Pair)],
        left_out: f64,
    ) -> Option<(Own, Judged)> {
        let (pair, reach) = self.own(rung)?;
        let speed = if rung == Rung::Twin { [0.0; 2] } else { self.speed };
        let center = [0, 1].map(|at| pair[at].ln() + speed[at]);
        if center.iter().any(|center| !center.is_finite()) {
            return None;
        }
        let is_blind = self.is_blind && rung.is_of_the_structure();
        let usual = if is_blind { BLIND } else { rung.usual() };
        let at = |at: usize| errors.iter().map(move |(one, error, _)| (one.weight, error[at]));
        let all: f64 = errors.iter().map(|(one, ..)| one.weight).sum();
        let errs = [0, 1].map(|place| errs_by(at(place), left_out, usual));
        let own = reach.map_or([f64::INFINITY; 2], |reach| reach.map(|(ends, _)| sigma(ends)));
        let beyond = |at: usize| {
            let excess = move |(one, error, open): &(&LeftOut, Pair, Pair)| {
                let squares = (error[at].powi(2) - open[at].powi(2)).max(0.0);
                let share = if open[at] > own[at] { own[at] / open[at] } else { 1.0 };
                // What was left out is a mean of runs, and what is asked is one of them.
                (one.weight, (share * squares.sqrt()).hypot(one.of_run[at]))
            };
            errors.iter().map(excess)
        };
        let mut off = [0, 1].map(|place| errs_by(beyond(place), all, LEAST_KNOWN));
        // Of a closed load throughput is off by what the response time is off by, as a share of the cycle.
        if let Workload::Closed { think_time_s, .. } = self.twin.1.workload {
            let share = pair[1] / (pair[1] + think_time_s);
            if errors.is_empty() {
                off = [usual, usual / share];
            } else if self.along.is_none() {
                off[0] = off[0].min(off[1] * share);
            }
        }
        let rms = || weighted(at(1).map(|(weight, error)| (weight, error * error))).0.sqrt();
        let judged = Judged {
            name: rung,
            throughput_per_s: center[0].exp(),
            response_mean_s: center[1].exp(),
            left_out_error: (!errors.is_empty()).then(rms),
            left_out: errors.len(),
            weight: 0.0,
        };
        Some((Own { center, reach, errs, off }, judged))
    }

    fn own(&self, rung: Rung) -> Option<(Pair, Option<[Reach; 2]>)> {
        let of = |intervals: &[Interval; 2]| {
            let reach =
                |of: &Interval| ([of.low, of.high].map(|end| (end / of.center).ln().abs()), of.why);
            (intervals.each_ref().map(|of| of.center), Some(intervals.each_ref().map(reach)))
        };
        match rung {
            Rung::Twin => self.by_twin.as_ref().map(of),
            Rung::Curve => self.by_curve.as_ref().map(of),
            Rung::HiddenStation => self.by_station.as_ref().map(of),
            // What the better model of the same cannot tell they cannot tell either.
            Rung::Line | Rung::ScalingLaw | Rung::Network | Rung::FallingNetwork => {
                let (along, twin) = (self.along, Some(self.twin));
                let said = Said { along, station: None, twin, by_twin: None };
                let is_structure = rung.is_of_the_structure();
                let better = if is_structure { &self.by_twin } else { &self.by_curve };
                Some((said.by(rung)?, better.as_ref().and_then(|better| of(better).1)))
            }
        }
    }
}

impl Ladder {
    pub(super) fn of(asked: &Asked<'_>, all: &[LeftOut]) -> Self {
        let place = asked.along.map(Along::place);
        // At an end what lies between tells something too, and the other end nothing.
        let at = |place: Option<Place>| {
            let is_end = matches!(place, Some(Place::Above | Place::Below));
            let counts = move |one: &&LeftOut| {
                let is_alike = place.is_some() || one.is_beyond == asked.is_beyond;
                one.place == place && is_alike || is_end && one.place == Some(Place::Inside)
            };
            all.iter().filter(counts).collect::<Vec<_>>()
        };
        // Where more than the load is changed: what was left out of all curves, as far within the other levels, or else lies
        // as the load does.
        let some = [place, asked.among].into_iter().map(at).find(|judges| !judges.is_empty());
        let judges = some.unwrap_or_else(|| all.iter().collect());
        let left_out: f64 = judges.iter().map(|one| one.weight).sum();
        let own_is_least =
            asked.along.is_none_or(|along| !along.is_closed()) || place != Some(Place::Inside);
        // What a system tells of itself leaves no place for a station that no counter shows.
        let is_open = own_is_least && asked.tells_nothing;
        let open = asked.own(Rung::HiddenStation).and_then(|own| own.1).filter(|_| is_open);
        let rung = |(at, rung)| {
            // What was open there is in a model's own interval, where that is the least.
            let is_open = open.is_some() || asked.along.is_none() && asked.has_station;
            let open = |one: &LeftOut| if is_open { one.open } else { [0.0; 2] };
            let errors = judges.iter().filter_map(|one| Some((*one, one.errors[at]?, open(one))));
            asked.judged(rung, &errors.collect::<Vec<_>>(), left_out)
        };
        let mut rungs: Vec<(Own, Judged)> =
            Rung::ALL.into_iter().enumerate().filter_map(rung).collect();
        // One that could not be judged does not answer where others could be.
        let is_judged = rungs.iter().any(|(_, one)| one.left_out > 0);
        rungs.retain(|(_, one)| one.left_out > 0 || !is_judged);
        let left_out = if is_judged { left_out } else { 0.0 };
        let errs: Vec<f64> = rungs.iter().map(|(own, _)| own.errs[1]).collect();
        let weights = precise(&weights(&errs, left_out), &rungs);
        rungs.iter_mut().zip(weights).for_each(|((_, one), weight)| one.weight = weight);
        // The p99 over the mean is judged wherever a configuration was left out, each once.
        let times = |one: &LeftOut| all.iter().filter(|other| other.levels == one.levels).count();
        let each = all.iter().map(|one| (one.weight / exact_f64(times(one)), one));
        let each: Vec<(f64, &LeftOut)> = each.filter(|_| is_judged).collect();
        let tails_left_out: f64 = each.iter().map(|(weight, _)| weight).sum();
        let tails = Vec::new();
        let mut ladder = Self { rungs, tails, tails_left_out, left_out, own_is_least, open };
        let around = asked.along.map(|along| along.over_mean(P99 - 1).0);
        let by_wait = ladder.mean().and_then(|[_, mean]| (asked.tail_by_wait)(mean.center));
        let said = [asked.tail_by_twin.map(f64::ln), around, by_wait].into_iter().enumerate();
        let usual = if asked.is_full { TAIL_OF_FULL } else { USUAL_TAIL };
        ladder.tails.extend(said.filter_map(|(at, said)| {
            let errors = each.iter().filter_map(|(weight, one)| Some((*weight, one.tails[at]?)));
            let judged = errors.clone().next().map(|_| errs_by(errors, tails_left_out, usual));
            Some((said?, judged.or(each.is_empty().then_some(UNJUDGED_TAIL))?))
        }));
        ladder
    }

    /// ln of the p99 over the mean, and how far its interval reaches to either side; none where nothing tells it.
    pub(super) fn tail(&self) -> Option<(f64, f64)> {
        let errs: Vec<f64> = self.tails.iter().map(|(_, errs)| *errs).collect();
        let weights = weights(&errs, self.tails_left_out);
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            let tails = self.tails.iter().zip(&weights);
            tails.map(|((said, errs), weight)| weight * of(*said, *errs)).sum::<f64>()
        };
        let center = sum(&|said, _| said);
        let t = quantile(self.tails_left_out);
        let squares = sum(&|said, errs| (t * errs).powi(2) + (NORMAL * (said - center)).powi(2));
        (!self.tails.is_empty()).then_some((center, squares.sqrt()))
    }

    /// The model that weighs most.
    fn leading(&self) -> Option<&(Own, Judged)> {
        self.rungs.iter().max_by(|a, b| a.1.weight.total_cmp(&b.1.weight))
    }

    pub(super) fn leads(&self) -> Rung {
        self.leading().map_or(Rung::Twin, |(_, judged)| judged.name)
    }

    /// Whether a model that knows the structure has a part in the answer.
    pub(super) fn uses_the_structure(&self) -> bool {
        let is_one = |one: &Judged| one.name.is_of_the_structure() && one.weight > NO_PART;
        self.rungs.iter().any(|(_, judged)| is_one(judged))
    }

    /// Throughput and mean response time.
    pub(super) fn mean(&self) -> Option<[Interval; 2]> {
        let leading = &self.leading()?.0;
        Some([0, 1].map(|at| self.mean_of(at, leading)))
    }

    fn mean_of(&self, at: usize, leading: &Own) -> Interval {
        let sum = |of: &dyn Fn(&Own) -> f64| {
            let part = self.rungs.iter().filter(|(_, judged)| judged.weight > NO_PART);
            part.map(|(own, judged)| judged.weight * of(own)).sum::<f64>()
        };
        let all = sum(&|_| 1.0);
        let is_judged = self.left_out > 0.0;
        let center = if is_judged { sum(&|own| own.center[at]) / all } else { leading.center[at] };
        let t = quantile(self.left_out);
        let of = |reach: [Reach; 2], side: usize| reach[at].0[side];
        let reach = |own: &Own, side: usize| match own.reach.map(|reach| of(reach, side)) {
            Some(reach) if self.own_is_least || !is_judged => {
                let open = self.open.filter(|_| is_judged).map_or(0.0, |open| of(open, side));
                reach.max(open).max(t * own.off[at])
            }
            _ => t * own.off[at],
        };
        let differ = sum(&|own| (NORMAL * (own.center[at] - center)).powi(2)) / all;
        let end = |side: usize| {
            if is_judged {
                return (sum(&|own| reach(own, side).powi(2)) / all + differ).sqrt();
            }
            let sign = if side == 0 { -1.0 } else { 1.0 };
            let parts = self.rungs.iter().filter(|(_, one)| one.weight > 1.0 - CONFIDENCE);
            let ends = parts.map(|(own, _)| sign * (own.center[at] - center) + reach(own, side));
            ends.fold(0.0, f64::max)
        };
        let ends = [end(0), end(1)];
        let (low, high) = ((center - ends[0]).exp(), (center + ends[1]).exp());
        // What makes most of the leading model's own interval, where that is most of this one.
        let own = leading.reach.map(|reach| reach[at]);
        let own = own.filter(|(own, _)| own[0] + own[1] > 0.7 * (ends[0] + ends[1]));
        Interval { center: center.exp(), low, high, why: own.map_or(Why::Model, |(_, why)| why) }
    }

    /// As it is shown: simplest first.
    pub(super) fn shown(&self) -> Vec<Judged> {
        self.rungs.iter().map(|(_, judged)| *judged).collect()
    }
}

/// Of an interval that reaches so far to either side.
fn sigma(ends: [f64; 2]) -> f64 {
    (ends[0] + ends[1]) / (2.0 * NORMAL)
}

/// What a model errs by: s, of its `errors`, by their weights, at some of the `left_out`, and of what it usually errs by.
fn errs_by(errors: impl Iterator<Item = (f64, f64)>, left_out: f64, usual: f64) -> f64 {
    let sums = errors.fold((0.0, 0.0), |(squares, all), (weight, error)| {
        (squares + weight * error * error, all + weight)
    });
    let missing = (left_out - sums.1).max(0.0) + WORTH;
    ((sums.0 + missing * usual * usual) / (left_out + WORTH)).sqrt()
}

/// Half of an interval in units of what a model errs by. Without errors, what it usually errs by is no estimate.
fn quantile(left_out: f64) -> f64 {
    if left_out > 0.0 { t_two_sided(CONFIDENCE, left_out + WORTH) } else { NORMAL }
}

/// Shares of the answer, by what each errs by where so many were left out.
fn weights(errs: &[f64], left_out: f64) -> Vec<f64> {
    let least = errs.iter().copied().fold(f64::INFINITY, f64::min);
    let power = left_out + WORTH;
    let weight = |errs: &f64| (errs / least).powf(-power);
    let all: f64 = errs.iter().map(weight).sum();
    errs.iter().map(|errs| weight(errs) / all).collect()
}

/// The same with the precision of each answer as a factor.
fn precise(weights: &[f64], rungs: &[(Own, Judged)]) -> Vec<f64> {
    let all = rungs.iter().zip(weights).map(|((own, _), weight)| weight / own.variance());
    let all: Vec<f64> = all.collect();
    let sum: f64 = all.iter().sum();
    if sum > 0.0 { all.iter().map(|one| one / sum).collect() } else { weights.to_vec() }
}

/// Most times that a model is made again without some of its runs, as each takes a part of a second.
const MOST_TIMES: usize = 12;

/// What is left out, one after another: each configuration, and each level of what is varied beside the load, by the
/// places of their runs. The runs of a configuration are together.
pub(super) fn groups(runs: &[LoadRun]) -> Vec<Vec<Vec<usize>>> {
    let place = |run: &LoadRun| runs.iter().position(|known| std::ptr::eq(known, run));
    let places = |same: &Vec<&LoadRun>| same.iter().filter_map(|run| place(run)).collect();
    let configurations: Vec<Vec<usize>> = configurations(runs.iter()).iter().map(places).collect();
    let mut groups = Vec::new();
    let mut levels: Vec<&(String, f64)> = Vec::new();
    for level in runs.iter().flat_map(|run| &run.levels).filter(|(key, _)| !is_load(key)) {
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    for level in levels {
        let at = |known: &&Vec<usize>| runs[known[0]].levels.contains(level);
        let group: Vec<Vec<usize>> = configurations.iter().filter(at).cloned().collect();
        if group.len() > 1 && group.len() < configurations.len() {
            groups.push(group);
        }
    }
    groups.truncate(MOST_TIMES / 2);
    let left = MOST_TIMES - groups.len();
    let step = configurations.len().div_ceil(left).max(1);
    groups.extend(configurations.into_iter().step_by(step).map(|one| vec![one]));
    groups
}
