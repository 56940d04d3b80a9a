//! Where a study's processes run: on this machine, or on others, by an agent each.
//!
//! The agent of this machine is in this process; another is this program at the other end of a pipe that
//! `ssh`, or any other command, carries. `docs/hosts.md` describes the protocol; nothing listens for it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::bootstrap::{Bootstrap, Program};
use crate::clocks::{ClockFit, PINGS};
use crate::connection::{self, Connection, PROMPT};
use crate::error::HostError;
use crate::hosts::{At, Engine, HERE, HostSpec, Hosts};
use crate::keeper::Keeper;
use crate::kubernetes::Kubernetes;
use crate::launch::Launch;
use crate::lease::LEASE;
use crate::protocol::{Hello, What};
use crate::runner::Runner;

/// The address of what runs here, unless the study states another.
const LOOPBACK: &str = "127.0.0.1";

/// Connections by which the way between two hosts is measured.
const TRIPS: u32 = 50;

/// Options of `ssh` that a study needs: no questions, no terminal, and an end to a dead connection.
/// Host keys are checked as the user's own configuration says.
const SSH: [&str; 11] = [
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "EscapeChar=none",
];

/// A host that is connected.
#[derive(Debug)]
struct Far {
    connection: Arc<Connection>,
    address: String,
}

/// This machine, and the hosts that are connected.
#[derive(Debug)]
pub struct Machines {
    here: Arc<Connection>,
    hosts: Hosts,
    carried: Option<Program>,
    far: BTreeMap<usize, Far>,
    /// Those that were wanted last: what becomes of the others is no matter of the run.
    in_use: Vec<usize>,
    /// What the ways between hosts did when they were probed.
    probed: BTreeMap<(At, At), Option<serde_json::Value>>,
    /// Dropped after the connections: agents shut down before their pods are removed.
    pods: Option<Kubernetes>,
}

impl Machines {
    pub fn new(keeper: Keeper, hosts: Hosts) -> Self {
        let pods = match &hosts.engine {
            Engine::Kubernetes(pods) => Some(Kubernetes::new(pods.clone())),
            Engine::Ssh | Engine::Command { .. } => None,
        };
        Self {
            here: Arc::new(Connection::in_process(keeper)),
            hosts,
            carried: None,
            far: BTreeMap::new(),
            in_use: Vec::new(),
            probed: BTreeMap::new(),
            pods,
        }
    }

