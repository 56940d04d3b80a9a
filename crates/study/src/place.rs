//! Starts a system on this machine: tiers from the back to the front, links between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kendall_protocols::topology::{Part, Role};

use crate::instance::{Announced, Instance, Launch, ProcessError, free_port, wait_ready};
use crate::keep::Keeper;
use crate::settings::{Link, Settings};
use crate::template::Values;
use crate::topology::{Accounting, AddressFrom, Source, Started, StopSignal, TierSpec};

/// Tries to start an instance whose chosen port another program took in the meantime.
const PORT_TRIES: u32 = 3;

/// A system that runs.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// In the order of starting.
    pub(crate) members: Vec<Member>,
    /// How everybody is reached: by who asks, and whom.
    addresses: BTreeMap<(String, String), Vec<String>>,
}

/// One instance of a tier, or one link.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) part: Part,
    pub(crate) kind: String,
    pub(crate) number: u32,
    pub(crate) address: String,
    pub(crate) metrics: Option<String>,
    pub(crate) accounting: Accounting,
    /// `None` where it runs already.
    pub(crate) process: Option<Instance>,
    stop: StopSignal,
    stop_deadline: std::time::Duration,
    /// Removed when it has stopped.
    scratch: Option<PathBuf>,
}

/// What starting needs.
pub(crate) struct Starter<'a> {
    pub(crate) keeper: &'a mut Keeper,
    pub(crate) settings: &'a Settings,
    pub(crate) folder: &'a Path,
    pub(crate) seed: u64,
    /// Letters and digits that nobody else knows, the same for all tiers of a run.
    pub(crate) secret: &'a str,
    pub(crate) interrupted: &'a dyn Fn() -> bool,
}

impl Running {
    /// Where `from` reaches the instances of `to`.
    pub(crate) fn reach(&self, from: &str, to: &str) -> &[String] {
        let direct = (to.to_owned(), to.to_owned());
        self.addresses
            .get(&(from.to_owned(), to.to_owned()))
            .or_else(|| self.addresses.get(&direct))
            .map_or(&[], Vec::as_slice)
    }

    /// The error of a member that has ended, if one has.
    pub(crate) fn check_alive(&mut self) -> Result<(), ProcessError> {
        for member in &mut self.members {
            if let Some(process) = &mut member.process {
                process.check_alive()?;
            }
        }
        Ok(())
    }

    /// Stops from the front to the back, the instances of a tier together; names those that had
    /// to be killed.
    pub(crate) fn stop(mut self, keeper: &mut Keeper) -> Vec<String> {
        let mut killed = Vec::new();
        self.members.reverse();
        for tier in self.members.chunk_by_mut(|a, b| a.part == b.part) {
            for member in tier.iter_mut() {
                if let Some(process) = &mut member.process {
                    process.ask_to_stop(member.stop);
                }
            }
            for member in tier {
                if let Some(process) = member.process.take() {
                    let name = process.name.clone();
                    if process.finish(keeper, member.stop_deadline) {
                        killed.push(name);
                    }
                }
                if let Some(scratch) = &member.scratch {
                    std::fs::remove_dir_all(scratch).unwrap_or_default();
                }
            }
        }
        killed
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
                        accounting: instance.accounting.clone(),
                        process: None,
                        stop: StopSignal::Terminate,
                        stop_deadline: std::time::Duration::ZERO,
                        scratch: None,
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
        running.addresses.insert((name.clone(), name), addresses);
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
                Err(ProcessError::Ended { .. })
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
        let folder = self.folder.join(format!("{}-{number}", tier.name));
        let spawn = |source| ProcessError::Spawn { name: name.clone(), source };
        let (port, metrics) = match started.address {
            AddressFrom::Chosen => (free_port().map_err(spawn)?, free_port().map_err(spawn)?),
            AddressFrom::ReadyLine | AddressFrom::PortFile => (0, 0),
        };
        let chosen = format!("127.0.0.1:{port}");
        let folder = std::path::absolute(&folder).map_err(spawn)?;
        let mut values = Values::default();
        values.set("kendall", self.keeper.program().display().to_string());
        values.set("folder", folder.display().to_string());
        values.set("instance", number.to_string());
        values.set("seed", self.seed.to_string());
        values.set("host", "127.0.0.1".to_owned());
        values.set("secret", self.secret.to_owned());
        if started.address == AddressFrom::Chosen {
            values.set("port", port.to_string());
            values.set("address", chosen.clone());
            values.set("metrics", format!("127.0.0.1:{metrics}"));
        }
        for backend in tier.connects_to() {
            values.set_list(backend, running.reach(tier.name.as_str(), backend).to_vec());
        }
        values.set_settings(&self.settings.effective);
        let refuse = |placeholder: String| ProcessError::Placeholder {
            name: name.clone(),
            placeholder,
            known: values.names(),
        };
        let launch = Launch {
            command: values.fill_all(&started.command).map_err(refuse)?,
            environment: values.fill_pairs(&started.environment).map_err(refuse)?,
            name: name.clone(),
            folder: folder.clone(),
            cores: started.cores,
        };
        let scratch = started.scratch.as_ref().map(|text| values.fill(text)).transpose();
        let scratch = scratch.map_err(refuse)?.map(PathBuf::from);
        if let Some(scratch) = &scratch {
            // What a killed study left there would be found again by this one.
            std::fs::remove_dir_all(scratch).unwrap_or_default();
        }
        let mut filled = started.clone();
        if let crate::topology::Ready::Command(command) = &mut filled.ready {
            *command = values.fill_all(command).map_err(refuse)?;
        }
        let uses_metrics = started.command.iter().any(|word| word.contains("{metrics}"));
        let mut announced = self.launch(&launch, &filled, &chosen)?;
        if announced.1.metrics.is_none() && uses_metrics {
            announced.1.metrics = Some(format!("127.0.0.1:{metrics}"));
        }
        let member = member((Part::tier(&tier.name), &tier.kind), started, number, announced);
        Ok(Member { scratch, ..member })
    }

