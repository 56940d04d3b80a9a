//! Starts a system where the study places it: tiers from the back to the front, links between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kendall_host::clock::Until;
use kendall_host::hosts::At;
use kendall_host::instance::ProcessError;
use kendall_host::launch::{AddressFrom, Announced, AwaitReady, Launch, StopSignal};
use kendall_host::machines::Machines;
use kendall_host::runner::Runner;
use kendall_host::sample::Accounting;
use kendall_protocols::topology::{Part, Role};

use crate::seed::mixed;
use crate::settings::{Link, Settings};
use crate::template::Values;
use crate::topology::{Source, Started, TierSpec};

/// Tries to start an instance whose chosen port another program took in the meantime.
const PORT_TRIES: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct Running {
    /// In the order of starting.
    pub(crate) members: Vec<Member>,
    /// Addresses by caller and callee; for a link also by the host of the caller.
    addresses: BTreeMap<(String, String, Option<At>), Vec<String>>,
}

/// One instance of a tier, or one link.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) part: Part,
    pub(crate) kind: String,
    pub(crate) number: u32,
    pub(crate) address: String,
    pub(crate) metrics: Option<String>,
    /// The folder of its programs, where it says so.
    pub(crate) programs: Option<String>,
    pub(crate) accounting: Accounting,
    /// `None` where it runs already.
    pub(crate) process: Option<Runner>,
    stop: StopSignal,
    stop_deadline: Duration,
}

pub(crate) struct Starter<'a> {
    pub(crate) machines: &'a Machines,
    pub(crate) settings: &'a Settings,
    pub(crate) folder: &'a Path,
    pub(crate) seed: u64,
    /// Secret letters and digits, the same for all tiers of a run.
    pub(crate) secret: &'a str,
    pub(crate) interrupted: &'a dyn Fn() -> bool,
}

impl Running {
    /// Where `from`, which runs at `at`, reaches the instances of `to`.
    pub(crate) fn reach(&self, from: &str, to: &str, at: At) -> &[String] {
        let direct = (to.to_owned(), to.to_owned(), None);
        self.addresses
            .get(&(from.to_owned(), to.to_owned(), Some(at)))
            .or_else(|| self.addresses.get(&direct))
            .map_or(&[], Vec::as_slice)
    }

    /// The error of a member that has ended, if one has.
    pub(crate) fn check_alive(&self) -> Result<(), ProcessError> {
        let mut processes = self.members.iter().filter_map(|member| member.process.as_ref());
        processes.try_for_each(Runner::check_alive)
    }

    /// Stops from the front to the back, the instances of a tier together; names those that had
    /// to be killed.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let mut killed = Vec::new();
        self.members.reverse();
        for tier in self.members.chunk_by_mut(|a, b| a.part == b.part) {
            for member in tier.iter_mut() {
                if let Some(process) = &member.process {
                    process.ask_to_stop(member.stop);
                }
            }
            for member in tier {
                if let Some(process) = member.process.take() {
                    let name = process.name().to_owned();
                    if process.finish(member.stop_deadline) {
                        killed.push(name);
                    }
                }
            }
        }
        killed
    }

    /// Asks all to stop at once, in any order, and kills what has not within this time.
    pub(crate) fn stop_within(self, within: Duration) {
        let members = self.members.into_iter();
        let processes = members.filter_map(|member| Some((member.process?, member.stop))).collect();
        end_within(processes, within);
    }
}

/// Asks processes to stop, each by its signal, and kills those that have not within this time, which they
/// have together.
pub(crate) fn end_within(processes: Vec<(Runner, StopSignal)>, within: Duration) {
    for (process, signal) in &processes {
        process.ask_to_stop(*signal);
    }
    let until = Until::after(within);
    for (process, _) in processes {
        process.finish(until.left());
    }
}

