//! What-if: a prediction, how sure it is and why not surer, and when there is none.

use std::sync::PoisonError;

use kendall_stats::distribution::t_two_sided;
use kendall_units::exact_f64;
use serde::Serialize;

use super::analytic::{Solved, analytic};
use super::calibrate::{Fitted, Form, Lack, MeasuredRun, Twin, length, logs, with_commit};
use super::demand::{Demand, LEAST_BATCH};
use super::interval::{Interval, Why};
use super::simulate::{Chance, Machine, Simulated, simulate};
use super::system::{Host, System, SystemError, Workload};
use crate::model::{CONFIDENCE, NORMAL};

/// Draws from what is uncertain.
const DRAWS: u32 = 16;
/// Repetitions of the central prediction, which also tell what chance does.
const CENTRAL: u64 = 5;
/// Rounds over a slowness that depends on the load, and the share of each that is taken.
const SLOWNESS_ROUNDS: u32 = 3;
const SLOWNESS_SHARE: f64 = 0.6;
/// Rounds over what full processors carry, where work falls with it.
const SETTLING: u32 = 8;
/// Spread of the form of the demands itself, as σ of the logarithm: among the runs, and again for each factor of e beyond
/// them, as an unknown power of the load would make it.
const FORM: f64 = 0.05;
/// Spread of the times that an idle core takes to wake, and that a commit takes.
const TIMES: f64 = 0.25;
/// Least spread of throughput, mean response, p50, p90, p99 and utilizations, whatever the draws say.
const FLOORS: [f64; 6] = [0.01, 0.03, 0.03, 0.06, 0.10, 0.02];
/// How many times beyond what was measured a level may lie before a prediction is refused.
pub const MOST_REACH: f64 = 8.0;
/// Busy share from which something is called a bottleneck.
pub(crate) const BUSY: f64 = 0.85;
/// Share in use from which an open load may be near what can be served.
const NEAR: f64 = 0.6;
/// Fewest and most clients that fill a system.
const FULL: (u32, u32) = (16, 512);
/// Requests of one simulation.
const REQUESTS: (f64, f64) = (500.0, 3_000.0);
/// Standard deviations of the number of arrivals by which what is served may lie below what is offered
/// before an open load is said to fall behind.
const BEHIND: f64 = 5.0;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The cores of a host.
    Host { name: String },
    /// The tokens of a pool.
    Pool { name: String },
    /// The threads of a process.
    Threads { name: String },
    /// A commit or flush that requests wait for.
    Commit { name: String },
    /// Something inside the service that no counter shows: throughput no longer grows in proportion.
    Unseen,
    /// Nothing is busy: delays and think time bound the throughput.
    Nothing,
}

/// How far a question lies from what was measured, in one level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distance {
    pub level: String,
    pub asked: f64,
    /// Least and greatest that were measured.
    pub measured: (f64, f64),
}

impl Distance {
    /// Whether it lies outside of what was measured.
    pub fn extrapolates(&self) -> bool {
        self.asked < self.measured.0 || self.asked > self.measured.1
    }
}

/// A share of something in use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    pub name: String,
    /// The share, 0 to 1.
    pub share: Interval,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// X, 1/s.
    pub throughput_per_s: Interval,
    /// Mean response time, in s.
    pub response_mean_s: Interval,
    /// Median, in s.
    pub response_p50_s: Interval,
    /// 90th percentile, in s.
    pub response_p90_s: Interval,
    /// 99th percentile, in s.
    pub response_p99_s: Interval,
    /// Busy share of the cores, by host.
    pub hosts: Vec<Share>,
    /// Busy share of tokens, by pool (central prediction).
    pub pools: Vec<(String, f64)>,
    pub bottleneck: Bottleneck,
    /// How far it lies from what was measured.
    pub distances: Vec<Distance>,
    /// Throughput of the analysis, where it covers the structure.
    pub analytic_throughput_per_s: Option<f64>,
    /// Reasons to trust it less.
    pub caveats: Vec<String>,
}