    /// Connects what is not connected, or no longer. What is done with all agents from now on is done
    /// with these.
    pub fn connect(
        &mut self,
        wanted: &[usize],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), HostError> {
        self.in_use = wanted.to_vec();
        self.far.retain(|_, far| far.connection.check().is_ok());
        let missing: Vec<usize> =
            wanted.iter().copied().filter(|host| !self.far.contains_key(host)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let program = match self.carried.take() {
            Some(program) => program,
            None => self.read_program()?,
        };
        let program = self.carried.insert(program);
        let bootstrap = Bootstrap::of(program, LEASE);
        let specs: Vec<(usize, &HostSpec)> =
            missing.iter().filter_map(|host| Some((*host, self.hosts.list.get(*host)?))).collect();
        let mut running = match &mut self.pods {
            None => Vec::new(),
            Some(pods) => pods.bring(&specs, interrupted)?,
        }
        .into_iter();
        // All of them first: they come up at the same time.
        let mut started = Vec::new();
        for (host, spec) in specs {
            let pod = running.next();
            let command = match (&self.pods, &pod) {
                (Some(pods), Some(pod)) => pods.exec(pod, &bootstrap),
                _ => command(&self.hosts.engine, spec, &bootstrap),
            };
            let pipe = connection::start(&command).map_err(|error| HostError::Unusable {
                host: spec.name.clone(),
                what: format!("`{}` cannot be started: {error}", command[0]),
            })?;
            started.push((host, spec, Connection::start(&spec.name, pipe)?, pod));
        }
        for (host, spec, mut connection, pod) in started {
            connection.arrive(Some((&bootstrap, &*program)), interrupted)?;
            let address = match (&spec.address, pod) {
                (None, Some(pod)) => pod.address,
                _ => address(&self.hosts.engine, spec)?,
            };
            self.far.insert(host, Far { connection: Arc::new(connection), address });
        }
        Ok(())
    }

    fn read_program(&self) -> Result<Program, HostError> {
        let own = Path::new(&self.here.hello().program);
        let unusable = |path: &std::path::Path, error: std::io::Error| HostError::Unusable {
            host: HERE.to_owned(),
            what: format!("the program {} cannot be read: {error}", path.display()),
        };
        let path = match &self.hosts.program {
            Some(stated) => PathBuf::from(stated),
            None => Program::twin(own)
                .map_err(|error| unusable(own, error))?
                .unwrap_or_else(|| own.to_owned()),
        };
        Program::read(&path).map_err(|error| unusable(&path, error))
    }

    /// The agent of a host; an error where it is gone.
    pub fn agent(&self, at: At) -> Result<&Arc<Connection>, HostError> {
        let At::Host(host) = at else { return Ok(&self.here) };
        self.far.get(&host).map(|far| &far.connection).ok_or_else(|| HostError::Lost {
            host: self.hosts.list.get(host).map_or_else(String::new, |h| h.name.clone()),
            what: "it is not connected".to_owned(),
        })
    }

    /// Those of other hosts that are in use, by their number in the study file.
    pub fn agents(&self) -> impl Iterator<Item = (usize, &Arc<Connection>)> {
        let in_use = self.far.iter().filter(|(host, _)| self.in_use.contains(host));
        in_use.map(|(host, far)| (*host, &far.connection))
    }

    /// The agent of this machine, and those of other hosts that are in use.
    pub fn all_agents(&self) -> impl Iterator<Item = &Arc<Connection>> {
        std::iter::once(&self.here).chain(self.agents().map(|(_, agent)| agent))
    }

    /// The error of the first host that is gone, if one is.
    pub fn check(&self) -> Result<(), HostError> {
        self.agents().try_for_each(|(_, agent)| agent.check())
    }

    /// The address that tiers bind there.
    pub fn address(&self, at: At) -> String {
        let address = match at {
            At::Here => self.hosts.here.as_ref(),
            At::Host(host) => self.far.get(&host).map(|far| &far.address),
        };
        address.map_or_else(|| LOOPBACK.to_owned(), Clone::clone)
    }

    /// The `kendall` program there.
    pub fn program(&self, at: At) -> Result<String, HostError> {
        Ok(self.agent(at)?.hello().program.clone())
    }

    /// The folder of an instance there; `folder` is where what it leaves is kept here.
    pub fn folder(&self, at: At, folder: &Path) -> std::io::Result<String> {
        let folder = std::path::absolute(folder)?;
        let agent = self.agent(at).unwrap_or(&self.here);
        let there = Path::new(&agent.hello().folder).join(agent.far_folder(&folder));
        Ok(there.display().to_string())
    }

    /// Free ports there: one of the host's address, one of its loopback.
    pub fn free_ports(&self, at: At) -> Result<(u16, u16), HostError> {
        let agent = self.agent(at)?;
        let one = |address: String| agent.ask::<u16>(What::FreePort { address });
        Ok((one(self.address(at))?, one(LOOPBACK.to_owned())?))
    }

    pub fn spawn(&self, at: At, launch: &Launch) -> Result<Runner, HostError> {
        Runner::start(self.agent(at)?, launch)
    }

    /// Forgets the clocks of the run before, and asks for them.
    pub fn begin_clocks(&self) -> Result<(), HostError> {
        for (_, agent) in self.agents() {
            agent.forget_pings();
            agent.ping(PINGS)?;
        }
        Ok(())
    }

    /// A moment of this machine, by the clock of the host.
    pub fn moment_there(&self, at: At, here_ns: u64) -> u64 {
        let fit = self.agent(at).ok().and_then(|agent| ClockFit::of(&agent.pings()));
        fit.map_or(here_ns, |fit| fit.there(here_ns))
    }

    /// Pings the clocks once more, and fits them to all pings of the run.
    pub fn end_clocks(&self) -> Result<Vec<HostClock>, HostError> {
        let mut clocks = Vec::new();
        for (_, agent) in self.agents() {
            clocks.push(HostClock {
                host: agent.name().to_owned(),
                hello: agent.hello().clone(),
                fit: agent.clock_fit()?,
                silence: agent.longest_silence(),
            });
        }
        Ok(clocks)
    }

    /// Round trips from a host to an address, in nanoseconds by its own clock; none where there is no
    /// way, which the run itself will say better.
    pub fn round_trips(&self, at: At, address: &str) -> Option<Vec<u64>> {
        let what = What::RoundTrips { address: address.to_owned(), count: TRIPS };
        self.agent(at).ok()?.ask(what).ok()
    }

    /// What the way from one host to another does by itself, once a session: as `crate::probe` tells it;
    /// none where nothing comes through, such as a port that a wall keeps shut.
    pub fn probe(
        &mut self,
        (from, to): (At, At),
        interrupted: &dyn Fn() -> bool,
    ) -> Option<serde_json::Value> {
        if let Some(known) = self.probed.get(&(from, to)) {
            return known.clone();
        }
        let probed = self.probe_once((from, to), interrupted);
        if !interrupted() {
            self.probed.insert((from, to), probed.clone());
        }
        probed
    }

    fn probe_once(
        &self,
        (from, to): (At, At),
        interrupted: &dyn Fn() -> bool,
    ) -> Option<serde_json::Value> {
        let address = self.address(to);
        let agent = self.agent(to).ok()?;
        let ticket = agent.send(What::ServeProbe { address: address.clone() });
        let port: u16 = agent.wait(ticket, PROMPT, interrupted).ok()?;
        let agent = self.agent(from).ok()?;
        let ticket = agent.send(What::Probe { address: format!("{address}:{port}") });
        agent.wait(ticket, PROMPT, interrupted).ok()?
    }

    /// Removes what a run has left in the agents' folders.
    pub fn clear(&self, folder: &Path) {
        let Some(name) = folder.file_name() else { return };
        for (_, agent) in self.agents() {
            agent.tell(What::Remove { folder: name.to_string_lossy().into_owned() });
        }
    }
}

/// What was found out about a host in one run.
#[derive(Debug, Clone)]
pub struct HostClock {
    pub host: String,
    pub hello: Hello,
    pub fit: ClockFit,
    /// The longest time without a word.
    pub silence: Duration,
}

impl HostClock {
    /// As it is stored with a run.
    pub fn json(&self) -> serde_json::Value {
        let hello = &self.hello;
        serde_json::json!({
            "machine": hello.machine,
            "boot_id": hello.boot_id,
            "kernel": hello.kernel,
            "architecture": hello.architecture,
            "cores": hello.cores,
            "cpu_model": hello.cpu_model,
            "memory_bytes": hello.memory_bytes,
            "clock_source": hello.clock_source,
            "clock": self.fit.json(),
            "longest_silence_s": self.silence.as_secs_f64(),
        })
    }
}

/// The way between two hosts, as connections to a tier measured it before a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub from: String,
    pub to: String,
    /// The tier that was connected to.
    pub tier: String,
    pub address: String,
    /// Nanoseconds, in rising order.
    times_ns: Vec<u64>,
    /// A round trip and a stream of this session, where they came through.
    pub probe: Option<serde_json::Value>,
}

