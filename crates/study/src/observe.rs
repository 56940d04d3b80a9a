//! One run: starts the system, fills it, loads it, watches it, stops it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kendall_protocols::load_result::{JOB_LOOP, LoadResult};
use kendall_protocols::snapshot::{TierSnapshot, stage};
use kendall_protocols::topology::{Part, Role, TierId};
use kendall_stats::histogram::Histogram;
use kendall_store::{HostSample, Process, SpeedSample};

use crate::clock::monotonic_ns;
use crate::http;
use crate::instance::{Instance, Launch, ProcessError};
use crate::keep::Keeper;
use crate::place::{Running, Starter};
use crate::sample;
use crate::settings::Settings;
use crate::speed::Probe;
use crate::template::Values;
use crate::topology::{CLIENTS, StopSignal};
use crate::workload::Workload;

/// Between two looks at what runs.
const LOOK: Duration = Duration::from_millis(5);

/// Longest time between two snapshots; shorter in short runs.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// Between two tellings of how a run does.
const LIVE_INTERVAL_NS: u64 = 1_000_000_000;

/// How long a snapshot may take.
const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(2);

/// How long filling may take.
const PREFILL_DEADLINE: Duration = Duration::from_secs(120);

/// How much longer than its duration a load may take: connecting, and the last answers.
const LOAD_GRACE: Duration = Duration::from_secs(60);

/// The name of this machine in the rows.
pub(crate) const HOST: &str = "localhost";

/// A run without numbers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A process of the system or a generator.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A generator ended without a result.
    #[error("{name} gave no result: {what}{tail}")]
    NoResult {
        /// Which generator.
        name: String,
        /// What is wrong with what it printed.
        what: String,
        /// The end of its log.
        tail: String,
    },
}

/// What was seen in one run.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) generators: Vec<ObservedGenerator>,
    pub(crate) members: Vec<ObservedMember>,
    pub(crate) processes: Vec<Process>,
    pub(crate) hosts: Vec<HostSample>,
    pub(crate) speeds: Vec<SpeedSample>,
    /// Names of those that did not stop when asked to.
    pub(crate) killed: Vec<String>,
}

/// A load generator, and what it found.
#[derive(Debug)]
pub(crate) struct ObservedGenerator {
    pub(crate) command: String,
    pub(crate) result: LoadResult,
    /// Where it printed the result.
    pub(crate) output: PathBuf,
}

/// A tier instance or link, and what it said.
#[derive(Debug, Clone)]
pub(crate) struct ObservedMember {
    pub(crate) part: Part,
    pub(crate) kind: String,
    pub(crate) number: u32,
    pub(crate) address: String,
    pub(crate) pid: u32,
    pub(crate) command: String,
    metrics: Option<String>,
    pub(crate) snapshots: Vec<TierSnapshot>,
    /// Why the last snapshot that could not be read could not.
    pub(crate) unreadable: Option<String>,
}

/// How the run in progress does; told about once a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Live {
    /// Seconds of load so far.
    pub elapsed_s: f64,
    /// Requests per second just now, as the tier that the clients talk to says.
    pub throughput_per_s: Option<f64>,
    /// Mean response time just now, in seconds, as that tier says.
    pub response_time_mean_s: Option<f64>,
}

/// What a run needs.
pub(crate) struct Observer<'a> {
    pub(crate) keeper: &'a mut Keeper,
    pub(crate) settings: &'a Settings,
    pub(crate) folder: &'a Path,
    pub(crate) seed: u64,
    pub(crate) interrupted: &'a dyn Fn() -> bool,
    pub(crate) live: &'a mut dyn FnMut(Live),
}