impl Prediction {
    /// Widens the intervals to those of another prediction that may be as right.
    pub(crate) fn or(&mut self, other: &Self) {
        let both = [
            (&mut self.throughput_per_s, other.throughput_per_s),
            (&mut self.response_mean_s, other.response_mean_s),
            (&mut self.response_p50_s, other.response_p50_s),
            (&mut self.response_p90_s, other.response_p90_s),
            (&mut self.response_p99_s, other.response_p99_s),
        ];
        for (own, other) in both {
            if other.low < own.low || other.high > own.high {
                own.why = Why::Model;
            }
            (own.low, own.high) = (own.low.min(other.low), own.high.max(other.high));
        }
    }

    /// Moves it to other means, of throughput too where the load is closed: quantiles keep their ratio to the mean, and
    /// what their intervals are wider by than that of the mean; `tail` is ln of the p99 over the mean, and how far it
    /// reaches, where that is judged by itself.
    pub(crate) fn moved(
        &mut self,
        [x, mean]: [Interval; 2],
        tail: Option<(f64, f64)>,
        is_closed: bool,
    ) {
        let old = self.response_mean_s;
        let end = |of: f64, old_end: f64, new_end: f64| {
            let more = (of.powi(2) - old_end.powi(2)).max(0.0);
            (more + new_end.powi(2)).sqrt()
        };
        for quantile in
            [&mut self.response_p50_s, &mut self.response_p90_s, &mut self.response_p99_s]
        {
            let center = mean.center * quantile.center / old.center;
            let log = |of: f64, center: f64| (of / center).ln().abs();
            let low = end(
                log(quantile.low, quantile.center),
                log(old.low, old.center),
                log(mean.low, mean.center),
            );
            let high = end(
                log(quantile.high, quantile.center),
                log(old.high, old.center),
                log(mean.high, mean.center),
            );
            *quantile = Interval {
                center,
                low: center * (-low).exp(),
                high: if quantile.high.is_finite() { center * high.exp() } else { f64::INFINITY },
                why: quantile.why,
            };
        }
        if let Some((log, reach)) = tail {
            let p99 = &mut self.response_p99_s;
            let center = (mean.center * log.exp()).max(self.response_p90_s.center);
            let end = |end: f64| (end / mean.center).ln().hypot(reach);
            p99.low = center * (-end(mean.low)).exp();
            if p99.high.is_finite() {
                p99.high = center * end(mean.high).exp();
            }
            (p99.center, p99.why) = (center, Why::Model);
        }
        self.response_mean_s = mean;
        if is_closed {
            self.throughput_per_s = x;
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    System(#[from] SystemError),
    #[error(
        "the calibration knows nothing of the process `{name}`: run the system with it once at light \
         load and once near saturation"
    )]
    UnknownProcess { name: String },
    #[error(
        "batches of up to {asked} are asked for, and no calibration run served {LEAST_BATCH} or \
         more together: work per request and per batch cannot be separated. Run it once saturated \
         with batches of {asked}"
    )]
    Batches { asked: u32 },
    #[error(
        "`{level}` = {asked} is more than {MOST_REACH} times beyond what was measured ({low} to \
         {high}): run it once at {nearer} at least"
    )]
    TooFar { level: String, asked: f64, low: f64, high: f64, nearer: f64 },
    #[error(
        "no steady state: {asked_per_s:.0}/s arrive and about {:.0}/s ({:.0} to {:.0}) can be served; choose a lower rate",
        most_per_s.center, most_per_s.low, most_per_s.high
    )]
    Overloaded { asked_per_s: f64, most_per_s: Interval },
}

/// Metrics of one simulation, in logarithms: X, mean, p50, p90, p99, hosts.
type Logs = Vec<f64>;

