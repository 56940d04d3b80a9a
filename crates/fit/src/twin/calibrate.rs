//! From measured runs to a twin.

use std::sync::{Arc, Mutex};

use kendall_units::{exact_f64, whole_u64};

use super::demand::{self, Demand, Observed};
use super::interval::Interval;
use super::simulate::{Chance, Length, Machine, Simulated, simulate};
use super::system::{System, SystemError};
use crate::bottleneck::DISTURBED;
use crate::score::pooled_spread;

/// Rounds in which demands are fitted through the model.
const ROUNDS: u32 = 4;
/// Time of a commit where nothing was measured, in s.
const USUAL_COMMIT_S: f64 = 300e-6;
/// A commit is tried so many times as long to see what it does.
const LONGER: f64 = 1.3;
/// Spread of the logarithms of response times, and of the time of a commit.
const COMMIT_SIGMA: (f64, f64) = (0.1, 0.7);
/// Largest step of the logarithm of a commit's time in a round.
const MOST_STEP: f64 = 0.5;
/// Share of a correction that each round takes.
const DAMPING: f64 = 0.5;
/// Requests that a run is simulated for.
const REQUESTS: f64 = 3_000.0;
/// The same where a configuration is left out: each is simulated four times in each of as many fits as there are
/// configurations.
const FEWER_REQUESTS: f64 = 1_000.0;
/// So many times as many requests are simulated at most, where the model serves more than was measured.
const MOST_TIMES: f64 = 3.0;
/// Foreign CPU of a run, in cores, from which it is left out: beyond it a run measures something
/// else (26 % in throughput and a factor of four in response time were seen).
pub const MOST_FOREIGN_CORES: f64 = 0.15;
/// Stolen CPU of a run, in cores, from which it is left out: of runs of one configuration, those with 0.06 to
/// 0.12 of a core stolen were 9 to 11 % slower than those with none, those with 0.2 and more 26 to 40 %.
pub const MOST_STOLEN_CORES: f64 = 0.05;
/// Shares of wake-ups that stay on the core that woke them, as they are tried.
const STAYS: [f64; 4] = [0.25, 0.5, 0.75, 1.0];
/// Relative error of response times, below which there is nothing to explain.
const EXPLAINED: f64 = 0.03;
/// Of the squared errors of response times, what a share may leave at most to be believed.
const STAY_EXPLAINS: f64 = 0.7;
/// Spread of CPU time per request between runs, where none was repeated.
const UNKNOWN_DRIFT: f64 = 0.1;
/// Demand for a pool's tokens, as a share of them, below which no request waits for one.
const LIGHT: f64 = 0.9;
/// Longest time that an idle core may take to wake, in s: beyond it the model lacks something else.
const MOST_WAKE_S: f64 = 500e-6;
/// Relative error of the throughput, and of the response time, that a right structure may have
/// beside drift.
const FLOOR: (f64, f64) = (0.02, 0.06);

/// What one process used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessUse {
    /// CPU time of a request, in s.
    pub cpu_s: f64,
    /// Voluntary context switches of a request.
    pub switches: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredRun {
    /// Structure at its configuration.
    pub system: System,
    /// Levels of what was varied, by name.
    pub levels: Vec<(String, f64)>,
    /// X, 1/s.
    pub throughput_per_s: f64,
    /// Mean response time, in s.
    pub response_mean_s: f64,
    /// Its 50th, 90th and 99th percentile, in s.
    pub percentiles_s: Option<[f64; 3]>,
    /// By process of the system.
    pub processes: Vec<ProcessUse>,
    /// Mean number served together; 1 without batches.
    pub batch: f64,
    /// Mean time of the speed probe, in s.
    pub probe_s: Option<f64>,
    /// CPU that none of the processes used, in cores.
    pub foreign_cores: f64,
    /// CPU that the machine's own host gave to others while threads here were ready, in cores.
    pub stolen_cores: f64,
    /// Length of the run, in s.
    pub measured_s: f64,
    /// See [`crate::bottleneck::weight`].
    pub weight: f64,
}

/// Runs that make no twin; `run` counts from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CalibrationError {
    #[error("run {run}: {source}")]
    System { run: usize, source: SystemError },
    #[error(
        "run {run} has other processes than the first: a twin is of one system; calibrate each by \
         itself"
    )]
    Different { run: usize },
    #[error("run {run}: {what} is {value}; it must be a finite number above 0")]
    Number { run: usize, what: &'static str, value: f64 },
    #[error(
        "{usable} usable configurations of {configurations}: at least two are needed, one at light \
         load and one near saturation, in which processes outside of the study use next to no \
         processor time"
    )]
    TooFew { usable: usize, configurations: usize },
}