    fn launch(
        &mut self,
        launch: &Launch,
        started: &Started,
        chosen: &str,
    ) -> Result<(Instance, Announced), ProcessError> {
        // A port file of an earlier try would be taken for this one's.
        std::fs::remove_file(launch.folder.join("port")).unwrap_or_default();
        let mut process = Instance::spawn(self.keeper, launch)?;
        match wait_ready(&mut process, started, chosen, self.interrupted) {
            Ok(announced) => Ok((process, announced)),
            Err(error) => {
                process.finish(self.keeper, std::time::Duration::ZERO);
                Err(error)
            }
        }
    }

    /// One relay process with a route to each instance of the tier behind it.
    fn link(&mut self, running: &mut Running, link: &Link) -> Result<(), ProcessError> {
        let Link { from, to, .. } = link;
        let name = format!("link {from} to {to}");
        // With a dot, which no tier's name has.
        let folder: PathBuf = self.folder.join(format!("link.{from}.{to}"));
        let mut command: Vec<String> = ["{kendall}", "serve", "link"].map(str::to_owned).into();
        command[0] = self.keeper.program().display().to_string();
        for address in running.reach(&link.to, &link.to) {
            command.extend(["--route".to_owned(), format!("127.0.0.1:0={address}")]);
        }
        command.extend(link.options.iter().cloned());
        command.extend(["--metrics", "127.0.0.1:0", "--seed"].map(str::to_owned));
        command.push(self.seed.to_string());
        let mut started = Started::command(1, command.clone());
        started.address = AddressFrom::ReadyLine;
        let launch = Launch { name, command, environment: Vec::new(), folder, cores: None };
        let (process, announced) = self.launch(&launch, &started, "")?;
        running.addresses.insert((link.from.clone(), link.to.clone()), announced.listen.clone());
        let part = Part { role: Role::Link, name: link.name() };
        let kind = Role::Link.as_str();
        running.members.push(member((part, kind), &started, 0, (process, announced)));
        Ok(())
    }
}

fn member(
    (part, kind): (Part, &str),
    started: &Started,
    number: u32,
    (process, announced): (Instance, Announced),
) -> Member {
    Member {
        part,
        kind: kind.to_owned(),
        number,
        address: announced.listen.first().cloned().unwrap_or_default(),
        metrics: announced.metrics,
        accounting: Accounting::Process(process.pid()),
        process: Some(process),
        stop: started.stop,
        stop_deadline: started.stop_deadline,
        scratch: None,
    }
}
