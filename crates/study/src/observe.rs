//! One run: starts the system, fills it, loads it, watches it, stops it.

use std::collections::BTreeSet;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kendall_host::HostError;
use kendall_host::clock::{Until, monotonic_ns, nanos};
use kendall_host::connection::{Connection, Ticket};
use kendall_host::disk::Full;
use kendall_host::hosts::{At, LOCALHOST};
use kendall_host::instance::ProcessError;
use kendall_host::launch::{Launch, StopSignal};
use kendall_host::lease::{HURRIED_STOP, LEASE};
use kendall_host::machines::{Machines, Way};
use kendall_host::programs::Programs;
use kendall_host::protocol::{Looked, What};
use kendall_host::runner::Runner;
use kendall_host::sample::{Accounting, Sampled};
use kendall_host::waits::{self, Address, Serving};
use kendall_protocols::load_result::{JOB_LOOP, LoadResult};
use kendall_protocols::snapshot::stage;
use kendall_protocols::topology::{Part, Role, TierId};
use kendall_protocols::waiting::Waiting;
use kendall_stats::estimate::{Caveat, OtherProgram};
use kendall_stats::histogram::Histogram;
use kendall_store::{HostSample, Process};
use kendall_units::ratio;

use crate::entry::{self, OtherProtocol};
use crate::observed::{Alone, Observed, ObservedGenerator, ObservedMember, lined_up};
use crate::place::{Member, Running, Starter, end_within};
use crate::seed::{mixed, secret};
use crate::settings::{Settings, UNCOUNTED_SHARE};
use crate::speed::Probe;
use crate::template::Values;
use crate::topology::CLIENTS;
use crate::validity::SILENCE_S;
use crate::workload::Workload;

/// Pause between two checks of what runs.
const LOOK: Duration = Duration::from_millis(5);

/// Longest time between two snapshots; shorter in short runs.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time between two looks at what threads wait for, and times the CPU time of such a look that pass before the next:
/// on a host with many threads and connections, looks use 2 % of a core at most.
const WAITS_INTERVAL_NS: u64 = 100_000_000;
const COSTS_APART: u64 = 50;

/// Time between two reports of how a run does.
const LIVE_INTERVAL_NS: u64 = 1_000_000_000;

/// How long from the start of a load tiers are looked at for whom they call: what they keep connections to is seen by then.
const SERVING_NS: u64 = 3_000_000_000;

/// How long filling may take.
const PREFILL_DEADLINE: Duration = Duration::from_secs(120);

/// How much longer than its duration a load may take: connecting, and the last answers.
const LOAD_GRACE: Duration = Duration::from_secs(60);

/// Mixed into the seeds of one client alone; generators mix in their numbers.
const ONE_CLIENT_SEEDS: u64 = 1 << 40;

/// Folders of one client alone, with dots, which no tier's name has.
const UNCOUNTED: &str = "one.client.uncounted";
const ONE_CLIENT_FOLDER: &str = "one.client";

/// What generators have to stop where no host was lost.
const GENERATOR_STOP: Duration = Duration::from_secs(2);

/// How far ahead of its start generators on hosts get the moment: connecting takes that long at most where
/// nothing is wrong.
const START_LEAD_NS: u64 = 1_000_000_000;

/// How long a host is asked for its free disk space when a run has failed.
const ROOM_LOOK: Duration = Duration::from_secs(1);

/// How long the last samples of the hosts may take.
const LAST_LOOK: Duration = LEASE;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{name} gave no result: {what}{tail}")]
    NoResult { name: String, what: String, tail: String },
    #[error(transparent)]
    OtherProtocol(#[from] OtherProtocol),
    #[error("{full}{then}")]
    NoRoom { full: Full, then: String },
}

impl RunError {
    /// The host that is gone, where that is the error.
    pub(crate) fn lost_host(&self) -> Option<&str> {
        match self {
            Self::Process(ProcessError::Host(
                HostError::Lost { host, .. } | HostError::Unusable { host, .. },
            )) => Some(host),
            _ => None,
        }
    }
}

impl From<HostError> for RunError {
    fn from(error: HostError) -> Self {
        Self::Process(error.into())
    }
}

impl From<Full> for RunError {
    fn from(full: Full) -> Self {
        Self::NoRoom { full, then: String::new() }
    }
}

/// How the run in progress does; reported about once a second.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Live {
    /// Seconds of load so far.
    pub elapsed_s: f64,
    /// Requests per second just now, by the entry tier; where it has no snapshot, by
    /// the load generators of this host.
    pub throughput_per_s: Option<f64>,
    /// Mean response time just now, in seconds, from the same source.
    pub response_time_mean_s: Option<f64>,
    /// Of the same responses, 99 % are faster; of several generators, the slowest one's.
    pub response_time_p99_s: Option<f64>,
    /// Every host, by its name in the study file.
    pub hosts: Vec<LiveHost>,
}

impl Live {
    /// What generators say of their last second, each in the last line of its log.
    fn add_progress(&mut self, generators: &[Runner]) {
        let (mut completed, mut time_s) = (0.0, 0.0);
        for generator in generators {
            let log = generator.folder().join("log");
            let Some(second) = last_line(&log).and_then(|line| serde_json::from_str(&line).ok())
            else {
                continue;
            };
            let second: serde_json::Value = second;
            let of = |key: &str| second[key].as_f64();
            let Some(throughput) = of("throughput_per_s") else { continue };
            *self.throughput_per_s.get_or_insert(0.0) += throughput;
            if let Some(mean) = of("response_time_mean_s") {
                completed += throughput;
                time_s += throughput * mean;
            }
            let tails = self.response_time_p99_s.into_iter().chain(of("response_time_p99_s"));
            self.response_time_p99_s = tails.reduce(f64::max);
        }
        self.response_time_mean_s = (completed > 0.0).then(|| time_s / completed);
    }
}

