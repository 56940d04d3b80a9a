//! What was seen in one run, before it is stored.

use std::path::PathBuf;

use kendall_host::machines::{HostClock, Way};
use kendall_protocols::load_result::LoadResult;
use kendall_protocols::snapshot::TierSnapshot;
use kendall_protocols::topology::Part;
use kendall_stats::estimate::{Caveat, OtherProgram};
use kendall_store::{HostSample, Process, SpeedSample};

use crate::settings::Settings;

/// What was seen in one run.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) generators: Vec<ObservedGenerator>,
    pub(crate) members: Vec<ObservedMember>,
    pub(crate) processes: Vec<Process>,
    pub(crate) hosts: Vec<HostSample>,
    /// Programs of this machine that are none of the study's, the largest first.
    pub(crate) programs: Vec<OtherProgram>,
    /// Programs that serve a tier without being one.
    pub(crate) serving: Vec<Caveat>,
    pub(crate) speeds: Vec<SpeedSample>,
    /// Names of those that did not stop when asked to.
    pub(crate) killed: Vec<String>,
    /// Those that were put on processors of their own, in words.
    pub(crate) put: Vec<String>,
    /// Clocks of the hosts beside this machine.
    pub(crate) clocks: Vec<HostClock>,
    /// The ways between hosts that talk to each other.
    pub(crate) ways: Vec<Way>,
    /// What one client alone did before the load.
    pub(crate) alone: Option<Box<Alone>>,
}

/// What one client alone did before the load of a run.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) settings: Settings,
    pub(crate) observed: Observed,
}

/// A load generator, and what it found.
#[derive(Debug)]
pub(crate) struct ObservedGenerator {
    pub(crate) host: String,
    pub(crate) command: String,
    pub(crate) result: LoadResult,
    /// Where it printed the result.
    pub(crate) output: PathBuf,
}

/// A tier instance or link, and what it reported.
#[derive(Debug, Clone)]
pub(crate) struct ObservedMember {
    pub(crate) part: Part,
    pub(crate) kind: String,
    pub(crate) number: u32,
    pub(crate) host: String,
    pub(crate) address: String,
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) metrics: Option<String>,
    pub(crate) snapshots: Vec<TierSnapshot>,
    /// Why the last snapshot that could not be read could not.
    pub(crate) unreadable: Option<String>,
}

impl ObservedMember {
    #[cfg(test)]
    pub(crate) fn with_metrics_on(host: &str) -> Self {
        Self {
            part: Part::study(),
            kind: String::new(),
            number: 0,
            host: host.to_owned(),
            address: String::new(),
            pid: 0,
            command: String::new(),
            metrics: Some("127.0.0.1:1".to_owned()),
            snapshots: Vec::new(),
            unreadable: None,
        }
    }

    pub(crate) fn take_in(&mut self, read: Option<Result<TierSnapshot, serde_json::Error>>) {
        match read {
            Some(Ok(snapshot)) => self.snapshots.push(snapshot),
            Some(Err(error)) => {
                // Such as one of an unknown version; the run carries the error.
                tracing::warn!(tier = %self.part, %error, "a snapshot that cannot be read");
                self.unreadable = Some(error.to_string());
            }
            None => tracing::debug!(tier = %self.part, "no snapshot"),
        }
    }
}

/// Maps every moment of another host to this machine's clock.
pub(crate) fn lined_up(observed: &mut Observed) {
    let Observed { generators, members, processes, hosts, clocks, .. } = observed;
    for HostClock { host, fit, .. } in &*clocks {
        let map = |moment: &mut u64| *moment = fit.here(*moment);
        for one in generators.iter_mut().filter(|one| one.host == *host) {
            map(&mut one.result.started_ns);
            map(&mut one.result.ended_ns);
            for window in &mut one.result.windows {
                map(&mut window.from_ns);
                map(&mut window.to_ns);
            }
        }
        let of_host = members.iter_mut().filter(|member| member.host == *host);
        for snapshot in of_host.flat_map(|member| &mut member.snapshots) {
            map(&mut snapshot.at_ns);
            map(&mut snapshot.started_ns);
        }
        for process in processes.iter_mut().filter(|process| process.host == *host) {
            process.samples.iter_mut().for_each(|sample| map(&mut sample.at_ns));
            process.threads.iter_mut().for_each(|sample| map(&mut sample.at_ns));
        }
        for sample in hosts.iter_mut().filter(|sample| sample.host == *host) {
            map(&mut sample.at_ns);
        }
    }
}