/// How slow the machine is in a run, relative to the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// By the speed probe.
    Probe,
    /// By the speed probe, times X^−0.2: what is done once for a batch of messages, and not once a switch,
    /// falls with load, and runs at light load tell it not from work.
    ProbeLoad,
    Flat,
    /// 1 + ½·(1 − U): slower where cores are idle. Empirical.
    Idle,
    /// X^−0.2. Empirical.
    Load,
}

/// Demands by one form of slowness.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fitted {
    pub(super) form: Form,
    /// Whether the runs show this form. Those that they only do not deny are part of the interval, not of its center.
    pub(super) shown: bool,
    /// Its part of the interval, beside 1 of those that are shown: how much less the runs speak for it.
    pub(super) share: f64,
    pub(super) demands: Vec<Demand>,
    /// Standard deviation of log(measured/fitted) of the CPU time of all processes together.
    pub(super) residual: f64,
    pub(super) wake_s: f64,
    pub(super) stay: f64,
    pub(super) commit_s: f64,
    pub(super) p99: f64,
}

impl Fitted {
    /// ln of the ratio of the likelihoods of what this and another form leave of the CPU time of a request, at as many
    /// throughputs as were run.
    fn evidence_over(&self, other: &Self, runs: &[&MeasuredRun]) -> f64 {
        let mut rates: Vec<f64> = runs.iter().map(|run| run.throughput_per_s.ln()).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup_by(|next, last| *next - *last < SAME_RATE);
        let left = |fitted: &Self| fitted.residual.hypot(LEAST_RESIDUAL).ln();
        exact_f64(rates.len()) * (left(other) - left(self))
    }
}

/// How well the calibrated structure gives back its own runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Misfit {
    /// Root mean square of log(measured/modelled) throughput over the configurations.
    pub throughput: f64,
    /// The same of the mean response time.
    pub response: f64,
    /// Largest of the throughput, and at which levels.
    pub worst: f64,
    /// Levels of the worst.
    pub at: Vec<(String, f64)>,
    /// What a right structure would show, from the machine's drift.
    pub expected: f64,
    /// What the model is off by, metric by metric: throughput, mean, p50, p90, p99.
    pub metrics: [Lack; 5],
    /// Whether the structure is contradicted by the runs it was calibrated on.
    pub contradicted: bool,
}

/// What the calibrated structure is off by at its own runs in one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Lack {
    /// log(measured/modelled) by configuration.
    pub errors: Vec<f64>,
    /// Degrees of freedom that they have.
    pub freedom: f64,
    /// Variance of them that the machine's drift and chance in runs of that length explain.
    pub explained: f64,
}

/// What is served at most, by the system with so many clients that it is full and the machine's slowness.
pub(super) type Served = Arc<Mutex<Vec<((System, Option<f64>), Interval)>>>;

/// A calibrated twin.
#[derive(Debug, Clone)]
pub struct Twin {
    pub(super) configurations: Vec<MeasuredRun>,
    pub(super) fitted: Vec<Fitted>,
    pub(super) reference: Reference,
    pub(super) tells_batches: bool,
    /// Mean length of a run, in s.
    pub(super) run_s: f64,
    /// Spread of CPU time per request between runs of one configuration, as the standard deviation
    /// of its logarithm, slowness taken off.
    pub drift: f64,
    /// Spread of the machine's speed by the probe, likewise.
    pub speed_spread: f64,
    /// Whether `drift` is measured: some configuration was run twice.
    pub drift_known: bool,
    /// Runs left out because of foreign CPU, from 0.
    pub left_out: Vec<usize>,
    /// How well it gives back its own runs.
    pub misfit: Misfit,
    /// Foreign CPU of a run, in cores, beyond which it was left out.
    pub most_foreign_cores: f64,
    pub(super) seed: u64,
    /// Found once, whatever rates are asked.
    pub(super) served: Served,
}

impl Twin {
    /// Demands of the processes, by the first form of slowness.
    pub fn demands(&self) -> &[Demand] {
        &self.fitted[0].demands
    }

    /// How slow the machine is where the speed probe takes `probe_s`, relative to the calibration runs;
    /// `None` where these had no probe.
    pub fn slowness(&self, probe_s: f64) -> Option<f64> {
        self.reference.probe_s.map(|reference| probe_s / reference)
    }

    /// The calibration's configurations, each as the mean of its runs.
    pub fn configurations(&self) -> &[MeasuredRun] {
        &self.configurations
    }

    /// What the form of the demands leaves of CPU time per request, as the standard deviation of its
    /// logarithm, by the first form of slowness.
    pub fn residual(&self) -> f64 {
        self.fitted[0].residual
    }

    /// Whether the speed probe is the measure of slowness.
    pub fn has_probe(&self) -> bool {
        self.reference.probe_s.is_some()
    }