impl Way {
    pub fn new(ends: (&str, &str), tier: &str, address: &str, mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let (from, to) = (ends.0.to_owned(), ends.1.to_owned());
        let (tier, address) = (tier.to_owned(), address.to_owned());
        Self { from, to, tier, address, times_ns: times, probe: None }
    }

    /// As it is stored with a run.
    pub fn json(&self) -> serde_json::Value {
        let seconds = |ns: Option<&u64>| ns.map(|ns| kendall_units::Seconds::from_nanos(*ns).get());
        serde_json::json!({
            "from": self.from,
            "to": self.to,
            "tier": self.tier,
            "address": self.address,
            "count": self.times_ns.len(),
            "least_s": seconds(self.times_ns.first()),
            "median_s": seconds(self.times_ns.get(self.times_ns.len() / 2)),
            "probe": self.probe,
        })
    }
}

/// What is run to reach a host.
fn command(engine: &Engine, spec: &HostSpec, bootstrap: &Bootstrap) -> Vec<String> {
    match engine {
        Engine::Ssh => {
            let mut words = vec!["ssh".to_owned()];
            words.extend(SSH.map(str::to_owned));
            words.extend([spec.target.clone(), bootstrap.for_shell()]);
            words
        }
        Engine::Command { prefix } => {
            let mut words: Vec<String> =
                prefix.iter().map(|word| word.replace("{host}", &spec.target)).collect();
            if words.last().is_some_and(|word| word == "-c") {
                words.push(bootstrap.for_shell());
            } else {
                words.extend(bootstrap.words());
            }
            words
        }
        // Reached by the name of its pod: `Kubernetes::exec`.
        Engine::Kubernetes(_) => bootstrap.words(),
    }
}

/// The address of a host: as stated, else what the user's `ssh` makes of its name.
fn address(engine: &Engine, spec: &HostSpec) -> Result<String, HostError> {
    if let Some(address) = &spec.address {
        return Ok(address.clone());
    }
    if *engine != Engine::Ssh {
        return Ok(LOOPBACK.to_owned());
    }
    let unusable = |what: String| HostError::Unusable { host: spec.name.clone(), what };
    let output = std::process::Command::new("ssh")
        .args(["-G", &spec.target])
        .output()
        .map_err(|error| unusable(format!("`ssh -G` failed: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let name = text.lines().find_map(|line| line.strip_prefix("hostname ")).unwrap_or(&spec.target);
    // Addresses stand before `:PORT` in texts, where one of IPv6 would need brackets.
    let mut found = (name, 0).to_socket_addrs().into_iter().flatten();
    found.find(SocketAddr::is_ipv4).map(|address| address.ip().to_string()).ok_or_else(|| {
        let form =
            format!("{} = {{ ssh = \"{}\", address = \"10.0.0.2\" }}", spec.name, spec.target);
        unusable(format!(
            "`{name}` has no IPv4 address here; state the one that tiers are to use: {form}"
        ))
    })
}