impl Twin {
    /// Predicts a configuration. `levels` are what it differs in from the calibration runs, for the
    /// distance; `slowness` the machine's, relative to the calibration, where it is known (a probe
    /// beside the run).
    ///
    /// # Errors
    /// [`Refusal`] for what the calibration does not determine.
    pub fn predict(
        &self,
        question: &System,
        levels: &[(String, f64)],
        slowness: Option<f64>,
    ) -> Result<Prediction, Refusal> {
        self.check(question, levels)?;
        // By form: its repetitions, but for one whose requests pile up.
        let mut forms: Vec<Vec<Logs>> = Vec::new();
        let mut shown = None;
        for (fitted, at) in self.fitted.iter().zip(0_u64..) {
            let ask = Ask { twin: self, question, slowness, fitted };
            let run = |repeat| ask.run((1.0, 1.0), self.seed + 10_000 * at + repeat);
            match (0..CENTRAL).map(run).collect::<Option<Vec<(Simulated, f64)>>>() {
                Some(runs) => {
                    forms.push(runs.iter().map(|(s, p99)| metrics(s, *p99)).collect());
                    shown = shown.or_else(|| runs.into_iter().next().map(|(first, _)| first));
                }
                None if fitted.shown => return Err(self.overloaded(question, slowness)?),
                None => {}
            }
        }
        let Some(shown) = shown else { return Err(self.overloaded(question, slowness)?) };
        // Forms that the runs show come first.
        let central = self.fitted.iter().filter(|fitted| fitted.shown).count();
        let means: Vec<Logs> = forms.iter().map(|form| mean_of(form)).collect();
        let center = mean_of(&means[..central]);
        // What chance does to one run, by the repetitions within each form.
        let chance = mean_of(&forms.iter().map(|form| variance_of(form)).collect::<Vec<_>>());
        let draws = self.draws(question, slowness);
        if 2 * draws.len() < DRAWS as usize {
            return Err(self.overloaded(question, slowness)?);
        }
        let drawn = squares_around(&center, &draws);
        let spread = Spread { center, chance, drawn, between: variance_of(&means) };
        let mut prediction = self.answer(question, levels, slowness, &shown, &spread);
        if let Workload::Open { rate_per_s } = question.workload {
            let fills = shown.hosts.iter().chain(&shown.pools).chain(&shown.threads);
            let piles_up = draws.len() < DRAWS as usize || forms.len() < self.fitted.len();
            let is_near = piles_up || fills.chain(&shown.commits).any(|share| *share > NEAR);
            let most_per_s = is_near.then(|| self.most_served(question, slowness)).transpose()?;
            if let Some(most_per_s) = most_per_s.filter(|most| rate_per_s > most.high) {
                return Err(Refusal::Overloaded { asked_per_s: rate_per_s, most_per_s });
            }
            self.as_offered(&mut prediction, rate_per_s, most_per_s);
        }
        Ok(prediction)
    }

    /// An open load that is served: its throughput is its rate, to within the chance of its arrivals. Where it may be
    /// more than what can be served, `most`, response times have no upper end.
    fn as_offered(&self, prediction: &mut Prediction, rate_per_s: f64, most: Option<Interval>) {
        let half = NORMAL / (rate_per_s * self.run_s).sqrt();
        let (low, high) = (rate_per_s * (1.0 - half).max(0.0), rate_per_s * (1.0 + half));
        let x = &mut prediction.throughput_per_s;
        *x = Interval { center: rate_per_s, low, high, why: Why::Chance };
        let Some(most) = most.filter(|most| rate_per_s > most.low) else { return };
        (x.low, x.why) = (low.min(most.low), Why::Model);
        for time in [
            &mut prediction.response_mean_s,
            &mut prediction.response_p50_s,
            &mut prediction.response_p90_s,
            &mut prediction.response_p99_s,
        ] {
            (time.high, time.why) = (f64::INFINITY, Why::Model);
        }
        prediction.caveats.push(format!(
            "{rate_per_s:.0}/s may be more than can be served ({:.0} to {:.0}/s): then requests pile up, and response \
             times have no upper end; a run at this rate tells",
            most.low, most.high
        ));
    }

    /// Logarithms of X, mean, p50, p90 and p99 without their intervals, by the forms that the runs show; none where
    /// requests pile up.
    pub(crate) fn center(&self, question: &System, slowness: Option<f64>) -> Option<[f64; 5]> {
        let shown = self.fitted.iter().filter(|fitted| fitted.shown).zip(0_u64..);
        let run = |(fitted, at): (&Fitted, u64)| {
            let ask = Ask { twin: self, question, slowness, fitted };
            let (simulated, p99) = ask.run((1.0, 1.0), self.seed + 10_000 * at)?;
            Some(logs(&simulated, p99).to_vec())
        };
        let mean = mean_of(&shown.map(run).collect::<Option<Vec<Logs>>>()?);
        mean.try_into().ok()
    }