    /// Time of a commit, in s, by the first form of slowness.
    pub fn commit_s(&self) -> f64 {
        self.fitted[0].commit_s
    }

    /// Share of wake-ups that stay on the core that woke them although another is idle.
    pub fn stay(&self) -> f64 {
        self.fitted[0].stay
    }

    /// Time that an idle core takes to wake, in s, by the first form of slowness.
    pub fn wake_s(&self) -> f64 {
        self.fitted[0].wake_s
    }
}

/// Fits a twin to measured runs.
///
/// Demands are fitted to what the operating system accounts for, then once more through the model, so
/// that simulated wake-ups cost what the measured ones did; the time that an idle core takes to wake
/// (or that a commit takes) from the response times of runs where no request waits for a token.
///
/// Runs in which foreign CPU took more cores than `most_foreign_cores` are left out.
///
/// # Errors
/// [`CalibrationError`] when runs make no sense, or too few are usable.
pub fn calibrate(
    runs: &[MeasuredRun],
    most_foreign_cores: f64,
    seed: u64,
) -> Result<Twin, CalibrationError> {
    check(runs)?;
    let quiet = |run: &MeasuredRun| {
        run.foreign_cores <= most_foreign_cores
            && run.stolen_cores <= most_stolen(most_foreign_cores)
    };
    let left_out: Vec<usize> = (0..runs.len()).filter(|i| !quiet(&runs[*i])).collect();
    let usable: Vec<&MeasuredRun> = runs.iter().filter(|run| quiet(run)).collect();
    let reference = Reference::of(&usable);
    let (drift, drift_known) = drift(&usable, &reference);
    let configurations = merged(&usable, &reference);
    if configurations.len() < 2 {
        let all = merged(&runs.iter().collect::<Vec<_>>(), &reference).len();
        let usable = configurations.len();
        return Err(CalibrationError::TooFew { usable, configurations: all });
    }
    let forms: &[Form] = match reference.probe_s {
        Some(_) => &[Form::Probe, Form::ProbeLoad],
        None => &[Form::Flat, Form::Idle, Form::Load],
    };
    let observed = observed(&usable, &reference, forms[0]);
    let tells_batches = demand::fit(runs[0].processes.len(), &observed).tells_batches;
    let first = fit_staying(forms[0], &usable, &configurations, &reference, seed);
    let others = forms[1..].iter().map(|form| {
        let how = (*form, first.stay, REQUESTS);
        fit_form(how, &usable, &configurations, &reference, seed)
    });
    // A form that its own runs contradict is no evidence about others.
    let most = CONTRADICTED * first.residual.max(LEAST_RESIDUAL);
    let others = others.filter(|fitted| fitted.form != Form::ProbeLoad || fitted.residual <= most);
    let shown = |fitted: Fitted| {
        let evidence = fitted.evidence_over(&first, &usable);
        let shown = 2.0 * evidence > EVIDENCE;
        Fitted { shown, share: evidence.min(0.0).exp(), ..fitted }
    };
    let mut fitted: Vec<Fitted> = std::iter::once(first.clone()).chain(others.map(shown)).collect();
    fitted.sort_by_key(|fitted| !fitted.shown);
    let shown = fitted.iter().take_while(|fitted| fitted.shown).count();
    let misfit = misfit(&fitted[..shown], &configurations, &reference, drift, seed);
    Ok(Twin {
        configurations,
        fitted,
        tells_batches,
        run_s: usable.iter().map(|run| run.measured_s).sum::<f64>() / exact_f64(usable.len()),
        drift,
        speed_spread: reference.speed.residual,
        most_foreign_cores,
        reference,
        drift_known,
        left_out,
        misfit,
        seed,
        served: Served::default(),
    })
}

impl Twin {
    /// The same twin of other runs, to see what it says of those that are not among them: its forms and the share of
    /// wake-ups that stay are kept. None where they are too few.
    pub(crate) fn of_others(&self, runs: &[MeasuredRun]) -> Option<Self> {
        check(runs).ok()?;
        let usable: Vec<&MeasuredRun> = runs.iter().collect();
        let reference = Reference::of(&usable);
        let configurations = merged(&usable, &reference);
        if configurations.len() < 2 || reference.probe_s.is_none() && self.has_probe() {
            return None;
        }
        let fit = |known: &Fitted| {
            let how = (known.form, known.stay, FEWER_REQUESTS);
            fit_form(how, &usable, &configurations, &reference, self.seed)
        };
        let fitted = self.fitted.iter().filter(|known| known.shown).map(fit).collect();
        let served = Served::default();
        Some(Self { configurations, fitted, reference, served, ..self.clone() })
    }
}

/// Stolen CPU that goes with a bound for foreign CPU: who takes any run takes stolen time too.
pub fn most_stolen(most_foreign_cores: f64) -> f64 {
    MOST_STOLEN_CORES * (most_foreign_cores / MOST_FOREIGN_CORES).max(1.0)
}