impl Starter<'_> {
    /// Starts everything and waits until all of it is ready.
    pub(crate) fn start(&mut self) -> Result<Running, ProcessError> {
        let mut running = Running::default();
        let settings = self.settings;
        let order = settings.topology.start_order().unwrap_or_default();
        for tier in order {
            self.tier(&mut running, tier)?;
            for link in settings.links.iter().filter(|link| tier.name == *link.to.as_str()) {
                self.link(&mut running, link)?;
            }
        }
        Ok(running)
    }

    fn tier(&mut self, running: &mut Running, tier: &TierSpec) -> Result<(), ProcessError> {
        let mut addresses = Vec::new();
        match &tier.source {
            Source::Attached(instances) => {
                for (number, instance) in (0..).zip(instances) {
                    addresses.push(instance.address.clone());
                    running.members.push(Member {
                        part: Part::tier(&tier.name),
                        kind: tier.kind.clone(),
                        number,
                        address: instance.address.clone(),
                        metrics: instance.metrics.clone(),
                        programs: None,
                        accounting: instance.accounting.clone(),
                        process: None,
                        stop: StopSignal::Terminate,
                        stop_deadline: Duration::ZERO,
                    });
                }
            }
            Source::Started(started) => {
                for number in 0..started.instances {
                    let member = self.instance(running, tier, started, number)?;
                    addresses.push(member.address.clone());
                    running.members.push(member);
                }
            }
        }
        let name = tier.name.to_string();
        running.addresses.insert((name.clone(), name, None), addresses);
        Ok(())
    }

    fn instance(
        &mut self,
        running: &Running,
        tier: &TierSpec,
        started: &Started,
        number: u32,
    ) -> Result<Member, ProcessError> {
        let name = format!("{} {number}", tier.name);
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_instance(running, tier, started, number) {
                Err(ProcessError::Told { ended: true, .. })
                    if started.address == AddressFrom::Chosen && tries < PORT_TRIES =>
                {
                    tracing::debug!(name, tries, "ended while starting; trying another port");
                }
                other => return other,
            }
        }
    }

    fn try_instance(
        &mut self,
        running: &Running,
        tier: &TierSpec,
        started: &Started,
        number: u32,
    ) -> Result<Member, ProcessError> {
        let name = format!("{} {number}", tier.name);
        let at = self.settings.placement.at(tier.name.as_str(), number);
        let folder = self.folder.join(format!("{}-{number}", tier.name));
        let spawn = |source| ProcessError::Spawn { name: name.clone(), source };
        let (port, metrics) = match started.address {
            AddressFrom::Chosen => self.machines.free_ports(at)?,
            AddressFrom::ReadyLine | AddressFrom::PortFile => (0, 0),
        };
        let host = self.machines.address(at);
        let chosen = format!("{host}:{port}");
        let folder = std::path::absolute(&folder).map_err(spawn)?;
        let mut values = Values::default();
        values.set("kendall", self.machines.program(at)?);
        values.set("folder", self.machines.folder(at, &folder).map_err(spawn)?);
        values.set("instance", number.to_string());
        values.set("seed", self.seed.to_string());
        values.set("host", host);
        values.set("secret", self.secret.to_owned());
        if started.address == AddressFrom::Chosen {
            values.set("port", port.to_string());
            values.set("address", chosen.clone());
            values.set("metrics", format!("127.0.0.1:{metrics}"));
        }
        for backend in tier.connects_to() {
            values.set_list(backend, running.reach(tier.name.as_str(), backend, at).to_vec());
        }
        values.set_settings(&self.settings.effective);
        let refuse = |placeholder: String| ProcessError::Placeholder {
            name: name.clone(),
            placeholder,
            known: values.names(),
        };
        let scratch = started.scratch.as_ref().map(|text| values.fill(text)).transpose();
        let scratch = scratch.map_err(refuse)?.map(PathBuf::from);
        let launch = Launch {
            command: values.fill_all(&started.command).map_err(refuse)?,
            environment: values.fill_pairs(&started.environment).map_err(refuse)?,
            name: name.clone(),
            folder: folder.clone(),
            cores: started.cores,
            scratch,
        };
        let mut filled = started.clone();
        if let kendall_host::launch::Ready::Command(command) = &mut filled.ready {
            *command = values.fill_all(command).map_err(refuse)?;
        }
        let uses_metrics = started.command.iter().any(|word| word.contains("{metrics}"));
        let mut announced = self.launch(at, &launch, &filled, &chosen)?;
        if announced.1.metrics.is_none() && uses_metrics {
            announced.1.metrics = Some(format!("127.0.0.1:{metrics}"));
        }
        Ok(member((Part::tier(&tier.name), &tier.kind), started, number, announced))
    }

    fn launch(
        &mut self,
        at: At,
        launch: &Launch,
        started: &Started,
        chosen: &str,
    ) -> Result<(Runner, Announced), ProcessError> {
        let process = self.machines.spawn(at, launch)?;
        let wanted = AwaitReady {
            process: 0,
            address: started.address,
            ready: started.ready.clone(),
            chosen: chosen.to_owned(),
            host: self.machines.address(at),
            deadline_ms: u64::try_from(started.ready_deadline.as_millis()).unwrap_or(u64::MAX),
        };
        match process.wait_ready(wanted, self.interrupted) {
            Ok(announced) => Ok((process, announced)),
            Err(error) => {
                process.finish(std::time::Duration::ZERO);
                Err(error)
            }
        }
    }

    /// A relay on each host that asks, with a route to each instance of the tier behind it.
    fn link(&mut self, running: &mut Running, link: &Link) -> Result<(), ProcessError> {
        let generators = self.settings.workload.generators;
        let askers = self.settings.topology.instances(&link.from, generators);
        let hosts = self.settings.placement.of(&link.from, askers);
        for (number, at) in (0..).zip(hosts) {
            self.relay(running, link, number, at)?;
        }
        Ok(())
    }

    /// Starts one relay, on the loopback of the host whose requests it takes.
    fn relay(
        &mut self,
        running: &mut Running,
        link: &Link,
        number: u32,
        at: At,
    ) -> Result<(), ProcessError> {
        let Link { from, to, .. } = link;
        let name = format!("link {from} to {to}");
        // With a dot, which no tier's name has.
        let folder = match number {
            0 => format!("link.{from}.{to}"),
            _ => format!("link.{from}.{to}.{number}"),
        };
        let folder: PathBuf = self.folder.join(folder);
        let mut command: Vec<String> = ["{kendall}", "serve", "link"].map(str::to_owned).into();
        command[0] = self.machines.program(at)?;
        for address in running.reach(to, to, at) {
            command.extend(["--route".to_owned(), format!("127.0.0.1:0={address}")]);
        }
        command.extend(link.options.iter().cloned());
        command.extend(["--metrics", "127.0.0.1:0", "--seed"].map(str::to_owned));
        // Of its own: links with the same numbers would hold back messages together.
        let seed = name.bytes().fold(self.seed, |seed, byte| mixed(seed, u64::from(byte) + 1));
        command.push(seed.to_string());
        let mut started = Started::command(1, command.clone());
        started.address = AddressFrom::ReadyLine;
        let launch = Launch { name, command, folder, ..Launch::default() };
        let (process, announced) = self.launch(at, &launch, &started, "")?;
        let key = (from.clone(), to.clone(), Some(at));
        running.addresses.insert(key, announced.listen.clone());
        let part = Part { role: Role::Link, name: link.name() };
        let kind = Role::Link.as_str();
        running.members.push(member((part, kind), &started, number, (process, announced)));
        Ok(())
    }
}

fn member(
    (part, kind): (Part, &str),
    started: &Started,
    number: u32,
    (process, announced): (Runner, Announced),
) -> Member {
    Member {
        part,
        kind: kind.to_owned(),
        number,
        address: announced.listen.first().cloned().unwrap_or_default(),
        metrics: announced.metrics,
        programs: announced.programs,
        accounting: Accounting::Process(process.pid()),
        process: Some(process),
        stop: started.stop,
        stop_deadline: started.stop_deadline,
    }
}
