//! Every host of a study, before anything is started: reached, with its programs, free disk and clock.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use kendall_host::HostError;
use kendall_host::disk::LEAST_BYTES;
use kendall_host::hosts::At;
use kendall_host::keeper::Keeper;
use kendall_host::machines::Machines;
use kendall_host::protocol::What;

use crate::error::StudyError;
use crate::file::StudyFile;
use crate::plan::Plan;
use crate::settings::Settings;
use crate::topology::{CLIENTS, Source};

/// What runs here and on the hosts over all configurations, and what that needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// By place: tier and program.
    programs: BTreeMap<At, BTreeSet<(String, String)>>,
    /// By place: tier, and arguments of Kendall's program that look for what it needs.
    checks: BTreeMap<At, BTreeSet<(String, &'static [&'static str])>>,
    /// By place: what runs there.
    placed: BTreeMap<At, BTreeSet<String>>,
}

impl Needs {
    /// Of all configurations: a place may be a factor.
    pub(crate) fn of(all: &[Settings]) -> Self {
        let mut needs = Self::default();
        for settings in all {
            let placement = &settings.placement;
            for host in placement.used() {
                needs.programs.entry(At::Host(host)).or_default();
            }
            for tier in &settings.topology.tiers {
                let Source::Started(started) = &tier.source else { continue };
                let own = started.command.first().filter(|program| !program.contains('{'));
                for at in placement.of(tier.name.as_str(), started.instances) {
                    needs.placed.entry(at).or_default().insert(tier.name.to_string());
                    let programs = needs.programs.entry(at).or_default();
                    programs.extend(own.map(|own| (tier.name.to_string(), own.clone())));
                    let check = started.check.map(|check| (tier.name.to_string(), check));
                    needs.checks.entry(at).or_default().extend(check);
                }
            }
            let load = settings.workload.driver.program.as_ref();
            let load = load.and_then(|program| program.command.first());
            let load = load.filter(|program| !program.contains('{'));
            for at in placement.of(CLIENTS, settings.workload.generators) {
                needs.placed.entry(at).or_default().insert(CLIENTS.to_owned());
                let own = load.map(|program| (CLIENTS.to_owned(), program.clone()));
                needs.programs.entry(at).or_default().extend(own);
            }
        }
        needs
    }

    pub(crate) fn hosts(&self) -> Vec<usize> {
        let hosts = self.programs.keys().filter_map(|at| match at {
            At::Host(host) => Some(*host),
            At::Here => None,
        });
        hosts.collect()
    }

    /// Tiers that are started on this machine, each with its program.
    pub(crate) fn here(&self) -> impl Iterator<Item = &(String, String)> {
        self.programs.get(&At::Here).into_iter().flatten()
    }

    /// What looks at a place for what tiers need: each tier, and arguments of Kendall's program.
    pub(crate) fn checks(&self, at: At) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.checks.get(&at).into_iter().flatten().map(|(tier, arguments)| {
            let words = arguments.iter().map(|word| (*word).to_owned());
            (tier.as_str(), words.collect())
        })
    }

    /// Whether some tier, wherever it is, is this program.
    pub(crate) fn is_a_tier(&self, program: &str) -> bool {
        self.programs.values().flatten().any(|(_, of_tier)| of_tier == program)
    }

    /// Refuses the first host that lacks a program, free disk or the address that its tiers are to listen on.
    pub(crate) fn check(&self, machines: &Machines, study: &StudyFile) -> Result<(), HostError> {
        for (host, agent) in machines.agents() {
            let refused =
                |what: String| HostError::Unusable { host: agent.name().to_owned(), what };
            let Some(programs) = self.programs.get(&At::Host(host)) else { continue };
            let names = programs.iter().map(|(_, program)| program.clone()).collect();
            let missing: Vec<String> = agent.ask(What::Missing { programs: names })?;
            if let Some((tier, program)) =
                programs.iter().find(|(_, program)| missing.contains(program))
            {
                let known = study.base.kind.programs.iter().find(|(name, _)| name == program);
                let remedy = known.map_or_else(String::new, |(_, package)| {
                    format!("; install it there with `apt-get install {package}`")
                });
                let what = format!("tier `{tier}`: the program `{program}` is not there{remedy}");
                return Err(refused(what));
            }
            for (tier, arguments) in self.checks(At::Host(host)) {
                if let Some(what) = agent.ask::<Option<String>>(What::Check { arguments })? {
                    return Err(refused(format!("tier `{tier}`: {what}")));
                }
            }
            let free = agent.hello().free_bytes;
            if free < LEAST_BYTES {
                let folder = &agent.hello().folder;
                return Err(refused(format!(
                    "{} MiB are free at {folder}, and a run needs {}: free some, or name another folder by \
                     TMPDIR there",
                    free >> 20,
                    LEAST_BYTES >> 20
                )));
            }
            // That there is a port shows that the address is the host's own.
            let address = machines.address(At::Host(host));
            agent.ask::<u16>(What::FreePort { address }).map_err(|error| match error {
                HostError::Refused { what, .. } => {
                    refused(format!("{what}; `address` in [hosts] must be one of its own"))
                }
                other => other,
            })?;
        }
        Ok(())
    }
}

/// A host that was checked.
#[derive(Debug, Clone, serde::Serialize)]
pub struct HostReport {
    /// Its name in the study.
    #[serde(rename = "host")]
    pub name: String,
    pub machine: String,
    pub address: String,
    pub placed: Vec<String>,
    /// Cores that may be used.
    pub cores: u64,
    /// Free bytes for logs and results of a run.
    pub free_bytes: u64,
    /// Its monotonic clock minus that of this machine.
    pub clock_offset_s: f64,
    /// What that can be wrong by.
    pub clock_bound_s: f64,
    /// Least round trip over the agent's pipe.
    pub round_trip_s: f64,
}

/// Connects every host that the study places something on, and checks each.
pub fn check_hosts(
    study: &StudyFile,
    program: &Path,
    interrupted: &AtomicBool,
) -> Result<Vec<HostReport>, StudyError> {
    let plan = Plan::of(study)?;
    let needs = Needs::of(&plan.settings(study)?);
    if needs.hosts().is_empty() {
        return Ok(Vec::new());
    }
    let keeper = Keeper::start(program).map_err(|source| StudyError::System {
        what: format!("{} cannot be started", program.display()),
        source,
    })?;
    let mut machines = Machines::new(keeper, study.base.placement.hosts.clone());
    Ok(needs.look(&mut machines, study, &|| interrupted.load(Ordering::Relaxed))?)
}

impl Needs {
    fn look(
        &self,
        machines: &mut Machines,
        study: &StudyFile,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<HostReport>, HostError> {
        machines.connect(&self.hosts(), interrupted)?;
        self.check(machines, study)?;
        let mut reports = Vec::new();
        for (host, agent) in machines.agents() {
            let fit = agent.clock_fit()?;
            let at = At::Host(host);
            let address = machines.address(at);
            let hello = agent.hello();
            let placed = self.placed.get(&at).into_iter().flatten().cloned().collect();
            reports.push(HostReport {
                name: agent.name().to_owned(),
                machine: hello.machine.clone(),
                address,
                placed,
                cores: hello.cores,
                free_bytes: hello.free_bytes,
                clock_offset_s: fit.offset_s(),
                clock_bound_s: fit.bound_ns / 1e9,
                round_trip_s: kendall_units::Seconds::from_nanos(fit.round_trip_ns).get(),
            });
        }
        Ok(reports)
    }
}