fn check(runs: &[MeasuredRun]) -> Result<(), CalibrationError> {
    let Some(first) = runs.first() else {
        return Err(CalibrationError::TooFew { usable: 0, configurations: 0 });
    };
    for (run, measured) in runs.iter().enumerate() {
        measured.system.check().map_err(|source| CalibrationError::System { run, source })?;
        let names = |system: &System| -> Vec<String> {
            system.processes.iter().map(|process| process.name.clone()).collect()
        };
        if names(&measured.system) != names(&first.system)
            || measured.processes.len() != first.system.processes.len()
        {
            return Err(CalibrationError::Different { run });
        }
        let positive = [
            ("throughput", measured.throughput_per_s),
            ("mean response time", measured.response_mean_s),
            ("length", measured.measured_s),
            ("probe", measured.probe_s.unwrap_or(1.0)),
            ("CPU time of a request", measured.processes.iter().map(|p| p.cpu_s).sum()),
        ];
        for (what, value) in positive {
            if !(value > 0.0 && value.is_finite()) {
                return Err(CalibrationError::Number { run, what, value });
            }
        }
    }
    Ok(())
}

/// What slowness is relative to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reference {
    pub(super) throughput: f64,
    pub(super) probe_s: Option<f64>,
    pub(super) speed: SpeedOfLoad,
}

/// The probe's time by the busy share of the cores. An idle core is slower to compute than a busy
/// one on many virtual machines, and a probe cannot tell that from drift: so what it shows is
/// expected at the load of the question, and not the mean of all loads.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct SpeedOfLoad {
    /// d log(time) / d busy share.
    slope: f64,
    center: f64,
    /// Spread of its logarithm around that line.
    residual: f64,
}

/// What a form leaves of CPU time per request, over what the first form leaves (and at least this), from which the
/// runs contradict it.
const CONTRADICTED: f64 = 2.0;
const LEAST_RESIDUAL: f64 = 0.02;

/// Twice the logarithm of a ratio of likelihoods from which a form is shown: 95 % of χ² with one degree of freedom.
const EVIDENCE: f64 = 3.84;
/// Throughputs that differ by less, as a difference of logarithms, tell a form no better than one.
const SAME_RATE: f64 = 0.1;

/// Power of the throughput by which work of a request falls beside what switches explain.
const BATCHED: f64 = -0.2;

/// Least range of busy shares that tells a slope.
const LEAST_RANGE: f64 = 0.2;
/// Steepest slope: idle cores took up to 1.5 times as long.
const STEEPEST: f64 = 0.7;

impl SpeedOfLoad {
    fn of(runs: &[&MeasuredRun], probes: &[f64]) -> Self {
        let n = exact_f64(probes.len());
        let shares: Vec<f64> = runs.iter().map(|run| busy(run)).collect();
        let center = shares.iter().sum::<f64>() / n;
        let mean = probes.iter().map(|probe| probe.ln()).sum::<f64>() / n;
        let low = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let high = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let squares: f64 = shares.iter().map(|share| (share - center).powi(2)).sum();
        let products: f64 =
            shares.iter().zip(probes).map(|(u, probe)| (u - center) * (probe.ln() - mean)).sum();
        let told = probes.len() > 2 && high - low > LEAST_RANGE;
        let slope = if told { (products / squares).clamp(-STEEPEST, STEEPEST) } else { 0.0 };
        let left = shares
            .iter()
            .zip(probes)
            .map(|(u, probe)| (probe.ln() - mean - slope * (u - center)).powi(2))
            .sum::<f64>();
        let freedom = n - if told { 2.0 } else { 1.0 };
        let residual = if freedom > 0.0 { (left / freedom).sqrt() } else { 0.0 };
        Self { slope, center, residual }
    }

    fn at(self, busy: f64) -> f64 {
        (self.slope * (busy.clamp(0.0, 1.0) - self.center)).exp()
    }
}

impl Reference {
    fn of(runs: &[&MeasuredRun]) -> Self {
        let probes: Option<Vec<f64>> = runs.iter().map(|run| run.probe_s).collect();
        let probes = probes.filter(|probes| !probes.is_empty());
        let speed = probes.as_deref().map(|probes| SpeedOfLoad::of(runs, probes));
        Self {
            throughput: geometric_mean(runs.iter().map(|run| run.throughput_per_s)),
            probe_s: probes.as_ref().map(|probes| geometric_mean(probes.iter().copied())),
            speed: speed.unwrap_or_default(),
        }
    }