    fn overloaded(&self, question: &System, slowness: Option<f64>) -> Result<Refusal, Refusal> {
        let asked_per_s = question.workload.load();
        Ok(Refusal::Overloaded { asked_per_s, most_per_s: self.most_served(question, slowness)? })
    }

    /// Throughput with more clients than the system has places for requests.
    fn most_served(&self, question: &System, slowness: Option<f64>) -> Result<Interval, Refusal> {
        let tokens: u32 = question.pools.iter().map(|pool| pool.tokens).sum();
        let cores: u32 = question.hosts.iter().map(|host| host.cores).sum();
        let clients = tokens.saturating_mul(2).saturating_add(8 * cores).clamp(FULL.0, FULL.1);
        let workload = Workload::Closed { clients, think_time_s: 0.0 };
        let full = (System { workload, ..question.clone() }, slowness);
        let served = || self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let known = served().iter().find(|(asked, _)| *asked == full).map(|(_, most)| *most);
        if let Some(most) = known {
            return Ok(most);
        }
        let mut most = self.predict(&full.0, &[], slowness)?.throughput_per_s;
        // By a machine that is slower less, where processors bound it.
        let carried = self.carried(question) / slowness.unwrap_or(1.0).max(1.0);
        let (_, drift) = self.spreads(&self.fitted[0], slowness, 0.0);
        let surely = carried * (-NORMAL * drift).exp();
        if surely > most.low {
            (most.low, most.why) = (surely, Why::Drift);
            most.center = most.center.max(carried);
            most.high = most.high.max(carried);
        }
        served().push((full, most));
        Ok(most)
    }

    /// What the runs that differ in the load alone carried at most, whatever their loop: that can be served.
    fn carried(&self, question: &System) -> f64 {
        let same = |run: &&MeasuredRun| {
            System { workload: question.workload, ..run.system.clone() } == *question
        };
        let same = self.configurations.iter().filter(same);
        same.map(|run| run.throughput_per_s).fold(0.0, f64::max)
    }

    /// One configuration by analysis; `None` where it does not cover the structure.
    pub fn solve(&self, system: &System) -> Option<Solved> {
        analytic(system, &|x| self.cpu_s(x)).ok()
    }

    /// The same with what a request costs held constant, at its mean over the configurations: a network
    /// of delays, pools and cores as textbooks have it.
    pub fn solve_constant(&self, system: &System) -> Option<Solved> {
        let runs = exact_f64(self.configurations.len());
        let mean = |process: usize| {
            self.configurations.iter().map(|run| run.processes[process].cpu_s).sum::<f64>() / runs
        };
        let cpu_s: Vec<f64> = (0..self.configurations[0].processes.len()).map(mean).collect();
        analytic(system, &|_| cpu_s.clone()).ok()
    }

    /// CPU time of a request at throughput `x`, by process: falling with load as a power of it,
    /// fitted to the configurations, and constant beyond their ends where that is more.
    pub fn cpu_s(&self, x: f64) -> Vec<f64> {
        let of_process = |process: usize| {
            let points: Vec<(f64, f64)> = self
                .configurations
                .iter()
                .filter(|run| run.processes[process].cpu_s > 0.0)
                .map(|run| (run.throughput_per_s.ln(), run.processes[process].cpu_s.ln()))
                .collect();
            falling(&points, x)
        };
        (0..self.configurations[0].processes.len()).map(of_process).collect()
    }

    /// Refuses what the calibration does not determine.
    pub(crate) fn check(&self, question: &System, levels: &[(String, f64)]) -> Result<(), Refusal> {
        question.check()?;
        let known = &self.configurations[0].system.processes;
        for process in &question.processes {
            if !known.iter().any(|other| other.name == process.name) {
                return Err(Refusal::UnknownProcess { name: process.name.clone() });
            }
        }
        if question.processes.len() != known.len() {
            let missing = known
                .iter()
                .find(|k| !question.processes.iter().any(|process| process.name == k.name));
            let name =
                missing.map_or_else(|| known[0].name.clone(), |process| process.name.clone());
            return Err(Refusal::UnknownProcess { name });
        }
        let asked = question.largest_batch();
        let measured = self.configurations.iter().map(|r| r.system.largest_batch()).max();
        if !self.tells_batches && Some(asked) > measured && f64::from(asked) >= LEAST_BATCH {
            return Err(Refusal::Batches { asked });
        }
        for distance in self.distances(levels) {
            let (low, high) = distance.measured;
            let (level, asked) = (distance.level, distance.asked);
            if high > 0.0 && asked > MOST_REACH * high {
                let nearer = asked / MOST_REACH;
                return Err(Refusal::TooFar { level, asked, low, high, nearer });
            }
            if asked > 0.0 && low > MOST_REACH * asked {
                let nearer = asked * MOST_REACH;
                return Err(Refusal::TooFar { level, asked, low, high, nearer });
            }
        }
        Ok(())
    }