impl Observer<'_> {
    /// The whole run. Whatever happens, nothing that it started is left.
    pub(crate) fn run(mut self) -> Result<Observed, RunError> {
        let secret = secret().map_err(|source| ProcessError::Spawn {
            name: "a secret for the tiers".to_owned(),
            source,
        })?;
        let mut running = Starter {
            keeper: self.keeper,
            settings: self.settings,
            folder: self.folder,
            seed: self.seed,
            secret: &secret,
            interrupted: self.interrupted,
        }
        .start()?;
        let outcome = self.prefill(&mut running).and_then(|()| self.load(&mut running));
        let killed = running.stop(self.keeper);
        outcome.map(|observed| Observed { killed, ..observed })
    }

    fn prefill(&mut self, running: &mut Running) -> Result<(), RunError> {
        for tier in &self.settings.topology.filled {
            // Straight to the servers: no link slows it down, and every one of them is filled.
            for (number, address) in running.reach(tier, tier).to_vec().into_iter().enumerate() {
                let Some(arguments) = self.settings.workload.prefill(&address) else { continue };
                let mut filler = self.kendall(&format!("prefill {tier} {number}"), arguments)?;
                let interrupted = self.interrupted;
                let deadline = PREFILL_DEADLINE;
                let mut status = None;
                while status.is_none() {
                    running.check_alive()?;
                    if interrupted() {
                        return Err(ProcessError::Interrupted.into());
                    }
                    status = filler.ended();
                    std::thread::sleep(LOOK);
                }
                if status.is_some_and(|status| !status.success()) {
                    filler.check_alive()?;
                }
                filler.finish(self.keeper, deadline);
            }
        }
        Ok(())
    }

    fn kendall(&mut self, name: &str, arguments: Vec<String>) -> Result<Instance, RunError> {
        let mut command = vec![self.keeper.program().display().to_string(), "load".to_owned()];
        command.extend(arguments);
        let folder = self.folder_of(name);
        let (name, environment) = (name.to_owned(), Vec::new());
        let launch = Launch { name, command, environment, folder, cores: None };
        Ok(Instance::spawn(self.keeper, &launch)?)
    }

    fn folder_of(&self, name: &str) -> PathBuf {
        // With a dot, which no tier's name has.
        self.folder.join(name.replace(' ', "."))
    }

    /// One load generator: `kendall load`, or the user's own program.
    fn generator(&mut self, number: u32, targets: &[String]) -> Result<Instance, RunError> {
        let workload = &self.settings.workload;
        let name = format!("generator {number}");
        let seed = mixed(self.seed, u64::from(number) + 1);
        let duration = self.settings.measure.duration;
        let Some(program) = &workload.driver.program else {
            let text = format!("{}ns", duration.as_nanos());
            let mut arguments = workload.arguments(number, targets, &text, seed);
            if workload.driver.in_folder {
                let folder = self.folder_of(&name).display().to_string();
                arguments.extend(["--folder".to_owned(), folder]);
            }
            return self.kendall(&name, arguments);
        };
        let spawn = |source| ProcessError::Spawn { name: name.clone(), source };
        let folder = std::path::absolute(self.folder_of(&name)).map_err(spawn)?;
        let mut values = Values::of_a_load(&self.settings.effective);
        values.set("kendall", self.keeper.program().display().to_string());
        values.set("folder", folder.display().to_string());
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
            cores: None,
        };
        Ok(Instance::spawn(self.keeper, &launch)?)
    }

    fn load(&mut self, running: &mut Running) -> Result<Observed, RunError> {
        let workload = &self.settings.workload;
        let targets = running.reach(CLIENTS, &self.settings.topology.entry).to_vec();
        let duration = self.settings.measure.duration;
        let entry = self.settings.topology.tier(&self.settings.topology.entry);
        let entry = entry.map(|tier| tier.name.clone());
        let mut watch = Watch::new(running, entry, duration.as_duration());
        // Before any request: what the tiers count from here on is this load's.
        watch.look();
        let probe = self.settings.measure.speed_probe.then(|| Probe::start(HOST));
        let mut generators = Vec::new();
        for number in 0..workload.generators {
            generators.push(self.generator(number, &targets)?);
        }
        watch.add_generators(&generators);
        let outcome = self.watch(running, &mut generators, &mut watch);
        watch.look();
        let speeds = probe.map(Probe::end).unwrap_or_default();
        let outcome = outcome.and_then(|()| results(&mut generators, workload));
        for mut generator in generators {
            generator.ask_to_stop(StopSignal::Interrupt);
            generator.finish(self.keeper, Duration::from_secs(2));
        }
        let Watch { members, mut processes, hosts, .. } = watch;
        for (_, process) in &mut processes {
            process.threads.sort_by(|a, b| (&a.name, a.at_ns).cmp(&(&b.name, b.at_ns)));
        }
        Ok(Observed {
            generators: outcome?,
            members,
            processes: processes.into_iter().map(|(_, process)| process).collect(),
            hosts,
            speeds,
            killed: Vec::new(),
        })
    }

    /// Until all generators have ended.
    fn watch(
        &mut self,
        running: &mut Running,
        generators: &mut [Instance],
        watch: &mut Watch,
    ) -> Result<(), RunError> {
        let started = monotonic_ns();
        let limit = self.settings.measure.duration.as_duration() + LOAD_GRACE;
        let (mut next, mut next_live) = (started, started);
        while generators.iter_mut().any(|generator| generator.ended().is_none()) {
            running.check_alive()?;
            if (self.interrupted)() {
                return Err(ProcessError::Interrupted.into());
            }
            let now = monotonic_ns();
            if u128::from(now - started) > limit.as_nanos() {
                return Err(ProcessError::NotReady {
                    name: "the load".to_owned(),
                    seconds: limit.as_secs(),
                    check: "its end".to_owned(),
                    tail: generators.first().map(Instance::tail).unwrap_or_default(),
                }
                .into());
            }
            if now >= next {
                watch.look();
                next = now.max(next) + watch.interval_ns;
            }
            if now >= next_live {
                (self.live)(watch.live(started));
                next_live = now + LIVE_INTERVAL_NS;
            }
            std::thread::sleep(LOOK);
        }
        Ok(running.check_alive()?)
    }
}