    /// h of a run at this throughput and utilization. `known` is what the probe says of the machine in
    /// it, relative to the reference: forms without a probe have none.
    pub(super) fn slowness(
        &self,
        form: Form,
        throughput: f64,
        busy: f64,
        known: Option<f64>,
    ) -> f64 {
        let batched = || (throughput / self.throughput).powf(BATCHED);
        let probed = || known.unwrap_or_else(|| self.speed.at(busy));
        match form {
            Form::Probe => probed(),
            Form::ProbeLoad => probed() * batched(),
            Form::Flat => 1.0,
            Form::Idle => 1.0 + 0.5 * (1.0 - busy.clamp(0.0, 1.0)),
            Form::Load => batched(),
        }
    }

    fn of_run(&self, form: Form, run: &MeasuredRun) -> f64 {
        let known = run.probe_s.zip(self.probe_s).map(|(probe, reference)| probe / reference);
        self.slowness(form, run.throughput_per_s, busy(run), known)
    }
}

/// Busy share of all cores.
fn busy(run: &MeasuredRun) -> f64 {
    let cores: f64 = run.system.hosts.iter().map(|host| f64::from(host.cores)).sum();
    run.processes.iter().map(|p| p.cpu_s).sum::<f64>() * run.throughput_per_s / cores
}

fn observed(runs: &[&MeasuredRun], reference: &Reference, form: Form) -> Vec<Observed> {
    let of_run = |run: &&MeasuredRun| {
        let slowness = reference.of_run(form, run);
        let weight = run.weight * busy(run).clamp(0.01, 1.0).sqrt();
        let of_process = move |(process, used): (usize, &ProcessUse)| Observed {
            process,
            cpu_s: used.cpu_s,
            switches: used.switches,
            batch: 1.0,
            slowness,
            weight,
        };
        let batch = run.batch;
        let list: Vec<Observed> = run.processes.iter().enumerate().map(of_process).collect();
        list.into_iter().map(move |o| Observed { batch, ..o }).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of_run).collect()
}

/// Runs of one configuration as one: geometric means by weight, slowness taken off by the reference. Together they are
/// as disturbed as the quietest of them.
fn merged(runs: &[&MeasuredRun], reference: &Reference) -> Vec<MeasuredRun> {
    let mut groups: Vec<Vec<&MeasuredRun>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| group[0].system == run.system) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    let one = |group: &Vec<&MeasuredRun>| {
        let all: f64 = group.iter().map(|run| run.weight).sum();
        let arithmetic = |of: &dyn Fn(&MeasuredRun) -> f64| {
            group.iter().map(|run| run.weight * of(run)).sum::<f64>() / all
        };
        let mean = |of: &dyn Fn(&MeasuredRun) -> f64| arithmetic(&|run| of(run).ln()).exp();
        let has_percentiles = group.iter().all(|run| run.percentiles_s.is_some());
        let percentile =
            |at: usize| mean(&|run| run.percentiles_s.map_or(f64::NAN, |times| times[at]));
        let has_probe =
            reference.probe_s.is_some() && group.iter().all(|run| run.probe_s.is_some());
        MeasuredRun {
            throughput_per_s: mean(&|run| run.throughput_per_s),
            response_mean_s: mean(&|run| run.response_mean_s),
            percentiles_s: has_percentiles.then(|| [0, 1, 2].map(percentile)),
            processes: (0..group[0].processes.len())
                .map(|k| ProcessUse {
                    cpu_s: arithmetic(&|run| run.processes[k].cpu_s),
                    switches: arithmetic(&|run| run.processes[k].switches),
                })
                .collect(),
            batch: arithmetic(&|run| run.batch),
            probe_s: has_probe.then(|| mean(&|run| run.probe_s.unwrap_or(f64::NAN))),
            weight: group.iter().map(|run| run.weight).fold(0.0, f64::max),
            measured_s: group.iter().map(|run| run.measured_s).sum(),
            ..group[0].clone()
        }
    };
    groups.iter().map(one).collect()
}

/// Pooled standard deviation of log(CPU per request, slowness taken off) within configurations.
fn drift(runs: &[&MeasuredRun], reference: &Reference) -> (f64, bool) {
    let form = if reference.probe_s.is_some() { Form::Probe } else { Form::Flat };
    let log = |run: &MeasuredRun| {
        let all: f64 = run.processes.iter().map(|p| p.cpu_s).sum();
        (all / reference.of_run(form, run)).ln()
    };
    let most = runs.iter().map(|run| run.weight).fold(0.0, f64::max);
    let quiet = runs.iter().filter(|run| run.weight >= DISTURBED * most);
    let spread = pooled_spread(quiet.map(|run| (&run.system, log(run))));
    (spread.unwrap_or(UNKNOWN_DRIFT), spread.is_some())
}

pub(super) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value.ln();
        count += 1.0;
    }
    if count > 0.0 { (sum / count).exp() } else { 1.0 }
}