    /// Demands of the processes of a system: the calibration runs keep their order, and a question may not.
    fn demands_in<'a>(
        &self,
        system: &'a System,
        fitted: &'a Fitted,
    ) -> impl Iterator<Item = Demand> + use<'a> {
        let known = &self.configurations[0].system.processes;
        let place = |name: &str| known.iter().position(|p| p.name == name).unwrap_or(0);
        let places: Vec<usize> = system.processes.iter().map(|own| place(&own.name)).collect();
        places.into_iter().map(|place| fitted.demands[place])
    }

    /// Most that the processors carry of a closed load, by the work of a request alone, as if it took no switch: by the
    /// forms that the runs show; and by all forms, with what the demands are known to.
    pub(crate) fn most_of_processors(&self, system: &System) -> [f64; 2] {
        let Workload::Closed { .. } = system.workload else { return [f64::INFINITY; 2] };
        let of_form = |fitted: &Fitted| {
            let mut work_s = vec![0.0; system.hosts.len()];
            let batch = f64::from(system.largest_batch());
            for (process, demand) in system.processes.iter().zip(self.demands_in(system, fitted)) {
                work_s[process.host] += demand.cpu_s(batch, 0.0, 1.0);
            }
            let of_host =
                |(host, work_s): (&Host, f64)| f64::from(host.cores) * host.speed / work_s;
            let most = system.hosts.iter().zip(work_s).map(of_host).fold(f64::INFINITY, f64::min);
            let slowed = |x: f64| most / self.reference.slowness(fitted.form, x, 1.0, None);
            (0..SETTLING).fold(most, |x, _| if x.is_finite() { slowed(x) } else { x })
        };
        let all = |of: &dyn Fn(&&Fitted) -> bool| {
            self.fitted.iter().filter(of).map(of_form).fold(0.0, f64::max)
        };
        [all(&|fitted| fitted.shown), all(&|_| true) * (1.0 + self.half_width(self.reach(system)))]
    }

    /// Busy shares of the hosts at a throughput, by the processor time of a request.
    pub(crate) fn busy(&self, question: &System, x: &Interval) -> Vec<Share> {
        let cpu_s = self.cpu_s(x.center);
        let of_host = |(at, host): (usize, &Host)| {
            let used = question.processes.iter().zip(&cpu_s);
            let used: f64 = used.filter(|(process, _)| process.host == at).map(|(_, s)| s).sum();
            let share = |x: f64| (x * used / host.speed / f64::from(host.cores)).min(1.0);
            let (center, low, high) = (share(x.center), share(x.low), share(x.high));
            Share { name: host.name.clone(), share: Interval { center, low, high, why: x.why } }
        };
        question.hosts.iter().enumerate().map(of_host).collect()
    }

    pub(crate) fn distances(&self, levels: &[(String, f64)]) -> Vec<Distance> {
        let of_level = |(level, asked): &(String, f64)| {
            let measured: Vec<f64> = self
                .configurations
                .iter()
                .flat_map(|run| run.levels.iter().filter(|(name, _)| name == level))
                .map(|(_, value)| *value)
                .collect();
            let low = measured.iter().copied().fold(f64::INFINITY, f64::min);
            let high = measured.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let measured = (low, high);
            low.is_finite().then(|| Distance { level: level.clone(), asked: *asked, measured })
        };
        levels.iter().filter_map(of_level).collect()
    }

    /// How far a question lies beyond the runs in its load, its pools and its cores: logarithms of how many times, at right
    /// angles, as what a request costs may follow each of them by a power of its own.
    fn reach(&self, question: &System) -> f64 {
        let beyond = |of: &dyn Fn(&System) -> Option<u32>| {
            let known = self.configurations.iter().filter_map(|run| of(&run.system)).map(f64::from);
            let (low, high) =
                known.fold((f64::INFINITY, 0.0_f64), |(low, high), at| (low.min(at), high.max(at)));
            let asked = of(question).map_or(0.0, f64::from);
            let beyond = (asked / high).ln().max((low / asked).ln());
            if beyond.is_finite() { beyond.max(0.0) } else { 0.0 }
        };
        let clients = beyond(&|system| match system.workload {
            Workload::Closed { clients, .. } => Some(clients),
            Workload::Open { .. } => None,
        });
        let cores = |name: &String| {
            beyond(&|system| Some(system.hosts.iter().find(|host| host.name == *name)?.cores))
        };
        let tokens = |name: &String| {
            beyond(&|system| Some(system.pools.iter().find(|pool| pool.name == *name)?.tokens))
        };
        let cores = question.hosts.iter().map(|host| cores(&host.name));
        let tokens = question.pools.iter().map(|pool| tokens(&pool.name));
        cores.chain(tokens).fold(clients, f64::hypot)
    }

    /// σ of all demands together: fit with form, so far beyond the runs, and drift. What runs of one configuration differ by
    /// is drift, and no lack of fit.
    fn spreads(&self, fitted: &Fitted, slowness: Option<f64>, reach: f64) -> (f64, f64) {
        let lack = (fitted.residual.powi(2) - self.drift.powi(2)).max(0.0).sqrt();
        // Without its speed known, a run is as fast as any other.
        let speed = if slowness.is_none() { self.speed_spread } else { 0.0 };
        (lack.hypot(FORM).hypot(FORM * reach), self.drift.hypot(speed))
    }

    /// Half-width of a 95 % interval of all demands together at a known speed, as a share: what the form
    /// leaves, and what the machine does between runs.
    pub fn demands_half_width(&self) -> f64 {
        self.half_width(0.0)
    }

    fn half_width(&self, reach: f64) -> f64 {
        let (fit, drift) = self.spreads(&self.fitted[0], Some(1.0), reach);
        NORMAL * fit.hypot(drift)
    }

    /// Those in which requests do not pile up.
    fn draws(&self, question: &System, slowness: Option<f64>) -> Vec<Logs> {
        let mut chance = Chance::new(self.seed ^ 0x5EED);
        let reach = self.reach(question);
        let all: f64 = self.fitted.iter().map(|fitted| fitted.share).sum();
        let mut one = |draw: u32| {
            let mut left = (f64::from(draw) + 0.5) / f64::from(DRAWS) * all;
            let fitted = self.fitted.iter().find(|fitted| {
                left -= fitted.share;
                left <= 0.0
            })?;
            let (fit, drift) = self.spreads(fitted, slowness, reach);
            let work = (fit.hypot(drift) * chance.normal()).exp();
            let times = (TIMES * chance.normal()).exp();
            let ask = Ask { twin: self, question, slowness, fitted };
            let (simulated, p99) = ask.run((work, times), self.seed + 31 * u64::from(draw + 1))?;
            Some(metrics(&simulated, p99))
        };
        (0..DRAWS).filter_map(&mut one).collect()
    }

    fn answer(
        &self,
        question: &System,
        levels: &[(String, f64)],
        slowness: Option<f64>,
        shown: &Simulated,
        spread: &Spread,
    ) -> Prediction {
        let (fit, drift) = self.spreads(&self.fitted[0], slowness, self.reach(question));
        let interval = |index: usize| {
            let model = self.misfit.metrics.get(index).map_or(0.0, lacking);
            spread.interval(index, model, (fit, drift))
        };
        let hosts = question.hosts.iter().enumerate().map(|(at, host)| {
            let mut share = interval(5 + at);
            share.high = share.high.min(1.0);
            share.center = share.center.min(1.0);
            Share { name: host.name.clone(), share }
        });
        let pools = question.pools.iter().zip(&shown.pools);
        let distances = self.distances(levels);
        Prediction {
            throughput_per_s: interval(0),
            response_mean_s: interval(1),
            response_p50_s: interval(2),
            response_p90_s: interval(3),
            response_p99_s: interval(4),
            hosts: hosts.collect(),
            pools: pools.map(|(pool, share)| (pool.name.clone(), *share)).collect(),
            bottleneck: bottleneck(question, shown),
            caveats: self.caveats(&distances),
            distances,
            analytic_throughput_per_s: self.solve(question).map(|solved| solved.throughput_per_s),
        }
    }

    fn caveats(&self, distances: &[Distance]) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.misfit.contradicted {
            caveats.push(format!(
                "the structure is contradicted by the runs it was calibrated on: throughput is off by \
                 {:+.0} % at the worst of them; something that bounds it is not in the model",
                100.0 * self.misfit.worst.exp_m1()
            ));
        }
        if !self.drift_known {
            caveats.push(
                "no configuration was run twice: the machine's drift is taken as 10 %".to_owned(),
            );
        }
        for distance in distances.iter().filter(|distance| distance.extrapolates()) {
            let Distance { level, asked, measured: (low, high) } = distance;
            caveats.push(format!(
                "`{level}` = {asked} lies outside of what was measured ({low} to {high})"
            ));
        }
        if !self.left_out.is_empty() {
            caveats.push(format!(
                "{} calibration runs were left out: foreign processes used more than {} of a core, or \
                 more than {} was stolen from the machine",
                self.left_out.len(),
                self.most_foreign_cores,
                super::calibrate::most_stolen(self.most_foreign_cores)
            ));
        }
        caveats
    }
}

