//! A process on some host, and what a study does with it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use kendall_units::hex;
use sha2::{Digest as _, Sha256};

use crate::connection::Connection;
use crate::error::HostError;
use crate::instance::ProcessError;
use crate::launch::{Announced, AwaitReady, Launch, StopSignal};
use crate::lease::LEASE;
use crate::protocol::{End, Measured, ReadyAnswer, StartedProcess, Unready, What};

/// How much longer than its own deadline the report of a process's end may take.
const GRACE: Duration = Duration::from_secs(10);

/// A process that a study started.
#[derive(Debug)]
pub struct Runner {
    agent: Arc<Connection>,
    process: u32,
    pid: u32,
    processors: Vec<usize>,
    name: String,
    command: String,
    /// Where what it said is kept here: on this machine always, of another host after the run.
    folder: PathBuf,
    /// Where it is there, below the agent's folder.
    far_folder: PathBuf,
    finished: bool,
    fetched: bool,
}

impl Runner {
    pub fn start(agent: &Arc<Connection>, launch: &Launch) -> Result<Self, HostError> {
        let far_folder = agent.far_folder(&launch.folder);
        let far = Launch { folder: far_folder.clone(), ..launch.clone() };
        let started: StartedProcess = agent.ask(What::Start(far))?;
        Ok(Self {
            agent: Arc::clone(agent),
            process: started.process,
            pid: started.pid,
            processors: started.processors,
            name: launch.name.clone(),
            command: launch.command.join(" "),
            fetched: far_folder == launch.folder,
            folder: launch.folder.clone(),
            far_folder,
            finished: false,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn command(&self) -> &str {
        &self.command
    }

    pub fn folder(&self) -> &PathBuf {
        &self.folder
    }

    /// The name of its host, as rows say it.
    pub fn host(&self) -> String {
        self.agent.name().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Where it was put instead of limiting its cores by a control group, in words; none where it was not.
    pub fn put(&self) -> Option<String> {
        let list = self.processors.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let host = self.agent.elsewhere("of");
        (!list.is_empty()).then(|| format!("{} on {list}{host}", self.name))
    }

    /// Waits until it may be used; it says where it listens.
    pub fn wait_ready(
        &self,
        wanted: AwaitReady,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Announced, ProcessError> {
        let deadline = Duration::from_millis(wanted.deadline_ms) * 2;
        let wanted = AwaitReady { process: self.process, ..wanted };
        let ticket = self.agent.send(What::Ready(wanted));
        let answer: ReadyAnswer = self.agent.wait(ticket, deadline + LEASE, interrupted)?;
        answer.map_err(|unready| {
            let (ended, what) = match unready {
                Unready::Ended(what) => (true, what),
                Unready::Other(what) => (false, what),
            };
            let what = format!("{}{}", self.local(&what), self.agent.elsewhere("on host"));
            ProcessError::Told { what, ended }
        })
    }

    pub fn ended(&self) -> Option<End> {
        self.agent.ended(self.process)
    }

    /// The error of having ended, or of a host that is gone.
    pub fn check_alive(&self) -> Result<(), ProcessError> {
        self.agent.check()?;
        self.ended().map_or(Ok(()), |End { status, tail, .. }| {
            let name = format!("{}{}", self.name, self.agent.elsewhere("on host"));
            Err(ProcessError::Ended { name, status, tail: self.local(&tail) })
        })
    }

    /// The end of its log, for an error.
    pub fn tail(&self) -> String {
        let told = self.ended().map(|end| end.tail);
        let told = told.or_else(|| self.agent.ask(What::Tail { process: self.process }).ok());
        told.map_or_else(
            || format!("; see {} after the run", self.folder.display()),
            |tail| self.local(&tail),
        )
    }

    /// Asks for a graceful stop.
    pub fn ask_to_stop(&self, signal: StopSignal) {
        if self.ended().is_none() {
            self.agent.tell(What::Signal { process: self.process, signal });
        }
    }

    /// Waits for the end until the deadline, then kills; says whether it had to.
    pub fn finish(mut self, deadline: Duration) -> bool {
        let killed = self.end_by(deadline).unwrap_or(false);
        if let Err(error) = self.fetch() {
            tracing::warn!(process = self.name, %error, "its log was not brought back");
        }
        killed
    }

    fn end_by(&mut self, deadline: Duration) -> Result<bool, HostError> {
        self.finished = true;
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let ticket = self.agent.send(What::Finish { process: self.process, deadline_ms });
        self.agent.wait(ticket, deadline + GRACE, &|| false)
    }

    /// A text that names the folder there, with the folder here instead.
    fn local(&self, text: &str) -> String {
        let there = Path::new(&self.agent.hello().folder).join(&self.far_folder);
        text.replace(&there.display().to_string(), &self.folder.display().to_string())
    }

    /// Brings what it printed and its log to its folder here, in pieces, with their length and digest: what is
    /// here is what was there.
    pub fn fetch(&mut self) -> Result<(), HostError> {
        if self.fetched {
            return Ok(());
        }
        let refused = |what: String| HostError::Refused {
            host: self.agent.name().to_owned(),
            what: format!("{}: {what}", self.name),
        };
        // Here, not there.
        let folder = self.folder.display().to_string();
        let system = |error: std::io::Error| {
            refused(format!("what it printed cannot be kept in {folder} of this machine: {error}"))
        };
        std::fs::create_dir_all(&self.folder).map_err(system)?;
        for name in ["output", "log"] {
            let file = self.far_folder.join(name).display().to_string();
            let measured: Measured = self.agent.ask(What::Measure { file: file.clone() })?;
            let mut digest = Sha256::new();
            let mut here = std::fs::File::create(self.folder.join(name)).map_err(system)?;
            let mut offset = 0;
            while offset < measured.length {
                let what = What::Read { file: file.clone(), offset };
                let piece: String = self.agent.ask(what)?;
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
}

impl Drop for Runner {
    /// The way out of errors; [`finish`](Self::finish) is the graceful one.
    fn drop(&mut self) {
        if !self.finished {
            // A host that is gone ends it by itself.
            self.end_by(Duration::ZERO).map(drop).unwrap_or_default();
        }
    }
}