/// Long enough for so many requests at this throughput.
pub(super) fn length(throughput: f64, requests: f64) -> Length {
    let measured_s = requests / throughput;
    let most = usize::try_from(whole_u64(MOST_TIMES * requests)).unwrap_or(usize::MAX);
    Length { warm_up_s: 0.25 * measured_s, measured_s, most }
}

/// The system with the commit time that was fitted, where none is known.
pub(super) fn with_commit(system: &System, commit_s: f64) -> System {
    let mut system = system.clone();
    for commit in system.commits.iter_mut().filter(|commit| commit.time_s <= 0.0) {
        commit.time_s = commit_s;
    }
    system
}

fn model(fitted: &Fitted, run: &MeasuredRun, reference: &Reference, seed: u64) -> Simulated {
    model_for(fitted, run, reference, (REQUESTS, seed))
}

fn model_for(
    fitted: &Fitted,
    run: &MeasuredRun,
    reference: &Reference,
    (requests, seed): (f64, u64),
) -> Simulated {
    let slowness = reference.of_run(fitted.form, run);
    let system = with_commit(&run.system, fitted.commit_s);
    let length = length(run.throughput_per_s, requests);
    let machine = Machine { slowness, wake_s: fitted.wake_s, stay: fitted.stay };
    simulate(&system, &fitted.demands, machine, length, seed)
}

/// Fits a form with each share of wake-ups that stay, and takes the one whose response times are nearest to
/// those measured; a share is taken only where it explains a notable part of what is left without.
fn fit_staying(
    form: Form,
    runs: &[&MeasuredRun],
    configurations: &[MeasuredRun],
    reference: &Reference,
    seed: u64,
) -> Fitted {
    let fit = |stay: f64| {
        let how = (form, stay, REQUESTS);
        let fitted = fit_form(how, runs, configurations, reference, seed);
        let errors = configurations.iter().zip(0_u64..).map(|(run, at)| {
            let modelled = model(&fitted, run, reference, seed + 300 + at).response_mean_s;
            (run.response_mean_s / modelled).ln().powi(2)
        });
        let error = errors.sum::<f64>();
        (fitted, error)
    };
    let without = fit(0.0);
    if without.1 <= EXPLAINED * EXPLAINED * exact_f64(configurations.len()) {
        return without.0;
    }
    let best = STAYS.iter().map(|stay| fit(*stay)).min_by(|a, b| a.1.total_cmp(&b.1));
    best.filter(|best| best.1 < STAY_EXPLAINS * without.1).unwrap_or(without).0
}

/// `requests` are those of each simulated run.
fn fit_form(
    (form, stay, requests): (Form, f64, f64),
    runs: &[&MeasuredRun],
    configurations: &[MeasuredRun],
    reference: &Reference,
    seed: u64,
) -> Fitted {
    let processes = configurations[0].processes.len();
    let first = demand::fit(processes, &observed(runs, reference, form));
    let mut fitted = Fitted {
        form,
        shown: true,
        share: 1.0,
        residual: residual(&first.demands, runs, reference, form),
        demands: first.demands,
        wake_s: 20e-6,
        stay,
        commit_s: USUAL_COMMIT_S,
        p99: 1.0,
    };
    let fits_commit = configurations[0].system.commits.iter().any(|commit| commit.time_s <= 0.0);
    for round in 0..ROUNDS {
        let modelled: Vec<Simulated> = configurations
            .iter()
            .zip(0_u64..)
            .map(|(run, at)| {
                let seed = seed + 1_000 * at + u64::from(round);
                model_for(&fitted, run, reference, (requests, seed))
            })
            .collect();
        let last = round + 1 == ROUNDS;
        for process in 0..processes {
            correct(&mut fitted, process, configurations, &modelled, (reference, last));
        }
        let more = missing_time(configurations, &modelled).unwrap_or(0.0);
        fitted.wake_s = (fitted.wake_s + DAMPING * more).clamp(0.0, MOST_WAKE_S);
        if fits_commit {
            let longer = Fitted { commit_s: LONGER * fitted.commit_s, ..fitted.clone() };
            let of_run = |((run, modelled), at): ((&MeasuredRun, &Simulated), u64)| {
                let seed = seed + 1_000 * at + u64::from(round);
                let longer = model_for(&longer, run, reference, (requests, seed)).response_mean_s;
                let slope = (longer / modelled.response_mean_s).ln() / LONGER.ln();
                (slope, (run.response_mean_s / modelled.response_mean_s).ln())
            };
            let all = configurations.iter().zip(&modelled).zip(0_u64..);
            let slopes: Vec<(f64, f64)> =
                all.filter(|((run, _), _)| !is_light(run)).map(of_run).collect();
            fitted.commit_s *= commit_step(&slopes, fitted.commit_s).exp();
        }
    }
    let ratios: Vec<f64> = configurations
        .iter()
        .zip(0_u64..)
        .filter_map(|(run, at)| {
            let modelled = model_for(&fitted, run, reference, (requests, seed + 77 + at));
            Some(run.percentiles_s?[2] / modelled.response_quantile_s(0.99)?)
        })
        .collect();
    fitted.p99 = median(ratios).unwrap_or(1.0);
    fitted
}