/// A question to one form of the demands.
struct Ask<'a> {
    twin: &'a Twin,
    question: &'a System,
    slowness: Option<f64>,
    fitted: &'a Fitted,
}

impl Ask<'_> {
    /// One simulated run with all demands and all times multiplied; and the correction of its p99. None where requests
    /// pile up.
    fn run(&self, (work, times): (f64, f64), seed: u64) -> Option<(Simulated, f64)> {
        let fitted = self.fitted;
        let system = with_commit(self.question, fitted.commit_s * times);
        let demands = self.twin.demands_in(self.question, fitted);
        let demands: Vec<Demand> = demands.map(|demand| demand.scaled(work)).collect();
        let wake_s = fitted.wake_s * times;
        let run = |slowness: f64, requests: f64, throughput: f64| {
            let length = length(throughput, requests);
            let machine = Machine { slowness, wake_s, stay: fitted.stay };
            simulate(&system, &demands, machine, length, seed)
        };
        let reference = &self.twin.reference;
        let mut slowness = self.slowness.unwrap_or(1.0);
        let mut throughput = reference.throughput;
        let rounds = match fitted.form {
            Form::ProbeLoad => SLOWNESS_ROUNDS,
            Form::Idle | Form::Load | Form::Probe if self.slowness.is_none() => SLOWNESS_ROUNDS,
            _ => 1,
        };
        for _ in 0..rounds {
            let look = run(slowness, REQUESTS.0, throughput);
            if look.overloaded {
                return None;
            }
            throughput = look.throughput_per_s.max(1e-3 * throughput);
            let cores: f64 = system.hosts.iter().map(|h| f64::from(h.cores)).sum();
            let pairs = look.hosts.iter().zip(&system.hosts);
            let busy = pairs.map(|(busy, host)| busy * f64::from(host.cores)).sum::<f64>() / cores;
            let next = reference.slowness(fitted.form, throughput, busy, self.slowness);
            slowness *= (next / slowness).powf(SLOWNESS_SHARE);
        }
        let requests = (throughput * self.twin.run_s).clamp(REQUESTS.0, REQUESTS.1);
        let simulated = run(slowness, requests, throughput);
        // An open load of which so much is left undone piles up: its response time is a matter of
        // how long one looks.
        let behind = match system.workload {
            Workload::Open { rate_per_s } => {
                simulated.throughput_per_s < (1.0 - BEHIND / requests.sqrt()) * rate_per_s
            }
            Workload::Closed { .. } => false,
        };
        let is_served = !simulated.overloaded && simulated.completions > 0 && !behind;
        is_served.then_some((simulated, fitted.p99))
    }
}

