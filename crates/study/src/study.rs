//! The whole study: run after run, each stored when it ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use kendall_host::clock::{monotonic_ns, unix_ns};
use kendall_host::disk;
use kendall_host::instance::ProcessError;
use kendall_host::keeper::Keeper;
use kendall_host::machines::{Machines, Way};
use kendall_protocols::load_result::LoadResult;
use kendall_protocols::topology::Graph;
use kendall_stats::estimate::Caveat;
use kendall_store::{
    FIRST_VERIFICATION, FactorLevel, ONE_CLIENT, Purpose, Results, Run, RunId, RunRecord,
    SearchLine, Status, StoreError, Study, keys_of,
};
use kendall_units::Seconds;
use serde_json::Value as Json;

use crate::baseline::{self, BASELINE, Baseline};
use crate::capacity::{self, Climb};
use crate::error::StudyError;
use crate::file::StudyFile;
use crate::host_check::Needs;
use crate::measured_window::cut;
use crate::observe::{Live, Observer, RunError};
use crate::observed::{Alone, Observed};
use crate::plan::{Ended, Plan, Planned};
use crate::seed::mixed;
use crate::settings::Settings;
use crate::speed::{self, SpeedOfRun};
use crate::validity::Judgement;
use crate::{environment, programs, record, set_aside};

/// Runs that may fail, or be rejected for one cause, one after the other before the study gives up.
const FAILURES_IN_A_ROW: u32 = 3;

#[derive(Debug, Clone)]
pub struct Options {
    pub folder: PathBuf,
    pub program: PathBuf,
    /// Tries every failed or rejected run once more.
    pub retry_failed: bool,
    /// Ends the session before this repetition, such as after each block of a comparison in turns;
    /// the same study is resumed in the next.
    pub until_repetition: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Runs that may be used, earlier sessions included.
    pub done: usize,
    /// Runs whose last attempt was rejected.
    pub rejected: usize,
    /// Runs whose last attempt failed.
    pub failed: usize,
    /// Runs that had ended in earlier sessions.
    pub earlier: usize,
    /// Configurations that reached their most repetitions before the precision asked for.
    pub short_of_precision: usize,
    /// The user stopped it; the same command resumes it.
    pub interrupted: bool,
}