/// The last whole line of a file that grows.
fn last_line(path: &Path) -> Option<String> {
    const BYTES: u64 = 4096;
    let text = crate::remarks::end_of(path, BYTES)?;
    let (whole, _) = text.rsplit_once('\n')?;
    whole.lines().last().map(str::to_owned)
}

/// How busy a host is just now.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LiveHost {
    pub name: String,
    /// `None` while it is silent.
    pub busy_cores: Option<f64>,
    pub cores: u32,
    /// For how many seconds nothing was heard of it, where that is longer than it takes on a network that works.
    pub silent_s: Option<f64>,
}

pub(crate) struct Observer<'a> {
    pub(crate) machines: &'a mut Machines,
    pub(crate) settings: &'a Settings,
    pub(crate) folder: &'a Path,
    pub(crate) seed: u64,
    pub(crate) interrupted: &'a dyn Fn() -> bool,
    pub(crate) live: &'a mut dyn FnMut(Live),
}

impl Observer<'_> {
    /// The whole run. Whatever happens, nothing that it started is left.
    pub(crate) fn run(mut self) -> Result<Observed, RunError> {
        let secret = secret()?;
        let wanted = self.settings.placement.used();
        self.machines.connect(&wanted, self.interrupted)?;
        self.machines.begin_clocks()?;
        let running = Starter {
            machines: self.machines,
            settings: self.settings,
            folder: self.folder,
            seed: self.seed,
            secret: &secret,
            interrupted: self.interrupted,
        }
        .start()?;
        let ways = self.ways(&running);
        let processes = running.members.iter().filter_map(|member| member.process.as_ref());
        let put = processes.filter_map(Runner::put).collect();
        let outcome = self
            .speaks(&running)
            .and_then(|()| self.prefill(&running))
            .and_then(|()| self.loads(&running));
        let killed = match self.hurried(&outcome) {
            None => running.stop(),
            Some(within) => {
                running.stop_within(within);
                Vec::new()
            }
        };
        self.machines.clear(self.folder);
        outcome.map(|observed| Observed { killed, put, ways, ..observed })
    }

    /// Measures the way from each host to each other that something there talks to, once a pair.
    fn ways(&mut self, running: &Running) -> Vec<Way> {
        let settings = self.settings;
        let placement = &settings.placement;
        let mut known = BTreeSet::new();
        let mut ways = Vec::new();
        for (from, to) in settings.topology.edges() {
            // Straight there: not through a link that emulates a network.
            let addresses = running.reach(&to, &to, At::Here);
            let askers = settings.topology.started(&from, settings.workload.generators);
            for (at, (number, address)) in placement
                .of(&from, askers)
                .into_iter()
                .flat_map(|at| (0..).zip(addresses).map(move |address| (at, address)))
            {
                let there = placement.at(&to, number);
                if at == there || !known.insert((at, there)) {
                    continue;
                }
                let ends = (placement.name(at), placement.name(there));
                match self.machines.round_trips(at, address) {
                    Some(times) => {
                        let mut way = Way::new(ends, &to, address, times);
                        way.probe = self.machines.probe((at, there), self.interrupted);
                        ways.push(way);
                    }
                    None => tracing::debug!(?ends, address, "no round trip was measured"),
                }
            }
        }
        ways
    }

    /// Whether a service of the user's speaks the protocol of the load; Kendall's own do.
    fn speaks(&self, running: &Running) -> Result<(), RunError> {
        let settings = self.settings;
        let entry = &settings.topology.entry;
        match running.reach(entry, entry, At::Here).first() {
            Some(address) if is_of_the_user(settings) => {
                Ok(entry::check(&settings.workload, entry, address)?)
            }
            _ => Ok(()),
        }
    }

    fn prefill(&mut self, running: &Running) -> Result<(), RunError> {
        for tier in &self.settings.topology.filled {
            // Straight to the servers, beside them: no link slows it down, and every one is filled.
            let addresses = running.reach(tier, tier, At::Here).to_vec();
            for (number, address) in (0..).zip(addresses) {
                let Some(arguments) = self.settings.workload.prefill(&address) else { continue };
                let at = self.settings.placement.at(tier, number);
                let name = format!("prefill {tier} {number}");
                let filler = self.kendall(at, &name, arguments)?;
                let interrupted = self.interrupted;
                let deadline = PREFILL_DEADLINE;
                let mut status = None;
                while status.is_none() {
                    running.check_alive()?;
                    if interrupted() {
                        return Err(ProcessError::Interrupted.into());
                    }
                    self.machines.check()?;
                    status = filler.ended();
                    std::thread::sleep(LOOK);
                }
                if status.is_some_and(|end| !end.success) {
                    filler.check_alive()?;
                }
                filler.finish(deadline);
            }
        }
        Ok(())
    }

    /// `kendall load`, on a host.
    fn kendall(&self, at: At, name: &str, arguments: Vec<String>) -> Result<Runner, RunError> {
        let program = self.machines.program(at)?;
        let mut command = vec![program, "load".to_owned()];
        command.extend(arguments);
        let folder = self.folder_of(name);
        let launch = Launch { name: name.to_owned(), command, folder, ..Launch::default() };
        Ok(self.machines.spawn(at, &launch)?)
    }

    fn folder_of(&self, name: &str) -> PathBuf {
        // With a dot, which no tier's name has.
        self.folder.join(name.replace(' ', "."))
    }

    /// One load generator: `kendall load`, or the user's own program.
    fn generator(
        &mut self,
        (number, at): (u32, At),
        targets: &[String],
        start: Option<u64>,
    ) -> Result<Runner, RunError> {
        let workload = &self.settings.workload;
        let name = format!("generator {number}");
        let seed = mixed(self.seed, u64::from(number) + 1);
        let duration = self.settings.measure.duration;
        let spawn = |source| ProcessError::Spawn { name: name.clone(), source };
        let Some(program) = &workload.driver.program else {
            let text = format!("{}ns", duration.as_nanos());
            let mut arguments = workload.arguments(number, targets, &text, seed);
            if workload.driver.in_folder {
                let folder = self.machines.folder(at, &self.folder_of(&name)).map_err(spawn)?;
                arguments.extend(["--folder".to_owned(), folder]);
            }
            // A job begins with its first piece of work, whenever that is.
            if let Some(start) = start.filter(|_| !workload.is_job()) {
                let there = self.machines.moment_there(at, start);
                arguments.extend(["--start-at".to_owned(), there.to_string()]);
            }
            return self.kendall(at, &name, arguments);
        };
        let folder = std::path::absolute(self.folder_of(&name)).map_err(spawn)?;
        let mut values = Values::of_a_load(&self.settings.effective);
        values.set("kendall", self.machines.program(at)?);
        values.set("folder", self.machines.folder(at, &folder).map_err(spawn)?);
        values.set("generator", number.to_string());
        values.set("clients", workload.clients_of(number).to_string());
        values.set("seconds", duration.get().to_string());
        values.set("rate_per_s", workload.rate_of_one().to_string());
        values.set("seed", seed.to_string());
        values.set("target", targets.first().cloned().unwrap_or_default());
        values.set_list("targets", targets.to_vec());
        let refuse = |placeholder: String| ProcessError::Placeholder {
            name: name.clone(),
            placeholder,
            known: values.names(),
        };
        let launch = Launch {
            command: values.fill_all(&program.command).map_err(refuse)?,
            environment: values.fill_pairs(&program.environment).map_err(refuse)?,
            name: name.clone(),
            folder,
            ..Launch::default()
        };
        Ok(self.machines.spawn(at, &launch)?)
    }

    /// The load, and before it one client alone where that is asked for.
    fn loads(&mut self, running: &Running) -> Result<Observed, RunError> {
        let Some(settings) = self.settings.alone() else { return self.load(running) };
        let mut brief = settings.clone();
        brief.measure.duration = settings.measure.duration * UNCOUNTED_SHARE;
        for uncounted in self.alone(&brief, (UNCOUNTED, 1), running)?.generators {
            std::fs::remove_file(uncounted.output).unwrap_or_default();
        }
        let observed = self.alone(&settings, (ONE_CLIENT_FOLDER, 2), running)?;
        let alone = Some(Box::new(Alone { settings, observed }));
        Ok(Observed { alone, ..self.load(running)? })
    }

    /// A load of one client, whose files lie in a folder of their own.
    fn alone(
        &mut self,
        settings: &Settings,
        (folder, seed): (&str, u64),
        running: &Running,
    ) -> Result<Observed, RunError> {
        let folder = self.folder.join(folder);
        Observer {
            machines: self.machines,
            settings,
            folder: &folder,
            // Not what the load itself sends: caches would know it.
            seed: mixed(self.seed, ONE_CLIENT_SEEDS + seed),
            interrupted: self.interrupted,
            live: &mut |_| {},
        }
        .load(running)
    }

    fn load(&mut self, running: &Running) -> Result<Observed, RunError> {
        let workload = &self.settings.workload;
        let placement = &self.settings.placement;
        let duration = self.settings.measure.duration;
        let entry = self.settings.topology.tier(&self.settings.topology.entry);
        let entry = entry.map(|tier| tier.name.clone());
        let mut watch = Watch::new(running, entry, duration.as_duration());
        watch.folder = Some(self.folder.to_owned());
        watch.agents = self.machines.all_agents().map(WatchedAgent::of).collect();
        let own = is_of_the_user(self.settings);
        if own {
            watch.find_serving();
        }
        // Before any request: what the tiers count from here on is this load's.
        watch.look_at_all()?;
        // The probe runs on the cores of this machine only.
        let probed = self.settings.measure.speed_probe && placement.used().is_empty();
        let probe = probed.then(|| Probe::start(LOCALHOST));
        let start = self.start_moment();
        let mut generators = Vec::new();
        for number in 0..workload.generators {
            let at = placement.at(CLIENTS, number);
            let all = running.reach(CLIENTS, &self.settings.topology.entry, at);
            let targets = workload.targets(number, all).to_vec();
            generators.push(self.generator((number, at), &targets, start)?);
        }
        watch.add_generators(&generators);
        let outcome = self.watch(running, &mut generators, (&mut watch, own));
        let outcome = outcome.and_then(|()| watch.last_look());
        let speeds = probe.map(Probe::end).unwrap_or_default();
        let outcome = outcome.and_then(|()| results(&mut generators, workload));
        let outcome = outcome.map_err(|error| watch.explained(error));
        let within = self.hurried(&outcome).unwrap_or(GENERATOR_STOP);
        let stopped = generators.into_iter().map(|one| (one, StopSignal::Interrupt)).collect();
        end_within(stopped, within);
        let generators = outcome?;
        let clocks = self.machines.end_clocks()?;
        let Watch { members, mut processes, hosts, others, serving, .. } = watch;
        for (_, process) in &mut processes {
            process.threads.sort_by(|a, b| (&a.name, a.at_ns).cmp(&(&b.name, b.at_ns)));
        }
        let mut observed = Observed {
            generators,
            members,
            processes: processes.into_iter().map(|(_, process)| process).collect(),
            hosts,
            programs: others,
            serving: serving.into_iter().map(|(found, tier)| serves(&found, tier)).collect(),
            speeds,
            killed: Vec::new(),
            put: Vec::new(),
            clocks,
            ways: Vec::new(),
            alone: None,
        };
        lined_up(&mut observed);
        Ok(observed)
    }

    /// Time that all processes have to stop where a host was lost: the run has no result, and the loss is to be
    /// reported soon.
    fn hurried<T>(&self, outcome: &Result<T, RunError>) -> Option<Duration> {
        (outcome.is_err() && self.machines.check().is_err()).then_some(HURRIED_STOP)
    }

    /// When generators start together; set where one of them is on another host.
    fn start_moment(&self) -> Option<u64> {
        let placement = &self.settings.placement;
        let hosts = placement.of(CLIENTS, self.settings.workload.generators);
        hosts.iter().any(|at| *at != At::Here).then(|| monotonic_ns() + START_LEAD_NS)
    }

    /// Until all generators have ended.
    fn watch(
        &mut self,
        running: &Running,
        generators: &mut [Runner],
        (watch, own): (&mut Watch, bool),
    ) -> Result<(), RunError> {
        let started = monotonic_ns();
        let limit = self.settings.measure.duration.as_duration() + LOAD_GRACE;
        let (mut next, mut next_live) = (started, started);
        while generators.iter().any(|generator| generator.ended().is_none()) {
            running.check_alive()?;
            self.machines.check()?;
            if (self.interrupted)() {
                return Err(ProcessError::Interrupted.into());
            }
            check_loads(generators)?;
            watch.take_in()?;
            let now = monotonic_ns();
            if u128::from(now - started) > limit.as_nanos() {
                return Err(ProcessError::NotReady {
                    name: "the load".to_owned(),
                    seconds: limit.as_secs(),
                    check: "its end".to_owned(),
                    tail: generators.first().map(Runner::tail).unwrap_or_default(),
                }
                .into());
            }
            if now >= next {
                if own && now - started < SERVING_NS {
                    watch.find_serving();
                }
                watch.look();
                watch.room_here()?;
                next = now.max(next) + watch.interval_ns;
            }
            watch.ask_all();
            if now >= next_live {
                let mut live = watch.live(started);
                if live.throughput_per_s.is_none() {
                    live.add_progress(generators);
                }
                (self.live)(live);
                next_live = now + LIVE_INTERVAL_NS;
            }
            std::thread::sleep(LOOK);
        }
        Ok(running.check_alive()?)
    }
}

