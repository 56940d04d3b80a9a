//! A process that runs here or on another host, and what a study does with it in either case.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use kendall_units::hex;
use sha2::{Digest as _, Sha256};

use crate::connection::{Connection, HostError};
use crate::hosts::LOCALHOST;
use crate::instance::{Instance, ProcessError};
use crate::keeper::Keeper;
use crate::launch::StopSignal;
use crate::protocol::{End, Measured, What};

/// How much longer than its own deadline the report of a process's end may take.
const GRACE: Duration = Duration::from_secs(10);

/// A process that a study started.
#[derive(Debug)]
pub enum Runner {
    Here(Instance),
    There(Remote),
}

/// A process on another host.
#[derive(Debug)]
pub struct Remote {
    pub connection: Arc<Connection>,
    pub process: u32,
    pub pid: u32,
    pub processors: Vec<usize>,
    pub name: String,
    pub command: String,
    /// Where what it said is kept here, after the run.
    pub folder: PathBuf,
    /// Where it is there, below the agent's folder.
    pub far_folder: String,
    pub finished: bool,
    pub fetched: bool,
}

impl Runner {
    pub fn name(&self) -> &str {
        match self {
            Self::Here(instance) => &instance.name,
            Self::There(remote) => &remote.name,
        }
    }

    pub fn command(&self) -> &str {
        match self {
            Self::Here(instance) => &instance.command,
            Self::There(remote) => &remote.command,
        }
    }

    pub fn folder(&self) -> &PathBuf {
        match self {
            Self::Here(instance) => &instance.folder,
            Self::There(remote) => &remote.folder,
        }
    }

    /// The agent that keeps it, where it runs on another host.
    pub fn agent(&self) -> Option<&Arc<Connection>> {
        match self {
            Self::Here(_) => None,
            Self::There(remote) => Some(&remote.connection),
        }
    }

    /// The name of its host, as rows say it.
    pub fn host(&self) -> String {
        self.agent().map_or_else(|| LOCALHOST.to_owned(), |agent| agent.name().to_owned())
    }

    /// Brings what it printed and its log to its folder here.
    pub fn fetch(&mut self) -> Result<(), HostError> {
        match self {
            Self::Here(_) => Ok(()),
            Self::There(remote) => remote.fetch(),
        }
    }

    pub fn pid(&self) -> u32 {
        match self {
            Self::Here(instance) => instance.pid(),
            Self::There(remote) => remote.pid,
        }
    }

    /// Where it was put instead of limiting its cores by a control group, in words; none where it was not.
    pub fn put(&self) -> Option<String> {
        let processors = match self {
            Self::Here(instance) => instance.processors(),
            Self::There(remote) => &remote.processors,
        };
        let list = processors.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let host = self.agent().map_or_else(String::new, |agent| format!(" of {}", agent.name()));
        (!processors.is_empty()).then(|| format!("{} on {list}{host}", self.name()))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<End> {
        match self {
            Self::Here(instance) => instance.ended().map(|status| End {
                status: status.to_string(),
                success: status.success(),
                tail: String::new(),
                life_ns: instance.life_ns(),
            }),
            Self::There(remote) => remote.ended(),
        }
    }

    pub fn end_in_words(&mut self) -> String {
        self.ended().map_or_else(|| "no end".to_owned(), |end| end.status)
    }

    /// The error of having ended, or of a host that is gone.
    pub fn check_alive(&mut self) -> Result<(), ProcessError> {
        match self {
            Self::Here(instance) => instance.check_alive(),
            Self::There(remote) => {
                remote.connection.check()?;
                match remote.ended() {
                    None => Ok(()),
                    Some(End { status, tail, .. }) => {
                        let name = format!("{} on host {}", remote.name, remote.connection.name());
                        Err(ProcessError::Ended { name, status, tail: remote.local(&tail) })
                    }
                }
            }
        }
    }

    /// The end of its log, for an error.
    pub fn tail(&self) -> String {
        match self {
            Self::Here(instance) => instance.tail(),
            Self::There(remote) => match remote.ended() {
                Some(end) => remote.local(&end.tail),
                None => format!("; see {} after the run", remote.folder.display()),
            },
        }
    }

    /// Asks for a graceful stop.
    pub fn ask_to_stop(&mut self, signal: StopSignal) {
        match self {
            Self::Here(instance) => instance.ask_to_stop(signal),
            Self::There(remote) => {
                if remote.ended().is_none() {
                    remote.connection.tell(What::Signal { process: remote.process, signal });
                }
            }
        }
    }

    /// Waits for the end until the deadline, then kills; says whether it had to.
    pub fn finish(self, keeper: &mut Keeper, deadline: Duration) -> bool {
        match self {
            Self::Here(instance) => instance.finish(keeper, deadline),
            Self::There(mut remote) => {
                let killed = remote.finish(deadline).unwrap_or(false);
                if let Err(error) = remote.fetch() {
                    tracing::warn!(process = remote.name, %error, "its log was not brought back");
                }
                killed
            }
        }
    }
}

impl Remote {
    fn ended(&self) -> Option<End> {
        self.connection.ended(self.process)
    }

    /// A text that names the folder there, with the folder here instead.
    pub fn local(&self, text: &str) -> String {
        let there = format!("{}/{}", self.connection.hello().folder, self.far_folder);
        text.replace(&there, &self.folder.display().to_string())
    }

    /// In pieces, with their length and digest: what is here is what was there.
    fn fetch(&mut self) -> Result<(), HostError> {
        if self.fetched {
            return Ok(());
        }
        let refused = |what: String| HostError::Refused {
            host: self.connection.name().to_owned(),
            what: format!("{}: {what}", self.name),
        };
        // Here, not there.
        let folder = self.folder.display().to_string();
        let system = |error: std::io::Error| {
            refused(format!("what it printed cannot be kept in {folder} of this machine: {error}"))
        };
        std::fs::create_dir_all(&self.folder).map_err(system)?;
        for name in ["output", "log"] {
            let file = format!("{}/{name}", self.far_folder);
            let measured: Measured = self.connection.ask(What::Measure { file: file.clone() })?;
            let mut digest = Sha256::new();
            let mut here = std::fs::File::create(self.folder.join(name)).map_err(system)?;
            let mut offset = 0;
            while offset < measured.length {
                let what = What::Read { file: file.clone(), offset };
                let piece: String = self.connection.ask(what)?;
                let mut bytes = base64::engine::general_purpose::STANDARD
                    .decode(piece)
                    .map_err(|error| refused(error.to_string()))?;
                // What was written since is not of this file.
                let left = usize::try_from(measured.length - offset).unwrap_or(usize::MAX);
                bytes.truncate(left);
                if bytes.is_empty() {
                    return Err(refused(format!("{name} became shorter while it was read")));
                }
                here.write_all(&bytes).map_err(system)?;
                digest.update(&bytes);
                offset += u64::try_from(bytes.len()).unwrap_or(0);
            }
            if hex(&digest.finalize()) != measured.sha256 {
                return Err(refused(format!("{name} was damaged on its way")));
            }
        }
        self.fetched = true;
        Ok(())
    }

    fn finish(&mut self, deadline: Duration) -> Result<bool, HostError> {
        self.finished = true;
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let what = What::Finish { process: self.process, deadline_ms };
        let ticket = self.connection.send(what);
        self.connection.wait(ticket, deadline + GRACE, &|| false)
    }
}

impl Drop for Remote {
    /// The way out of errors; [`Runner::finish`] is the graceful one.
    fn drop(&mut self) {
        if !self.finished {
            self.connection.tell(What::Finish { process: self.process, deadline_ms: 0 });
        }
    }
}