/// Letters and digits that cannot be guessed: passwords must not follow from a seed.
fn secret() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the generators printed.
fn results(
    generators: &mut [Instance],
    workload: &Workload,
) -> Result<Vec<ObservedGenerator>, RunError> {
    let mut results = Vec::new();
    for generator in generators {
        let end = generator.end_in_words();
        let succeeded = generator.ended().is_some_and(|status| status.success());
        let no_result = |what: String| RunError::NoResult {
            name: generator.name.clone(),
            what,
            tail: generator.tail(),
        };
        let output = generator.folder.join("output");
        let text = std::fs::read(&output).map_err(|error| no_result(error.to_string()))?;
        if text.is_empty() {
            return Err(no_result(format!("it ended with {end}")));
        }
        if workload.driver.program.is_some() && !succeeded {
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
            (result.started_ns, result.ended_ns) = generator.life_ns();
        }
        results.push(ObservedGenerator { command: generator.command.clone(), result, output });
    }
    Ok(results)
}

/// Collects snapshots and counters.
struct Watch {
    members: Vec<ObservedMember>,
    processes: Vec<(crate::topology::Accounting, Process)>,
    hosts: Vec<HostSample>,
    interval_ns: u64,
    /// The tier that the clients talk to.
    entry: Option<TierId>,
}

impl Watch {
    fn new(running: &Running, entry: Option<TierId>, duration: Duration) -> Self {
        let interval = (duration / 10).clamp(Duration::from_millis(100), SNAPSHOT_INTERVAL);
        let members: Vec<ObservedMember> = running
            .members
            .iter()
            .map(|member| ObservedMember {
                part: member.part.clone(),
                kind: member.kind.clone(),
                number: member.number,
                address: member.address.clone(),
                pid: member.process.as_ref().map_or(0, Instance::pid),
                command: member.process.as_ref().map(|p| p.command.clone()).unwrap_or_default(),
                metrics: member.metrics.clone(),
                snapshots: Vec::new(),
                unreadable: None,
            })
            .collect();
        let of_tiers = running.members.iter().map(|member| {
            let pid = member.process.as_ref().map_or(0, Instance::pid);
            (member.accounting.clone(), process(member.part.clone(), member.number, pid))
        });
        let itself = std::iter::once((
            crate::topology::Accounting::Process(std::process::id()),
            process(Part::study(), 0, std::process::id()),
        ));
        let processes = of_tiers.chain(itself).collect();
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Self { members, processes, hosts: Vec::new(), interval_ns, entry }
    }

    /// Looks at the generators as well from now on.
    fn add_generators(&mut self, generators: &[Instance]) {
        self.processes.extend((0..).zip(generators).map(|(number, generator)| {
            let accounting = crate::topology::Accounting::Process(generator.pid());
            (accounting, process(Part::generator(), number, generator.pid()))
        }));
    }

    /// Takes a snapshot of everything.
    fn look(&mut self) {
        for member in &mut self.members {
            let Some(metrics) = &member.metrics else { continue };
            let answer = http::get(metrics, "/snapshot", SNAPSHOT_DEADLINE).ok();
            let body = answer.filter(|(status, _)| *status == 200).map(|(_, body)| body);
            match body.map(|body| serde_json::from_slice(&body)) {
                Some(Ok(snapshot)) => member.snapshots.push(snapshot),
                Some(Err(error)) => {
                    // Of a version that this program does not know, for one: said in the run.
                    tracing::warn!(tier = %member.part, %error, "a snapshot that cannot be read");
                    member.unreadable = Some(error.to_string());
                }
                None => tracing::debug!(tier = %member.part, "no snapshot"),
            }
        }
        for (accounting, process) in &mut self.processes {
            let found = match process.part.role {
                Role::Study => own_process(),
                Role::Tier | Role::Link | Role::Generator => sample::accounting(accounting),
            };
            let Some(found) = found else { continue };
            process.samples.push(found.process);
            process.threads.extend(found.threads);
        }
        self.hosts.extend(sample::host(HOST));
    }

    /// How it goes, by the last two snapshots of every instance of the entry.
    fn live(&self, started_ns: u64) -> Live {
        let elapsed_s =
            kendall_units::Seconds::from_nanos(monotonic_ns().saturating_sub(started_ns)).get();
        let mut live = Live { elapsed_s, throughput_per_s: None, response_time_mean_s: None };
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
        live
    }
}

/// A process that nothing is known of yet.
fn process(part: Part, instance: u32, pid: u32) -> Process {
    let (samples, threads) = (Vec::new(), Vec::new());
    Process { part, instance, host: HOST.to_owned(), pid, samples, threads }
}

/// The study itself, without the processes below it, which are counted by themselves.
fn own_process() -> Option<sample::Sampled> {
    sample::process_alone(std::process::id())
}

/// Two numbers mixed into one: SplitMix64's finaliser.
pub(crate) fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    // 53 bits, so that every number that is printed or stored is exact anywhere.
    (x ^ (x >> 31)) >> 11
}