fn metrics(simulated: &Simulated, p99: f64) -> Logs {
    let mut all = logs(simulated, p99).to_vec();
    all.extend(simulated.hosts.iter().map(|busy| busy.max(1e-12).ln()));
    all
}

/// Variance of the model's own error in one metric.
fn lacking(lack: &Lack) -> f64 {
    let squares: f64 = lack.errors.iter().map(|error| error * error).sum();
    (squares / lack.freedom - lack.explained).max(0.0)
}

/// Centers and variances of the logarithms, by metric.
struct Spread {
    center: Logs,
    /// Of repetitions that differ by chance alone.
    chance: Logs,
    /// Of the draws, which also have chance in them.
    drawn: Logs,
    /// Between forms of the demands.
    between: Logs,
}

impl Spread {
    fn interval(&self, index: usize, misfit: f64, (fit, drift): (f64, f64)) -> Interval {
        let floor = FLOORS[index.min(FLOORS.len() - 1)].powi(2);
        let variance = self.drawn[index].max(self.chance[index]) + floor + misfit;
        let half = t_two_sided(CONFIDENCE, f64::from(DRAWS - 1)) * variance.sqrt();
        let demands = (self.drawn[index] - self.chance[index]).max(0.0);
        let share = drift * drift / (fit * fit + drift * drift);
        let parts = [
            (Why::Fit, demands * (1.0 - share)),
            (Why::Drift, demands * share),
            (Why::Chance, self.chance[index]),
            (Why::Model, floor + misfit + self.between[index]),
        ];
        let most = parts.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Why::Model, |p| p.0);
        let center = self.center[index].exp();
        Interval { center, low: center * (-half).exp(), high: center * half.exp(), why: most }
    }
}