/// What happens during a study.
#[derive(Debug)]
pub enum Event<'a> {
    /// So many runs there are, or at most, where that is not known exactly; some have ended already, and of those some
    /// have failed.
    Opened { runs: usize, exact: bool, ended: usize, failed: usize },
    /// A run begins.
    Started { planned: Planned, run: &'a Run },
    /// The capacity that rates are shares of is known, and the clients of the last closed loop that measured it, unless
    /// an earlier session did.
    Capacity { per_s: f64, clients: Option<u64> },
    /// The database is measured by itself, for a few seconds.
    Baseline,
    /// A run is under way.
    Live(Live),
    /// A run has ended and is stored, with what was measured of it.
    Ended { run: &'a Run, throughput_per_s: Option<f64>, response_time_mean_s: Option<f64> },
}

/// Runs a study, or resumes it.
///
/// Call it on a thread that lives until the end of the program: the kernel ends the study's
/// processes when the thread that started them ends.
///
/// # Errors
/// [`StudyError`]; a run that fails is not an error, but a stored row.
pub fn run(
    study: &StudyFile,
    options: &Options,
    interrupted: &AtomicBool,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Summary, StudyError> {
    programs::check_programs(study, &options.program)?;
    let plan = Plan::of(study)?;
    let _lock = lock(&options.folder)?;
    check_room(&options.folder, disk::LEAST_BYTES)?;
    let known;
    let mut session = Session::open(study, options, plan)?;
    if !session.connect(interrupted)? {
        return Ok(session.summary(session.ended.len(), true));
    }
    session.baseline(interrupted, on_event)?;
    if study.wants_capacity() {
        let Some(capacity) = session.capacity(interrupted, on_event)? else {
            return Ok(session.summary(session.ended.len(), true));
        };
        known = study.with_capacity(capacity)?;
        session.study = &known;
    }
    session.keep_searches()?;
    let ended = session.ended.len();
    let exact = session.plan.total();
    let runs = exact.unwrap_or_else(|| session.plan.most());
    // Another attempt is at a run that was counted.
    let begun = session.ended.iter().filter(|run| run.attempt == 0).count();
    let failed = session.summary(ended, false).failed;
    on_event(Event::Opened { runs, exact: exact.is_some(), ended: begun, failed });
    let mut failures = InARow::default();
    let begun_ns = monotonic_ns();
    let mut longest_ns = 0;
    while let Some(planned) = session.due() {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(session.summary(ended, true));
        }
        let started_ns = monotonic_ns();
        let would_end = Seconds::from_nanos(started_ns.saturating_sub(begun_ns) + longest_ns);
        if study.within.is_some_and(|within| would_end > within) {
            break;
        }
        match session.run(planned, interrupted, on_event)? {
            None => return Ok(session.summary(ended, true)),
            Some(end) => failures.take(end)?,
        }
        longest_ns = longest_ns.max(monotonic_ns().saturating_sub(started_ns));
    }
    Ok(session.summary(ended, false))
}

/// How a run ended, for what is counted in a row.
struct End {
    status: Status,
    reasons: Vec<String>,
    /// What the load was on.
    target: String,
}

/// What went wrong in the last runs.
#[derive(Debug, Default)]
struct InARow {
    count: u32,
    cause: Option<(Status, String)>,
}

impl InARow {
    /// Counts a run; an error where it was one too many.
    fn take(&mut self, end: End) -> Result<(), StudyError> {
        let cause = match end.status {
            Status::Done => None,
            // Whatever it fails for: nothing was measured.
            Status::Failed => Some((end.status, String::new())),
            // The figures in a reason are different each time.
            Status::Rejected => {
                let words = end
                    .reasons
                    .first()
                    .map(|reason| reason.replace(|c: char| c.is_ascii_digit(), ""));
                Some((end.status, words.unwrap_or_default()))
            }
        };
        self.count = if cause.is_some() && cause == self.cause { self.count + 1 } else { 1 };
        self.cause = cause;
        let (count, reason) = (self.count, end.reasons.join("; "));
        match end.status {
            Status::Failed if count >= FAILURES_IN_A_ROW => {
                Err(StudyError::Failing { count, reason })
            }
            Status::Rejected if count >= FAILURES_IN_A_ROW => {
                Err(StudyError::Rejecting { count, target: end.target, reason })
            }
            _ => Ok(()),
        }
    }
}

/// A configuration that is run beside those of the design.
#[derive(Debug, Clone)]
pub struct Beside {
    pub settings: Settings,
    /// Its levels, in the order of the study's factors.
    pub factors: Vec<FactorLevel>,
}

/// Runs configurations that the design does not have, once each, and stores them beside its runs: to
/// verify predictions. Their keys, in the same order; fewer where the user stopped it.
///
/// # Errors
/// As [`run`]; a run that fails is not an error, but a stored row.
pub fn run_beside(
    study: &StudyFile,
    options: &Options,
    wanted: &[Beside],
    interrupted: &AtomicBool,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<RunId>, StudyError> {
    programs::check_programs(study, &options.program)?;
    let plan = Plan::of(study)?;
    let _lock = lock(&options.folder)?;
    check_room(&options.folder, disk::LEAST_BYTES)?;
    let mut session = Session::open(study, options, plan)?;
    session.probe();
    let before = session.results.verifications()?;
    let first = before.iter().map(|run| run.configuration + 1).max();
    let mut ids = Vec::new();
    for (number, beside) in (first.unwrap_or(FIRST_VERIFICATION)..).zip(wanted) {
        let configuration = usize::try_from(number).unwrap_or(usize::MAX);
        let planned = Planned { configuration, repetition: 0, attempt: 0 };
        let mut run = session.blank(planned, &beside.settings);
        run.factors.clone_from(&beside.factors);
        run.purpose = Purpose::Verification;
        match session.measure(run, planned, &beside.settings, interrupted, on_event)? {
            None => break,
            Some(record) => ids.push(record.run.id),
        }
    }
    Ok(ids)
}

/// Gives a search the caveats of its runs: each kind once, with the number of runs that have it.
fn doubt(line: &mut SearchLine, runs: &[Run]) {
    let Some(found) = &mut line.found else { return };
    let of_line = runs
        .iter()
        .filter(|run| run.is_usable())
        .filter(|run| line.levels.iter().all(|level| run.factors.contains(level)));
    let doubts = Caveat::in_runs(of_line.map(|run| run.caveats.as_slice()), None);
    found.maximum_throughput_per_s.caveats.extend(doubts);
}

struct Session<'a> {
    study: &'a StudyFile,
    plan: Plan,
    results: Results,
    ended: Vec<Ended>,
    machines: Machines,
    folder: PathBuf,
    environment: Json,
    /// The repetition before which the session ends.
    until: Option<u32>,
    /// What the probe showed in the runs of this session.
    speeds: Vec<SpeedOfRun>,
    /// Hosts of generators that were lost: the others take their part.
    lost: Vec<String>,
}

impl<'a> Session<'a> {
    fn open(study: &'a StudyFile, options: &Options, plan: Plan) -> Result<Self, StudyError> {
        let results = open_results(study, &options.folder, &plan)?;
        let runs = results.runs()?;
        let mut ended = Vec::new();
        for run in &runs {
            // Only a design that the data steer needs the numbers of earlier sessions.
            let measured = plan.looks_at_results() && run.is_usable();
            let throughput =
                if measured { Some(results.measured(run.id)?.throughput_per_s) } else { None };
            ended.push(ended_row(run, throughput));
        }
        let more = if options.retry_failed { attempts_so_far(&ended) } else { 0 };
        let keeper = Keeper::start(&options.program).map_err(|source| StudyError::System {
            what: format!("{} cannot be started", options.program.display()),
            source,
        })?;
        let around =
            Path::new(&study.name).parent().filter(|p| p.exists()).unwrap_or(Path::new("."));
        let environment = environment::describe(study.base.kind, study.seed, around);
        let plan = plan.allowing(more);
        Ok(Self {
            study,
            plan,
            results,
            ended,
            machines: Machines::new(keeper, study.base.placement.hosts.clone()),
            folder: options.folder.clone(),
            environment,
            until: options.until_repetition,
            speeds: Vec::new(),
            lost: Vec::new(),
        })
    }

    /// The run that comes next in this session, if one does.
    fn due(&self) -> Option<Planned> {
        let planned = self.plan.next(&self.ended)?;
        self.until.is_none_or(|end| planned.repetition < end).then_some(planned)
    }

    /// Measures loopback by itself; stored with every run of this session.
    fn probe(&mut self) {
        if let Some(probed) = kendall_host::probe::loopback() {
            self.environment["loopback"] = probed;
        }
    }

    /// What is done before the first run of the session, if there is one: probes loopback, and connects
    /// all hosts, so that one that cannot be used is reported. False when the user stopped it.
    fn connect(&mut self, interrupted: &AtomicBool) -> Result<bool, StudyError> {
        if self.due().is_none() {
            return Ok(true);
        }
        self.probe();
        if self.study.base.placement.hosts.list.is_empty() {
            return Ok(true);
        }
        let needs = Needs::of(&self.plan.settings(self.study)?);
        let is_interrupted = || interrupted.load(Ordering::Relaxed);
        let connected = self
            .machines
            .connect(&needs.hosts(), &is_interrupted)
            .and_then(|()| needs.check(&self.machines, self.study));
        match connected.map_err(StudyError::from) {
            Ok(()) => Ok(true),
            Err(StudyError::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What the database does by itself, before the first run of the session, if there is one: what an earlier
    /// session measured since the machine was started, else it is measured now.
    fn baseline(
        &mut self,
        interrupted: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), StudyError> {
        if self.study.base.kind.database.is_none() || self.due().is_none() {
            return Ok(());
        }
        if let Some(known) = baseline::known(&self.results.environments()?, &self.environment) {
            self.environment[BASELINE] = known;
            return Ok(());
        }
        on_event(Event::Baseline);
        let measured = Baseline {
            machines: &mut self.machines,
            settings: &self.study.base,
            folder: &fresh(&self.folder.join("logs"), BASELINE),
            interrupted: &|| interrupted.load(Ordering::Relaxed),
        }
        .measure();
        if let Some(measured) = measured {
            self.environment[BASELINE] = measured;
        }
        Ok(())
    }

    fn summary(&self, earlier: usize, interrupted: bool) -> Summary {
        let mut last: std::collections::BTreeMap<(usize, u32), &Ended> =
            std::collections::BTreeMap::new();
        for run in &self.ended {
            last.insert((run.configuration, run.repetition), run);
        }
        let count = |status| last.values().filter(|run| run.status == status).count();
        Summary {
            done: count(Status::Done),
            rejected: count(Status::Rejected),
            failed: count(Status::Failed),
            earlier,
            short_of_precision: self.plan.short_of_precision(&self.ended),
            interrupted,
        }
    }

    /// The capacity that rates are shares of: that of earlier runs, else it is measured. `None`
    /// when the user stopped it.
    fn capacity(
        &mut self,
        interrupted: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<f64>, StudyError> {
        let runs = self.results.runs()?;
        if let Some(per_s) = runs.iter().find_map(|run| capacity::of_run(&run.settings)) {
            on_event(Event::Capacity { per_s, clients: None });
            return Ok(Some(per_s));
        }
        let mut climb = Climb::new(self.study.base.workload.generators);
        let mut last = None;
        while let Some(clients) = climb.next() {
            let Some(throughput) = self.closed_loop(clients, interrupted)? else {
                return Ok(None);
            };
            climb.record(throughput);
            last = Some(clients);
        }
        let per_s = climb.capacity_per_s();
        on_event(Event::Capacity { per_s, clients: last });
        Ok(Some(per_s))
    }

    /// Throughput of a closed loop, in requests per second; `None` when the user stopped it.
    fn closed_loop(
        &mut self,
        clients: u64,
        interrupted: &AtomicBool,
    ) -> Result<Option<f64>, StudyError> {
        let failed = |reason: String| StudyError::Capacity { clients, reason };
        let settings = self.study.closed_loop(clients)?;
        let folder = fresh(&self.folder.join("logs"), &format!("capacity-{clients}"));
        let observed = Observer {
            machines: &mut self.machines,
            settings: &settings,
            folder: &folder,
            seed: mixed(self.study.seed, clients),
            interrupted: &|| interrupted.load(Ordering::Relaxed),
            live: &mut |_| {},
        }
        .run();
        let observed = match observed {
            Err(RunError::Process(ProcessError::Interrupted)) => return Ok(None),
            Err(error) => return Err(failed(kendall_units::chain(&error))),
            Ok(observed) => observed,
        };
        let results: Vec<&LoadResult> = observed.generators.iter().map(|one| &one.result).collect();
        let window = cut(&results, &settings.measure).map_err(failed)?.window;
        let mut generators = Vec::new();
        for (number, one) in (0..).zip(&observed.generators) {
            let generator = record::generator(number, one, Some(&window))
                .map_err(|error| failed(error.to_string()))?;
            generators.push(generator);
        }
        let throughput = record::totals(&generators).throughput_per_s;
        if throughput > 0.0 {
            return Ok(Some(throughput));
        }
        Err(failed("no request was answered".to_owned()))
    }

    /// One run, and again with the remaining hosts where it lost one of its generators. `None` when the
    /// user stopped it, else how it ended.
    fn run(
        &mut self,
        mut planned: Planned,
        interrupted: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<End>, StudyError> {
        let levels = self.plan.configurations[planned.configuration].clone();
        let settings = self.study.settings(&levels)?;
        let record = loop {
            let mut settings = settings.clone();
            let mut run = self.row(planned, &settings);
            for host in &self.lost {
                if let Some(rest) = settings.placement.without(host) {
                    settings.placement = rest;
                    run.caveats.push(generators_moved(host));
                }
            }
            let lost = self.lost.len();
            let measured = self.measure(run, planned, &settings, interrupted, on_event)?;
            let Some(record) = measured else { return Ok(None) };
            self.report(&record, on_event);
            self.keep_searches()?;
            if self.lost.len() == lost {
                break record;
            }
            planned.attempt += 1;
        };
        let is_entry = |tier: &&kendall_store::Tier| tier.tier == settings.topology.entry;
        let target = record.tiers.iter().find(is_entry).map(|tier| tier.address.clone());
        let target = target.unwrap_or_else(|| settings.topology.entry.clone());
        Ok(Some(End { status: record.run.status, reasons: record.run.reasons, target }))
    }

    /// Runs a configuration, and stores what was seen. `None` when the user stopped it.
    fn measure(
        &mut self,
        mut run: Run,
        planned: Planned,
        settings: &Settings,
        interrupted: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<RunRecord>, StudyError> {
        on_event(Event::Started { planned, run: &run });
        let name = format!(
            "c{:03}-r{:02}-a{}",
            planned.configuration, planned.repetition, planned.attempt
        );
        let folder = fresh(&self.folder.join("logs"), &name);
        let is_interrupted = || interrupted.load(Ordering::Relaxed);
        let observed = Observer {
            machines: &mut self.machines,
            settings,
            folder: &folder,
            seed: run_seed(self.study.seed, planned),
            interrupted: &is_interrupted,
            live: &mut |live| on_event(Event::Live(live)),
        }
        .run();
        run.ended_unix_ns = unix_ns();
        run.ended_ns = monotonic_ns();
        let mut alone = None;
        let (mut record, mut outputs) = match observed {
            Err(RunError::Process(ProcessError::Interrupted)) => return Ok(None),
            Err(RunError::OtherProtocol(error)) => return Err(error.into()),
            Err(error) => {
                let lost = error.lost_host();
                self.lost.extend(
                    lost.filter(|host| settings.placement.without(host).is_some())
                        .map(str::to_owned),
                );
                (failed(run, settings.graph(), kendall_units::chain(&error)), Vec::new())
            }
            Ok(mut observed) => {
                alone = observed.alone.take();
                make_record(run, settings, observed)
            }
        };
        if let Some(speed) = SpeedOfRun::of(&record) {
            record.run.caveats.extend(speed.doubt(&self.speeds));
            self.speeds.push(speed);
        }
        record.run.caveats.extend(crate::remarks::of_run(&folder));
        record.run.id = self.results.store_run(&record).map_err(|error| self.room_or(error))?;
        if let Some(alone) = alone {
            let (record, more) = record_alone(&record.run, *alone);
            self.results.store_run(&record).map_err(|error| self.room_or(error))?;
            outputs.extend(more);
        }
        // All of it is in the database now; what the generators printed would double it.
        for output in outputs {
            std::fs::remove_file(output).unwrap_or_default();
        }
        Ok(Some(record))
    }

    /// The error of storing, or that the disk is full.
    fn room_or(&self, error: StoreError) -> StudyError {
        match check_room(&self.folder, disk::FULL_BYTES) {
            Err(full) => full,
            Ok(()) => error.into(),
        }
    }

    /// Stores how far an adaptive design has come.
    fn keep_searches(&mut self) -> Result<(), StoreError> {
        let mut lines = self.plan.searches(&self.ended);
        if lines.iter().any(|line| line.found.is_some()) {
            let runs = self.results.latest_runs()?;
            lines.iter_mut().for_each(|line| doubt(line, &runs));
        }
        if lines.is_empty() { Ok(()) } else { self.results.store_searches(&lines) }
    }

    /// Tells how a stored run ended.
    fn report(&mut self, record: &RunRecord, on_event: &mut dyn FnMut(Event<'_>)) {
        let totals = record::totals(&record.generators);
        let measured = totals.completed > 0;
        let throughput_per_s = measured.then_some(totals.throughput_per_s);
        let timed = kendall_units::exact_f64(totals.timed);
        let response_time_mean_s = (totals.timed > 0).then(|| totals.response_time_sum_s / timed);
        self.ended.push(ended_row(&record.run, throughput_per_s));
        on_event(Event::Ended { run: &record.run, throughput_per_s, response_time_mean_s });
    }

    fn row(&self, planned: Planned, settings: &Settings) -> Run {
        let levels = &self.plan.configurations[planned.configuration];
        let factors = self.study.factors.iter().zip(levels);
        let factors = factors.filter_map(|(f, level)| level.map(|level| f.level(level))).collect();
        Run { factors, ..self.blank(planned, settings) }
    }

    fn blank(&self, planned: Planned, settings: &Settings) -> Run {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Run {
            id: RunId::default(),
            configuration: small(planned.configuration),
            repetition: planned.repetition,
            position: small(self.ended.len()),
            attempt: planned.attempt,
            status: Status::Done,
            reasons: Vec::new(),
            caveats: Vec::new(),
            factors: Vec::new(),
            settings: settings.effective.clone(),
            environment: self.environment.clone(),
            started_unix_ns: unix_ns(),
            ended_unix_ns: 0,
            started_ns: monotonic_ns(),
            ended_ns: 0,
            measured: None,
            purpose: Purpose::Design,
            speed_unit_ns: None,
            one_client_of: None,
        }
    }
}

fn generators_moved(host: &str) -> Caveat {
    Caveat::Remarked {
        generator: None,
        kind: "host-lost".to_owned(),
        text: format!("host {host} was lost: its generators ran on the other hosts of generators"),
    }
}

/// What one client alone did before the load of a run, as a run of its own.
fn record_alone(of: &Run, alone: Alone) -> (RunRecord, Vec<PathBuf>) {
    let Alone { settings, observed } = alone;
    let results = observed.generators.iter().map(|one| &one.result);
    let ends = results.map(|result| (result.started_ns, result.ended_ns)).next();
    let (started_ns, ended_ns) = ends.unwrap_or((of.started_ns, of.ended_ns));
    let mut factors = of.factors.clone();
    factors.retain(|level| !keys_of(&level.factor).any(|key| OF_ONE_CLIENT.contains(&key)));
    let run = Run {
        id: RunId::default(),
        configuration: of.configuration + ONE_CLIENT,
        status: Status::Done,
        reasons: Vec::new(),
        caveats: Vec::new(),
        factors,
        settings: settings.effective.clone(),
        started_ns,
        ended_ns,
        measured: None,
        speed_unit_ns: None,
        one_client_of: Some(of.id),
        ..of.clone()
    };
    make_record(run, &settings, observed)
}

/// Keys that one client alone has values of its own for.
const OF_ONE_CLIENT: &[&str] = &[
    "workload.clients",
    "workload.think_time",
    "workload.rate",
    "workload.arrivals",
    "workload.loop",
    "workload.spin",
    "workload.generators",
    "workload.threads",
    "workload.reach",
];

fn failed(mut run: Run, graph: Graph, reason: String) -> RunRecord {
    run.status = Status::Failed;
    run.reasons = vec![reason];
    RunRecord {
        run,
        graph,
        generators: vec![],
        tiers: vec![],
        processes: vec![],
        hosts: vec![],
        speeds: vec![],
    }
}

/// Cuts, judges, and makes rows; with them the files of which every field is in the rows.
fn make_record(mut run: Run, settings: &Settings, observed: Observed) -> (RunRecord, Vec<PathBuf>) {
    let results: Vec<&LoadResult> = observed.generators.iter().map(|one| &one.result).collect();
    let mut judgement = Judgement::default();
    judgement.generators(&results);
    match cut(&results, &settings.measure) {
        Ok(cutting) => {
            judgement.caveats.extend(cutting.caveats);
            run.measured = Some(cutting.window);
        }
        Err(reason) => judgement.rejections.push(reason),
    }
    let window = run.measured.as_ref();
    let (mut generators, mut outputs) = (Vec::new(), Vec::new());
    for (number, one) in (0..).zip(&observed.generators) {
        match record::generator(number, one, window) {
            Ok(generator) => {
                generators.push(generator);
                outputs.push(one.output.clone());
            }
            Err(error) => judgement.rejections.push(format!("generator {number}: {error}")),
        }
    }
    let tiers = observed
        .members
        .iter()
        .map(|member| record::tier(member, window, &mut judgement.caveats))
        .collect();
    if let Some(window) = window {
        judgement.numbers(settings, &generators);
        if !settings.workload.is_job() {
            judgement.percentile(&generators, window);
        }
        judgement.machine(&observed.hosts, &observed.processes, window);
        if observed.clocks.is_empty() {
            judgement.name_others(observed.programs);
        }
    }
    judgement.clocks(&run);
    judgement.hosts(&observed.clocks);
    if !observed.clocks.is_empty() {
        let hosts = observed.clocks.iter().map(|clock| (clock.host.clone(), clock.json()));
        run.environment["hosts"] = hosts.collect::<serde_json::Map<_, _>>().into();
        run.environment["ways"] = observed.ways.iter().map(Way::json).collect::<Vec<_>>().into();
    }
    judgement.caveats.extend(observed.serving);
    let killed = observed.killed.into_iter();
    judgement.caveats.extend(killed.map(|name| Caveat::Killed { name }));
    if !observed.put.is_empty() {
        judgement.caveats.push(Caveat::CoresByProcessors { which: observed.put.join(", ") });
    }
    if !judgement.rejections.is_empty() {
        run.status = Status::Rejected;
    }
    run.reasons = judgement.rejections;
    run.caveats.extend(judgement.caveats);
    let (processes, hosts, graph) = (observed.processes, observed.hosts, settings.graph());
    let speeds = observed.speeds;
    run.speed_unit_ns = run.measured.as_ref().and_then(|window| speed::mean_ns(&speeds, window));
    (RunRecord { run, graph, generators, tiers, processes, hosts, speeds }, outputs)
}

fn ended_row(run: &Run, throughput_per_s: Option<f64>) -> Ended {
    Ended {
        configuration: usize::try_from(run.configuration).unwrap_or(usize::MAX),
        repetition: run.repetition,
        attempt: run.attempt,
        status: run.status,
        throughput_per_s,
    }
}

/// Attempts that the run tried most often has had: one more than that is one more for each.
fn attempts_so_far(ended: &[Ended]) -> u32 {
    ended.iter().map(|run| run.attempt + 1).max().unwrap_or(0)
}

/// Chance of one run: other runs, other numbers; the same run again, the same ones.
fn run_seed(seed: u64, planned: Planned) -> u64 {
    let configuration = u64::try_from(planned.configuration).unwrap_or(u64::MAX);
    let within = mixed(u64::from(planned.repetition) + 1, u64::from(planned.attempt) + 1);
    mixed(mixed(seed, configuration + 1), within)
}

/// Ending of the folder of a run that was killed.
const LEFT: &str = ".left";

/// The folder of a run, with nothing in it. What a killed study left there may still be in use for a
/// moment, by a database that has not yet noticed: it is put aside first, where its processes find it
/// and the new ones do not.
fn fresh(logs: &Path, name: &str) -> PathBuf {
    let folder = logs.join(name);
    if folder.exists() {
        let aside = logs.join(format!("{name}-{}{LEFT}", std::process::id()));
        std::fs::rename(&folder, aside).unwrap_or_default();
    }
    for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(LEFT) {
            // What is being written to stays until the next run.
            std::fs::remove_dir_all(entry.path()).unwrap_or_default();
        }
    }
    folder
}

fn check_room(folder: &Path, least_bytes: u64) -> Result<(), StudyError> {
    match disk::free_bytes(folder) {
        Some(free_bytes) if free_bytes < least_bytes => {
            Err(StudyError::NoRoom { folder: folder.display().to_string(), free_bytes })
        }
        _ => Ok(()),
    }
}

fn lock(folder: &Path) -> Result<File, StudyError> {
    let system = |source| StudyError::System {
        what: format!("the folder {} cannot be used", folder.display()),
        source,
    };
    std::fs::create_dir_all(folder).map_err(system)?;
    let path = folder.join("lock");
    // That of results is empty; of another part of Kendall it says whose it is.
    if path.metadata().is_ok_and(|lock| lock.len() > 0) {
        return Err(system(std::io::Error::other(
            "it holds the data of a build cache or worker; choose another with --out DIR",
        )));
    }
    let file = File::create(path).map_err(system)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(StudyError::InUse { folder: folder.display().to_string() })
        }
        Err(std::fs::TryLockError::Error(source)) => Err(system(source)),
    }
}

fn open_results(study: &StudyFile, folder: &Path, plan: &Plan) -> Result<Results, StudyError> {
    let fingerprint = study.fingerprint();
    if Results::exists(folder) {
        let results = Results::open(folder)?;
        if results.study()?.fingerprint == fingerprint {
            return Ok(results);
        }
        // Where nothing was measured yet the file may still be mended.
        if results.study()?.name != study.study || results.runs()?.iter().any(Run::is_usable) {
            let which = differing(study, &results.study()?);
            return Err(StudyError::OtherStudy { folder: folder.display().to_string(), which });
        }
        drop(results);
        set_aside::set_aside(folder).map_err(|source| StudyError::System {
            what: format!("the results in {} cannot be set aside", folder.display()),
            source,
        })?;
    }
    std::fs::write(folder.join("study.toml"), &study.text).map_err(|source| {
        StudyError::System {
            what: format!("the study file cannot be copied to {}", folder.display()),
            source,
        }
    })?;
    let file_name = Path::new(&study.name).file_name();
    let row = Study {
        name: study.study.clone(),
        title: study.title.clone(),
        file_name: file_name.unwrap_or_default().to_string_lossy().into_owned(),
        file: study.text.clone(),
        fingerprint,
        seed: study.seed,
        design: study.design.kind.name().to_owned(),
        confidence: study.base.measure.confidence,
        planned_runs: plan.total().and_then(|total| u64::try_from(total).ok()),
        created_unix_ns: unix_ns(),
    };
    Ok(Results::create(folder, &row)?)
}

/// Keys that a message names.
const MOST_KEYS: usize = 5;

/// Which study a folder holds that is not this one: another, or this one with other values of some keys.
fn differing(study: &StudyFile, stored: &Study) -> String {
    if stored.name != study.study {
        return format!("another study (`{}`)", stored.name);
    }
    let (mut was, mut is) = (Vec::new(), Vec::new());
    if let Ok(before) = StudyFile::stored(stored) {
        flat("", &before.file.effective(), &mut was);
        flat("", &study.effective(), &mut is);
    }
    let mut keys: Vec<&str> =
        was.iter().filter(|one| !is.contains(one)).map(|(key, _)| key.as_str()).collect();
    keys.extend(is.iter().filter(|one| !was.contains(one)).map(|(key, _)| key.as_str()));
    keys.sort_unstable();
    keys.dedup();
    let more = keys.len().saturating_sub(MOST_KEYS);
    keys.truncate(MOST_KEYS);
    match (keys.is_empty(), more) {
        (true, _) => "this study before its file was changed".to_owned(),
        (false, 0) => format!("this study with other values of {}", keys.join(", ")),
        (false, more) => {
            format!("this study with other values of {} and {more} more keys", keys.join(", "))
        }
    }
}

/// Every value by its dotted key.
fn flat(path: &str, value: &Json, all: &mut Vec<(String, String)>) {
    match value {
        Json::Object(fields) => {
            fields.iter().for_each(|(key, value)| flat(&kendall_keys::join(path, key), value, all));
        }
        other => all.push((path.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each run was rejected for the same cause, with other figures, and all 40 were made.
    #[test]
    fn three_runs_that_are_rejected_for_one_cause_stop_the_study() {
        let end = |status, reason: &str| End {
            status,
            reasons: vec![reason.to_owned()],
            target: "127.0.0.1:80".to_owned(),
        };
        let rejected = |reason| end(Status::Rejected, reason);
        let mut row = InARow::default();
        assert!(row.take(rejected("sent 50.1 % late")).is_ok());
        assert!(row.take(rejected("sent 49.0 % late")).is_ok());
        let said = row.take(rejected("sent 47.5 % late")).unwrap_err().to_string();
        assert!(said.contains("3 runs in a row") && said.contains("127.0.0.1:80"), "{said}");
        let mut row = InARow::default();
        for reason in ["a", "b", "a", "b"] {
            assert!(row.take(rejected(reason)).is_ok(), "{reason}");
        }
        for _ in 0..2 {
            assert!(row.take(end(Status::Failed, "x")).is_ok());
            assert!(row.take(end(Status::Failed, "y")).is_ok());
            assert!(row.take(end(Status::Done, "")).is_ok());
        }
        for reason in ["x", "y"] {
            assert!(row.take(end(Status::Failed, reason)).is_ok());
        }
        assert!(row.take(end(Status::Failed, "z")).is_err(), "whatever each failed for");
    }

    /// A study that is killed leaves the data of its database, which the same run finds again.
    #[test]
    fn a_run_begins_in_an_empty_folder_whatever_a_killed_one_left() {
        let logs = tempfile::tempdir().unwrap();
        let left = logs.path().join("c000-r00-a0/database-0/data");
        std::fs::create_dir_all(&left).unwrap();
        std::fs::write(left.join("postmaster.pid"), "1").unwrap();
        let other = logs.path().join("c001-r00-a0");
        std::fs::create_dir_all(&other).unwrap();
        let folder = fresh(logs.path(), "c000-r00-a0");
        assert_eq!(folder, logs.path().join("c000-r00-a0"));
        assert!(!folder.exists() && other.exists());
        let names = std::fs::read_dir(logs.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["c001-r00-a0"]);
    }
}