/// Whether the study is of a service of the user's own.
fn is_of_the_user(settings: &Settings) -> bool {
    ["processes", "attached"].contains(&settings.kind.name)
}

fn serves(found: &Serving, tier: Part) -> Caveat {
    Caveat::Serves { who: found.to_string(), tier: tier.name, seen: found.process.is_some() }
}

/// The error of a generator that has failed and left nothing: the run is of no use, however long the others go on.
fn check_loads(generators: &mut [Runner]) -> Result<(), RunError> {
    for generator in generators {
        let Some(end) = generator.ended().filter(|end| !end.success) else { continue };
        generator.fetch()?;
        let output = std::fs::metadata(generator.folder().join("output"));
        if output.map_or(0, |output| output.len()) == 0 {
            return Err(no_result(generator, format!("it ended with {}", end.status)));
        }
    }
    Ok(())
}

fn no_result(generator: &Runner, what: String) -> RunError {
    RunError::NoResult { name: generator.name().to_owned(), what, tail: generator.tail() }
}

fn results(
    generators: &mut [Runner],
    workload: &Workload,
) -> Result<Vec<ObservedGenerator>, RunError> {
    let mut results = Vec::new();
    for generator in generators {
        let ended = generator.ended().unwrap_or_default();
        let end = &ended.status;
        generator.fetch()?;
        let no_result = |what: String| no_result(generator, what);
        let output = generator.folder().join("output");
        let text = std::fs::read(&output).map_err(|error| no_result(error.to_string()))?;
        if text.is_empty() {
            return Err(no_result(format!("it ended with {end}")));
        }
        if workload.driver.program.is_some() && !ended.success {
            return Err(no_result(format!("it ended with {end}")));
        }
        let mut result: LoadResult =
            serde_json::from_slice(&text).map_err(|error| no_result(error.to_string()))?;
        let is_job = result.r#loop == JOB_LOOP;
        if is_job != workload.is_job() {
            let asked = if workload.is_job() { "is a job" } else { "is none" };
            let what = format!("its result has the loop `{}`, and the load {asked}", result.r#loop);
            return Err(no_result(what));
        }
        if is_job && result.ended_ns == 0 {
            (result.started_ns, result.ended_ns) = ended.life_ns;
        }
        let (host, command) = (generator.host(), generator.command().to_owned());
        results.push(ObservedGenerator { host, command, result, output });
    }
    Ok(results)
}

struct Watch {
    members: Vec<ObservedMember>,
    processes: Vec<(Accounting, Process)>,
    hosts: Vec<HostSample>,
    /// All programs of this machine, before the load.
    programs: Programs,
    /// Those of them that used most until its end.
    others: Vec<OtherProgram>,
    /// Programs that serve a tier here without being one, and the tier.
    serving: Vec<(Serving, Part)>,
    /// The agents of this machine and of others.
    agents: Vec<WatchedAgent>,
    interval_ns: u64,
    /// The tier that the clients talk to.
    entry: Option<TierId>,
    /// Where logs and results are kept here, if there are any.
    folder: Option<PathBuf>,
}

/// An agent that is asked for what can only be read there.
struct WatchedAgent {
    connection: Arc<Connection>,
    asked: Option<Asked>,
    /// Everything is to be asked for once the last question is answered.
    due: bool,
    /// From when on it may be asked again what threads wait for.
    next_ns: u64,
    /// What each process there waited for since everything was last asked for.
    moments: Vec<Vec<Waiting>>,
}

/// A question that is not answered yet.
#[derive(Clone, Copy)]
struct Asked {
    ticket: Ticket,
    at_ns: u64,
    /// Only what threads wait for.
    waits: bool,
}

impl WatchedAgent {
    fn of(connection: &Arc<Connection>) -> Self {
        Self {
            connection: Arc::clone(connection),
            asked: None,
            due: false,
            next_ns: 0,
            moments: Vec::new(),
        }
    }

    /// What the process at this place waited for since everything was last asked for, with this moment.
    fn waited(&mut self, place: usize, now: Option<Waiting>) -> Option<Waiting> {
        let moments = self.moments.get_mut(place).map(std::mem::take).unwrap_or_default();
        Waiting::over_time(moments.into_iter().chain(now))
    }
}

impl Watch {
    fn new(running: &Running, entry: Option<TierId>, duration: Duration) -> Self {
        let interval = (duration / 10).clamp(Duration::from_millis(100), SNAPSHOT_INTERVAL);
        let host_of = |member: &Member| {
            member.process.as_ref().map_or_else(|| LOCALHOST.to_owned(), Runner::host)
        };
        let member = |member: &Member| ObservedMember {
            part: member.part.clone(),
            kind: member.kind.clone(),
            number: member.number,
            host: host_of(member),
            address: member.address.clone(),
            pid: member.process.as_ref().map_or(0, Runner::pid),
            command: member.process.as_ref().map(|p| p.command().to_owned()).unwrap_or_default(),
            metrics: member.metrics.clone(),
            snapshots: Vec::new(),
            unreadable: None,
        };
        let of_tiers = running.members.iter().map(|member| {
            let pid = member.process.as_ref().map_or(0, Runner::pid);
            let process = process(member.part.clone(), member.number, pid, host_of(member));
            (member.accounting.clone(), process)
        });
        let pid = std::process::id();
        let itself = process(Part::study(), 0, pid, LOCALHOST.to_owned());
        let itself = (Accounting::Alone(pid), itself);
        Self {
            members: running.members.iter().map(member).collect(),
            processes: of_tiers.chain(std::iter::once(itself)).collect(),
            hosts: Vec::new(),
            programs: Programs::now(),
            others: Vec::new(),
            serving: Vec::new(),
            agents: Vec::new(),
            interval_ns: nanos(interval),
            entry,
            folder: None,
        }
    }

    /// Samples the generators as well from now on.
    fn add_generators(&mut self, generators: &[Runner]) {
        self.processes.extend((0..).zip(generators).map(|(number, generator)| {
            let pid = generator.pid();
            (Accounting::Generator(pid), process(Part::generator(), number, pid, generator.host()))
        }));
    }

    /// Looks for programs that serve tiers of this machine and are none: from now on they are sampled as if they were, since
    /// what they compute is the system's.
    fn find_serving(&mut self) {
        let here = |(accounting, process): &(Accounting, Process)| match accounting {
            Accounting::Process(_) | Accounting::ControlGroup(_)
                if process.part.role == Role::Tier && process.host == LOCALHOST =>
            {
                Some((process.part.clone(), accounting.clone()))
            }
            _ => None,
        };
        let tiers: Vec<_> = self.processes[..self.members.len()].iter().filter_map(here).collect();
        for (tier, accounting) in tiers {
            let of_members =
                self.members.iter().filter_map(|one| one.address.to_socket_addrs().ok());
            let of_members = of_members.flatten().map(Address::Tcp);
            let of_others = self.serving.iter().map(|(found, _)| found.address.clone());
            let known: Vec<Address> = of_members.chain(of_others).collect();
            let roots = accounting.roots();
            let mut called = waits::called(&roots);
            called.retain(|address| !known.contains(address));
            for found in waits::serving(&roots, called, &self.own()) {
                if let (Some((pid, _)), Some(name)) = (&found.process, found.name())
                    && !self.own().contains(pid)
                {
                    let part = Part { role: Role::Tier, name };
                    let row = process(part, 0, *pid, LOCALHOST.to_owned());
                    self.processes.push((Accounting::Process(*pid), row));
                }
                self.serving.push((found, tier.clone()));
            }
        }
    }

    /// Asks for a snapshot of everything.
    fn look(&mut self) {
        self.agents.iter_mut().for_each(|agent| agent.due = true);
        self.ask_all();
    }

    /// Asks each agent for what is due.
    fn ask_all(&mut self) {
        for index in 0..self.agents.len() {
            self.ask(index);
        }
    }

    /// Asks an agent for what is due, unless it has not answered the last question.
    fn ask(&mut self, index: usize) {
        let agent = &self.agents[index];
        let (at_ns, waits) = (monotonic_ns(), !agent.due);
        if agent.asked.is_some() || (waits && at_ns < agent.next_ns) {
            return;
        }
        let name = agent.connection.name();
        let of_host = self.members.iter().filter(|member| member.host == name && !waits);
        let snapshots = of_host.filter_map(|member| member.metrics.clone()).collect();
        let of_host = self.processes.iter().filter(|(_, process)| process.host == name);
        let account = |(accounting, _): &(Accounting, Process)| match accounting {
            _ if !waits => accounting.clone(),
            Accounting::Process(_) | Accounting::ControlGroup(_) => {
                Accounting::Waits(Box::new(accounting.clone()))
            }
            _ => Accounting::None,
        };
        let accounts: Vec<Accounting> = of_host.map(account).collect();
        if waits && accounts.iter().all(|one| *one == Accounting::None) {
            return;
        }
        let ticket = agent.connection.send(What::Look { snapshots, accounts });
        let agent = &mut self.agents[index];
        agent.asked = Some(Asked { ticket, at_ns, waits });
        agent.due &= waits;
    }

    /// The error of a full disk here.
    fn room_here(&self) -> Result<(), Full> {
        self.folder.as_deref().map_or(Ok(()), Full::here)
    }

    /// The error of the run, with the disk that is full, if one is: what ends because of it
    /// cannot say so. Asks once more: a disk may fill between two looks.
    fn explained(&self, error: RunError) -> RunError {
        let gone = matches!(
            &error,
            RunError::NoRoom { .. }
                | RunError::Process(ProcessError::Interrupted | ProcessError::Host(_))
        );
        if gone {
            return error;
        }
        let of_agents = || {
            let ask = |agent: &WatchedAgent| {
                let what = What::Look { snapshots: Vec::new(), accounts: Vec::new() };
                agent.connection.send(what)
            };
            let asked: Vec<Ticket> = self.agents.iter().map(ask).collect();
            let until = Until::after(ROOM_LOOK);
            self.agents.iter().zip(asked).find_map(|(agent, ticket)| {
                let looked = agent.connection.wait::<Looked>(ticket, until.left(), &|| false);
                full_there(&agent.connection, &looked.ok()?).err()
            })
        };
        match self.room_here().err().or_else(of_agents) {
            None => error,
            Some(full) => {
                let then = format!("; {}", kendall_units::chain(&error));
                RunError::NoRoom { full, then }
            }
        }
    }

    /// Takes in the answers that have come.
    fn take_in(&mut self) -> Result<(), RunError> {
        for index in 0..self.agents.len() {
            let agent = &self.agents[index];
            let Some(asked) = agent.asked else { continue };
            let Some(answer) = agent.connection.fetch::<Looked>(asked.ticket) else { continue };
            self.keep(index, answer?)?;
        }
        Ok(())
    }

    /// What everything had done in the end: an answer to an older question does not say it.
    fn last_look(&mut self) -> Result<(), RunError> {
        self.await_looks()?;
        self.others = self.other_programs();
        self.room_here()?;
        self.look_at_all()
    }

    /// A snapshot of everything. Tiers that do not answer in time, as on a busy machine, are asked again, a few
    /// times: without their first and last snapshot their figures are incomplete.
    fn look_at_all(&mut self) -> Result<(), RunError> {
        const TRIES: usize = 3;
        let before: Vec<usize> = self.members.iter().map(|one| one.snapshots.len()).collect();
        for _ in 0..TRIES {
            self.look();
            self.await_looks()?;
            let mut members = self.members.iter().zip(&before);
            if members.all(|(one, before)| one.metrics.is_none() || one.snapshots.len() > *before) {
                break;
            }
        }
        Ok(())
    }

    /// Those that used most of this machine since the load began, without what the study started.
    fn other_programs(&self) -> Vec<OtherProgram> {
        const MOST: usize = 3;
        const LEAST_CORES: f64 = 0.05;
        let all = Programs::now().others_since(&self.programs, &self.own()).into_iter();
        all.filter(|(_, cores)| *cores >= LEAST_CORES)
            .take(MOST)
            .map(|(command, cores)| OtherProgram { command, cores })
            .collect()
    }

    /// The processes here that are sampled: those of the study, and those that serve it.
    fn own(&self) -> Vec<u32> {
        let here = self.processes.iter().filter(|(_, process)| process.host == LOCALHOST);
        let own = here
            .flat_map(|(accounting, process)| accounting.roots().into_iter().chain([process.pid]));
        // 0 is no process.
        own.filter(|pid| *pid > 0).collect()
    }

    /// Waits for the answers that have not come.
    fn await_looks(&mut self) -> Result<(), RunError> {
        for index in 0..self.agents.len() {
            while let Some(asked) = self.agents[index].asked {
                let connection = &self.agents[index].connection;
                let answer = connection.wait::<Looked>(asked.ticket, LAST_LOOK, &|| false);
                self.keep(index, answer?)?;
                if self.agents[index].due {
                    self.ask(index);
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, index: usize, mut looked: Looked) -> Result<(), Full> {
        let agent = &mut self.agents[index];
        let asked = agent.asked.take();
        let apart_ns = looked.cost_ns.saturating_mul(COSTS_APART).max(WAITS_INTERVAL_NS);
        agent.next_ns = asked.map_or(0, |asked| asked.at_ns.saturating_add(apart_ns));
        let room = full_there(&agent.connection, &looked);
        if asked.is_some_and(|asked| asked.waits) {
            agent.moments.resize(agent.moments.len().max(looked.accounts.len()), Vec::new());
            for (moments, found) in agent.moments.iter_mut().zip(looked.accounts) {
                moments.extend(found.and_then(|found| found.process.waiting));
            }
            return room;
        }
        for (place, found) in (0..).zip(&mut looked.accounts) {
            let Some(found) = found else { continue };
            found.process.waiting = agent.waited(place, found.process.waiting);
        }
        let name = agent.connection.name().to_owned();
        let of_host = self.members.iter_mut().filter(|member| member.host == name);
        let with_page = of_host.filter(|member| member.metrics.is_some());
        for (member, snapshot) in with_page.zip(looked.snapshots) {
            member.take_in(snapshot.map(|page| serde_json::from_str(&page)));
        }
        let of_host = self.processes.iter_mut().filter(|(_, process)| process.host == name);
        for ((_, process), found) in of_host.zip(looked.accounts) {
            add(process, found);
        }
        self.hosts.extend(looked.host.map(|sample| HostSample { host: name, ..sample }));
        room
    }

    /// How busy each host is, by its last two samples; one that is silent stays until it is given up.
    fn live_hosts(&self, silence: impl Fn(&Connection) -> Duration) -> Vec<LiveHost> {
        let live = |agent: &WatchedAgent| {
            let (name, cores) = (agent.connection.name(), agent.connection.hello().cores);
            let host = LiveHost {
                name: name.to_owned(),
                busy_cores: None,
                cores: u32::try_from(cores).unwrap_or(u32::MAX),
                silent_s: Some(silence(&agent.connection).as_secs_f64())
                    .filter(|silent_s| *silent_s > SILENCE_S),
            };
            if host.silent_s.is_some() {
                return Some(host);
            }
            let mut samples = self.hosts.iter().rev().filter(|sample| sample.host == name);
            let (now, before) = (samples.next()?, samples.next()?);
            let busy_ns = now.busy_ns().saturating_sub(before.busy_ns());
            let busy_cores = ratio(busy_ns, now.at_ns.saturating_sub(before.at_ns))?;
            Some(LiveHost { busy_cores: Some(busy_cores), cores: now.cores, ..host })
        };
        self.agents.iter().filter_map(live).collect()
    }

    /// How it goes, by the last two snapshots of every instance of the entry.
    fn live(&self, started_ns: u64) -> Live {
        let elapsed_s =
            kendall_units::Seconds::from_nanos(monotonic_ns().saturating_sub(started_ns)).get();
        let mut live = Live {
            elapsed_s,
            throughput_per_s: None,
            response_time_mean_s: None,
            response_time_p99_s: None,
            hosts: self.live_hosts(Connection::silence),
        };
        let Some(entry) = &self.entry else { return live };
        let mut response_time = Histogram::new();
        for member in self.members.iter().filter(|member| member.part.is_tier(entry)) {
            let [.., before, now] = member.snapshots.as_slice() else { continue };
            let period = crate::record::period(before, now, kendall_store::Extent::Second);
            let Ok(period) = period else { continue };
            let completions = kendall_units::exact_f64(period.completions());
            *live.throughput_per_s.get_or_insert(0.0) += completions / period.length_s().max(1e-9);
            response_time.add(&period.stage(stage::RESPONSE_TIME));
        }
        live.response_time_mean_s = response_time.mean().map(|mean| mean / 1e9);
        let tail = response_time.quantile(0.99);
        live.response_time_p99_s = tail.map(|tail| kendall_units::Seconds::from_nanos(tail).get());
        live
    }
}

/// The error of a host whose disk is full.
fn full_there(agent: &Connection, looked: &Looked) -> Result<(), Full> {
    Full::of(Some(agent.name()), &agent.hello().folder, looked.free_bytes)
}

/// A process that nothing is known of yet.
fn process(part: Part, instance: u32, pid: u32, host: String) -> Process {
    let (samples, threads) = (Vec::new(), Vec::new());
    Process { part, instance, host, pid, samples, threads }
}

fn add(process: &mut Process, found: Option<Sampled>) {
    if let Some(found) = found {
        process.samples.push(found.process);
        process.threads.extend(found.threads);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixStream;

    use serde_json::json;

    use super::*;
    use kendall_host::connection::Pipe;
    use kendall_host::protocol::{Hello, Line, Outcome, Request};
    use kendall_host::sample;
    use kendall_protocols::snapshot::{SNAPSHOT_VERSION, TierSnapshot};
    use kendall_store::ProcessSample;

    const SECOND_NS: u64 = 1_000_000_000;

    /// An agent that counts requests for samples until the study shuts it down; `room` has its free bytes at
    /// each look.
    fn counting(far: &UnixStream, room: &[u64]) {
        let say = |line: &Line| writeln!(&mut &*far, "{}", serde_json::to_string(line).unwrap());
        say(&Line::Hello(Hello::default())).unwrap();
        let mut looks = 0;
        for line in BufReader::new(far).lines().map_while(Result::ok) {
            let Request { id, what } = serde_json::from_str(&line).unwrap();
            let bye = what == What::Bye;
            let outcome = match what {
                What::Clock => Outcome::ClockNs(monotonic_ns()),
                What::Look { snapshots, accounts } => {
                    let free_bytes = room.get(looks).copied();
                    looks += 1;
                    let mut sample = sample::host("").unwrap();
                    sample.at_ns = u64::try_from(looks).unwrap();
                    let host = Some(sample);
                    // Every second time a tier is too slow.
                    let version = SNAPSHOT_VERSION;
                    let page = json!(TierSnapshot { version, ..Default::default() }).to_string();
                    let page = (looks % 2 == 0).then_some(page);
                    let snapshots = vec![page; snapshots.len()];
                    let lock = kendall_units::exact_f64(looks);
                    let waiting = Some(Waiting { lock, ..Waiting::default() });
                    let sampled = Sampled::from(ProcessSample { waiting, ..Default::default() });
                    let accounts = vec![Some(sampled); accounts.len()];
                    let cost_ns = SECOND_NS;
                    Outcome::Ok(json!(Looked { snapshots, accounts, host, free_bytes, cost_ns }))
                }
                _ => Outcome::Ok(json!(true)),
            };
            say(&Line::Answer { id, outcome }).unwrap_or_default();
            if bye {
                return;
            }
        }
    }

    fn watched(room: &'static [u64]) -> (Watch, std::thread::JoinHandle<()>) {
        let (far, near) = UnixStream::pair().unwrap();
        let agent = std::thread::spawn(move || counting(&far, room));
        let output = Box::new(BufReader::new(near.try_clone().unwrap()));
        let pipe = Pipe { input: Box::new(near), output, carrier: None };
        let mut connection = Connection::start("h1", pipe).unwrap();
        connection.arrive(None, &|| false).unwrap();
        let mut watch = Watch::new(&Running::default(), None, Duration::from_secs(1));
        watch.agents = vec![WatchedAgent::of(&Arc::new(connection))];
        (watch, agent)
    }

    /// What costs a second of processor time is asked again after 50. A snapshot that became due meanwhile is not lost.
    #[test]
    fn what_threads_wait_for_between_two_snapshots_counts_in_the_second() {
        let (mut watch, agent) = watched(&[]);
        let one = process(Part::default(), 0, 1, "h1".to_owned());
        watch.processes = vec![(Accounting::Process(1), one)];
        watch.look();
        watch.await_looks().unwrap();
        let now = monotonic_ns();
        assert!(watch.agents[0].next_ns > now + 40 * SECOND_NS);
        watch.ask_all();
        assert!(watch.agents[0].asked.is_none(), "it is too soon");
        for _ in 0..2 {
            watch.agents[0].next_ns = 0;
            watch.ask_all();
            watch.await_looks().unwrap();
        }
        watch.agents[0].next_ns = 0;
        watch.ask_all();
        watch.look();
        watch.await_looks().unwrap();
        let samples = &watch.processes[0].1.samples;
        let locks: Vec<f64> = samples.iter().map(|one| one.waiting.unwrap().lock).collect();
        assert_eq!(locks, [1.0, 3.5], "the second to the fifth");
        let there = watch.hosts.iter().filter(|sample| sample.host == "h1");
        assert_eq!(there.map(|sample| sample.at_ns).collect::<Vec<_>>(), [1, 5]);
        drop(watch);
        agent.join().unwrap();
    }

    #[test]
    fn the_last_whole_line_of_a_log_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        for (text, line) in [
            ("", None),
            ("begun", None),
            ("a\n{\"x\":1}\nhalf", Some("{\"x\":1}")),
            (&("y".repeat(5_000) + "\nz\n"), Some("z")),
        ] {
            std::fs::write(&log, text).unwrap();
            assert_eq!(last_line(&log).as_deref(), line);
        }
    }

    /// With the first sample that says so, while the load goes on; and where a generator has died of it before
    /// that, beside what is known of the generator.
    #[test]
    fn a_host_whose_disk_is_full_ends_the_run_by_its_name() {
        let (mut watch, agent) = watched(&[64 << 20, 5 << 10, 0]);
        watch.look();
        watch.await_looks().unwrap();
        watch.look();
        let said = watch.await_looks().unwrap_err().to_string();
        assert_eq!(said, "host h1: the disk is full: 5 KiB are free at ");
        let no_result = RunError::NoResult {
            name: "generator 0".to_owned(),
            what: "it ended with exit status: 1".to_owned(),
            tail: String::new(),
        };
        let said = watch.explained(no_result).to_string();
        let (disk, load) = said.split_once("; ").unwrap();
        assert!(disk.starts_with("host h1: the disk is full: 0 KiB"), "{said}");
        assert_eq!(load, "generator 0 gave no result: it ended with exit status: 1");
        drop(watch);
        agent.join().unwrap();
    }

    /// An agent that had not answered yet was not asked again, and its older answer taken as the last.
    #[test]
    fn the_last_look_is_one_that_was_asked_for_at_the_end() {
        let (mut watch, agent) = watched(&[]);
        watch.look();
        watch.last_look().unwrap();
        let there = watch.hosts.iter().filter(|sample| sample.host == "h1");
        assert_eq!(there.map(|sample| sample.at_ns).collect::<Vec<_>>(), [1, 2]);
        drop(watch);
        agent.join().unwrap();
    }

    /// It fell out of the line as soon as others had given more samples, as if it had no part in the run.
    #[test]
    fn a_host_that_falls_silent_stays_in_the_line() {
        let (mut watch, agent) = watched(&[]);
        for _ in 0..2 {
            watch.look();
            watch.await_looks().unwrap();
        }
        let later = HostSample { host: "h2".to_owned(), ..watch.hosts[0].clone() };
        watch.hosts.extend(vec![later; 100]);
        let of = |silence: Duration| {
            let hosts = watch.live_hosts(|_| silence);
            assert_eq!(hosts.len(), 1, "{hosts:?}");
            (hosts[0].name.clone(), hosts[0].busy_cores.is_some(), hosts[0].silent_s)
        };
        assert_eq!(of(Duration::from_secs(1)), ("h1".to_owned(), true, None));
        assert_eq!(of(Duration::from_secs(4)), ("h1".to_owned(), false, Some(4.0)));
        drop(watch);
        agent.join().unwrap();
    }

    #[test]
    fn a_tier_that_gave_no_snapshot_in_time_is_asked_again() {
        let (mut watch, agent) = watched(&[]);
        watch.members.push(ObservedMember::with_metrics_on("h1"));
        watch.look_at_all().unwrap();
        assert_eq!(watch.members[0].snapshots.len(), 1);
        watch.last_look().unwrap();
        assert_eq!(watch.members[0].snapshots.len(), 2);
        drop(watch);
        agent.join().unwrap();
    }
}