fn mean_of(list: &[Logs]) -> Logs {
    let count = exact_f64(list.len().max(1));
    (0..list[0].len()).map(|i| list.iter().map(|logs| logs[i]).sum::<f64>() / count).collect()
}

fn variance_of(list: &[Logs]) -> Logs {
    squares_around(&mean_of(list), list)
}

/// Their mean square distance from a center, with one degree of freedom less than there are.
fn squares_around(center: &Logs, list: &[Logs]) -> Logs {
    let of = |i: usize| list.iter().map(|logs| (logs[i] - center[i]).powi(2)).sum::<f64>();
    let freedom = exact_f64(list.len().max(2) - 1);
    (0..center.len()).map(|i| of(i) / freedom).collect()
}

/// exp(a − p·ln x) with 0 ≤ p ≤ 1 by least squares; beyond the ends of the points as at them.
fn falling(points: &[(f64, f64)], x: f64) -> f64 {
    if points.is_empty() {
        return 0.0;
    }
    let n = exact_f64(points.len());
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sxx: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let power = if sxx > 0.0 { (-sxy / sxx).clamp(0.0, 1.0) } else { 0.0 };
    let low = points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
    let at = if x > 0.0 { x.ln().clamp(low, high) } else { low };
    (mean_y - power * (at - mean_x)).exp()
}

fn bottleneck(question: &System, shown: &Simulated) -> Bottleneck {
    let hosts = question.hosts.iter().zip(&shown.hosts);
    let pools = question.pools.iter().zip(&shown.pools);
    let threads = question.processes.iter().zip(&shown.threads);
    let commits = question.commits.iter().zip(&shown.commits);
    let mut all: Vec<(f64, Bottleneck)> = Vec::new();
    all.extend(hosts.map(|(h, share)| (*share, Bottleneck::Host { name: h.name.clone() })));
    all.extend(pools.map(|(p, share)| (*share, Bottleneck::Pool { name: p.name.clone() })));
    all.extend(threads.map(|(p, share)| (*share, Bottleneck::Threads { name: p.name.clone() })));
    all.extend(commits.map(|(c, share)| (*share, Bottleneck::Commit { name: c.name.clone() })));
    // A pool is full when what is held below it is: the cores come first where both are.
    let most = all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let full_host = question
        .hosts
        .iter()
        .zip(&shown.hosts)
        .find(|(_, share)| **share > BUSY)
        .map(|(host, _)| Bottleneck::Host { name: host.name.clone() });
    match (full_host, most) {
        (Some(host), _) => host,
        (None, Some((share, what))) if share > BUSY => what,
        _ => Bottleneck::Nothing,
    }
}