/// Step of the logarithm of a commit's time: least squares of the logarithms of response times where it has
/// a share in them (`slopes`: d log R / d log time, and log(measured/modelled)), drawn to the usual time.
fn commit_step(slopes: &[(f64, f64)], commit_s: f64) -> f64 {
    let (precise, drawn) = (COMMIT_SIGMA.0.powi(-2), COMMIT_SIGMA.1.powi(-2));
    let pull = drawn * (USUAL_COMMIT_S / commit_s).ln();
    let products: f64 = slopes.iter().map(|(slope, error)| slope * error).sum();
    let squares: f64 = slopes.iter().map(|(slope, _)| slope * slope).sum();
    let step = (precise * products + pull) / (precise * squares + drawn);
    step.clamp(-MOST_STEP, MOST_STEP)
}

/// What the form of the demands leaves of the CPU time of a request, all processes together: errors
/// of single processes cancel.
fn residual(demands: &[Demand], runs: &[&MeasuredRun], reference: &Reference, form: Form) -> f64 {
    let log = |run: &&MeasuredRun| {
        let slowness = reference.of_run(form, run);
        let pairs = demands.iter().zip(&run.processes).filter(|(_, used)| used.cpu_s > 0.0);
        let fitted = pairs.map(|(demand, used)| demand.cpu_s(run.batch, used.switches, slowness));
        let measured: f64 = run.processes.iter().map(|used| used.cpu_s).sum();
        (measured / fitted.sum::<f64>()).ln()
    };
    let squares: f64 = runs.iter().map(|run| log(run).powi(2)).sum();
    (squares / exact_f64(runs.len().max(1))).sqrt()
}

/// Moves the price of a switch of one process (and at the end, what that cannot do, its work) so
/// that CPU time per request comes out right on average.
fn correct(
    fitted: &mut Fitted,
    process: usize,
    configurations: &[MeasuredRun],
    modelled: &[Simulated],
    (reference, last): (&Reference, bool),
) {
    let (mut error, mut slope, mut count) = (0.0, 0.0, 0.0);
    for (run, modelled) in configurations.iter().zip(modelled) {
        let measured = run.processes[process].cpu_s;
        if measured > 0.0 && modelled.completions > 0 {
            let slowness = reference.of_run(fitted.form, run);
            let weight = run.weight;
            error += weight * (1.0 - modelled.cpu_s[process] / measured);
            slope += weight * modelled.switches[process] * slowness / measured;
            count += weight;
        }
    }
    if count <= 0.0 {
        return;
    }
    let demand = &mut fitted.demands[process];
    // A price that a few switches would have to carry alone is not a price.
    let most = 0.5 * (demand.switch_s + 5e-6);
    let step = if slope > 0.0 { (DAMPING * error / slope).clamp(-most, most) } else { 0.0 };
    if last {
        let factor = (1.0 + error / count).clamp(0.5, 2.0);
        *demand = demand.scaled(factor);
    } else {
        demand.switch_s = (demand.switch_s + step).max(0.0);
    }
}

/// Response time that the model lacks where no request waits for a token, for each visit to a process.
fn missing_time(configurations: &[MeasuredRun], modelled: &[Simulated]) -> Option<f64> {
    let light = configurations.iter().zip(modelled).filter(|(run, _)| is_light(run));
    let (mut whole, mut all) = (0.0, 0.0);
    for (run, modelled) in light {
        whole += run.weight * (run.response_mean_s - modelled.response_mean_s);
        all += run.weight;
    }
    if all <= 0.0 {
        return None;
    }
    let whole = whole / all;
    Some(whole / f64::from(configurations[0].system.visits().max(1)))
}

fn is_light(run: &MeasuredRun) -> bool {
    let tokens =
        run.system.pools.iter().map(|pool| f64::from(pool.tokens)).fold(f64::INFINITY, f64::min);
    // By Little's law: clients that think are not there.
    let present = run.throughput_per_s * run.response_mean_s;
    present <= LIGHT * tokens && busy(run) < 0.6
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite() && *value > 0.0);
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[last / 2].midpoint(values[last.div_ceil(2)]))
}

fn misfit(
    fitted: &[Fitted],
    configurations: &[MeasuredRun],
    reference: &Reference,
    drift: f64,
    seed: u64,
) -> Misfit {
    let forms = exact_f64(fitted.len());
    let mut errors: [Vec<f64>; 5] = Default::default();
    for (run, at) in configurations.iter().zip(0_u64..) {
        let mut modelled = [0.0; 5];
        for one in fitted {
            let shown = logs(&model(one, run, reference, seed + 500 + at), one.p99);
            modelled.iter_mut().zip(shown).for_each(|(mean, log)| *mean += log / forms);
        }
        let measured = measured_logs(run);
        let pairs = errors.iter_mut().zip(measured).zip(modelled);
        let counts = run.weight.sqrt();
        pairs.for_each(|((list, measured), modelled)| {
            list.extend(measured.map(|measured| counts * (measured - modelled)));
        });
    }
    let rms =
        |list: &[f64]| (list.iter().map(|e| e * e).sum::<f64>() / exact_f64(list.len())).sqrt();
    let (throughput, response) = (rms(&errors[0]), rms(&errors[1]));
    let worst = (0..errors[0].len())
        .max_by(|a, b| errors[0][*a].abs().total_cmp(&errors[0][*b].abs()))
        .unwrap_or(0);
    let expected = FLOOR.0.hypot(drift);
    let slow = FLOOR.1.hypot(2.0 * drift);
    let off = errors[0][worst];
    let explained = explained(&fitted[0], configurations, reference, (drift, seed));
    let lack = |at: usize, errors: Vec<f64>| {
        let freedom = (exact_f64(errors.len()) - FITTED[at]).max(1.0);
        Lack { errors, freedom, explained: explained[at] }
    };
    let mut at = 0..;
    Misfit {
        throughput,
        response,
        worst: off,
        at: configurations[worst].levels.clone(),
        expected,
        metrics: errors.map(|list| lack(at.next().unwrap_or(0), list)),
        contradicted: off.abs() > 3.0 * expected || response > 3.0 * slow,
    }
}

/// What was fitted to each metric of the calibration runs: a time to the mean response, which shifts its
/// quantiles too, a factor to the p99.
const FITTED: [f64; 5] = [0.0, 1.0, 1.0, 1.0, 1.0];
/// Simulated runs by which drift and chance are estimated.
const TRIES: u64 = 8;
/// Fewest and most requests of a run that is simulated as it was measured.
const AS_MEASURED: (f64, f64) = (300.0, 3_000.0);

/// Variances of the logarithms of X, mean, p50, p90 and p99 that the machine's drift and chance make in runs such
/// as those measured.
fn explained(
    fitted: &Fitted,
    configurations: &[MeasuredRun],
    reference: &Reference,
    (drift, seed): (f64, u64),
) -> [f64; 5] {
    let mut chance = Chance::new(seed ^ 0xD41F7);
    let mut sum = [0.0; 5];
    for (run, at) in configurations.iter().zip(0_u64..) {
        let requests = (run.throughput_per_s * run.measured_s).clamp(AS_MEASURED.0, AS_MEASURED.1);
        let tried: Vec<[f64; 5]> = (0..TRIES)
            .map(|each| {
                let work = (drift * chance.normal()).exp();
                let drifted = Fitted {
                    demands: fitted.demands.iter().map(|demand| demand.scaled(work)).collect(),
                    ..fitted.clone()
                };
                let seed = seed + 700 + TRIES * at + each;
                logs(&model_for(&drifted, run, reference, (requests, seed)), fitted.p99)
            })
            .collect();
        let tries = exact_f64(tried.len());
        for (at, sum) in sum.iter_mut().enumerate() {
            let mean = tried.iter().map(|logs| logs[at]).sum::<f64>() / tries;
            let squares = tried.iter().map(|logs| (logs[at] - mean).powi(2)).sum::<f64>();
            *sum += squares / (tries - 1.0) / exact_f64(configurations.len());
        }
    }
    sum
}

/// Logarithms of X, mean, p50, p90 and p99 of a simulated run, the p99 corrected.
pub(super) fn logs(simulated: &Simulated, p99: f64) -> [f64; 5] {
    let quantile = |p: f64| simulated.response_quantile_s(p).unwrap_or(0.0).max(1e-12).ln();
    let p90 = quantile(0.9);
    [
        simulated.throughput_per_s.max(1e-12).ln(),
        simulated.response_mean_s.max(1e-12).ln(),
        quantile(0.5),
        p90,
        // A correction from short runs must not put it below what nine of ten stay below.
        (quantile(0.99) + p99.ln()).max(p90),
    ]
}

fn measured_logs(run: &MeasuredRun) -> [Option<f64>; 5] {
    let percentile = |at: usize| {
        let value = run.percentiles_s?[at];
        (value > 0.0).then(|| value.ln())
    };
    let (x, r) = (run.throughput_per_s.ln(), run.response_mean_s.ln());
    [Some(x), Some(r), percentile(0), percentile(1), percentile(2)]
}
